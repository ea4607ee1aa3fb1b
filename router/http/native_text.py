"""llama-server's helpers: tokens of a text, text of tokens, the rendered template, and token counts."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from protocol.codec import Answer
from protocol.text import ApplyTemplate, Detokenize, Detokenized, TemplateApplied, Tokenize, Tokenized
from router.http import sse
from router.http.call import Call, Response
from router.http.chat_request import ChatFields, chat_prompt
from router.http.decoding import decode
from router.http.errors import invalid
from router.http.prompts import Mixture, Token
from router.http.routing import Route
from router.http.services import Services
from router.http.single import SingleBody


class TokenizeRequest(Struct, kw_only=True):
    model: str | None = None
    content: str | Mixture | None = None
    add_special: bool | None = None
    parse_special: bool | None = None
    with_pieces: bool | None = None


class DetokenizeRequest(Struct, kw_only=True):
    model: str | None = None
    tokens: list[Token] | None = None


_tokenize: msgspec.json.Decoder[TokenizeRequest] = msgspec.json.Decoder(TokenizeRequest)
_detokenize: msgspec.json.Decoder[DetokenizeRequest] = msgspec.json.Decoder(DetokenizeRequest)
_template: msgspec.json.Decoder[ChatFields] = msgspec.json.Decoder(ChatFields)


class NativeText:
    def __init__(self, services: Services) -> None:
        self._services = services

    def routes(self) -> list[Route]:
        return [
            Route("POST", "/tokenize", self.tokenize),
            Route("POST", "/detokenize", self.detokenize),
            Route("POST", "/apply-template", self.apply_template),
        ]

    async def tokenize(self, call: Call) -> Response:
        request = decode(_tokenize, await call.body())
        model = self._services.model(call, request.model)
        if request.content is not None and not isinstance(request.content, str):
            raise invalid("content: expected a string", "content")
        work = Tokenize(
            request=0,
            text=request.content or "",
            add_special=bool(request.add_special),
            parse_special=request.parse_special is not False,
            with_pieces=bool(request.with_pieces),
        )
        return self._services.answer(call, sse.random_id("tok-"), model, work, SingleBody(_tokens))

    async def detokenize(self, call: Call) -> Response:
        request = decode(_detokenize, await call.body())
        model = self._services.model(call, request.model)
        work = Detokenize(request=0, tokens=tuple(request.tokens or ()))
        return self._services.answer(call, sse.random_id("tok-"), model, work, SingleBody(_text))

    async def apply_template(self, call: Call) -> Response:
        request = decode(_template, await call.body())
        model = self._services.model(call, request.model)
        work = ApplyTemplate(request=0, chat=chat_prompt(request, model.request))
        return self._services.answer(call, sse.random_id("tpl-"), model, work, SingleBody(_prompt))


def _tokens(answer: Answer) -> dict[str, Any] | None:
    if not isinstance(answer, Tokenized):
        return None
    if not answer.pieces:
        return {"tokens": answer.tokens}
    pairs = zip(answer.tokens, answer.pieces, strict=True)
    return {"tokens": [{"id": token, "piece": _piece(piece)} for token, piece in pairs]}


def _piece(piece: bytes) -> str | list[int]:
    """Text, or its bytes where they are no whole characters."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return list(piece)


def _text(answer: Answer) -> dict[str, Any] | None:
    return {"content": answer.text} if isinstance(answer, Detokenized) else None


def _prompt(answer: Answer) -> dict[str, Any] | None:
    return {"prompt": answer.prompt} if isinstance(answer, TemplateApplied) else None

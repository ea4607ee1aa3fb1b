"""`/v1/audio/transcriptions`: a sound file in a form, its words out."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import msgspec
from msgspec import Struct
from starlette.datastructures import FormData, Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from protocol.chat import AudioPart, ChatMessage, ChatPrompt, TextPart
from protocol.codec import Answer
from protocol.errors import WireError
from protocol.generate import Delta
from router.config.model import Model
from router.http import errors, sse, usage
from router.http.call import Call, Response
from router.http.decoding import located
from router.http.errors import Dialect, invalid
from router.http.fields import GenerationFields
from router.http.generation import generate
from router.http.prompts import file_part
from router.http.routing import Route
from router.http.services import Services
from router.transport.encoder import Encoder

PROMPT = "Transcribe audio to text"
MAX_FIELDS = 100


class TranscriptionFields(Struct, kw_only=True):
    """The text fields of the form."""

    model: str | None = None
    prompt: str | None = None
    language: str | None = None
    response_format: str | None = None
    stream: bool | None = None
    max_tokens: int | None = None
    temperature: float | None = None


class Transcriptions:
    def __init__(self, services: Services) -> None:
        self._services = services

    def routes(self) -> list[Route]:
        return [Route("POST", path, self.transcribe) for path in ("/v1/audio/transcriptions", "/audio/transcriptions")]

    async def transcribe(self, call: Call) -> Response:
        form = await read_form(call)
        try:
            fields = form_fields(form)
            data = await _file(form)
        finally:
            await form.close()
        if fields.response_format not in (None, "", "json", "text"):
            raise invalid(f"response_format: expected json or text, got '{fields.response_format}'", "response_format")
        model = self._services.model(call, fields.model)
        self._check_hearing(model)
        shared = GenerationFields(
            stream=fields.stream,
            max_tokens=fields.max_tokens,
            temperature=0.0 if fields.temperature is None else fields.temperature,
        )
        work = generate(shared, _prompt(fields, data), model)
        encoder: Encoder
        if fields.stream:
            encoder = TranscriptEvents()
        else:
            encoder = TranscriptBody(plain=fields.response_format == "text")
        return self._services.answer(call, sse.random_id("asr-"), model, work, encoder)

    def _check_hearing(self, model: Model) -> None:
        info = self._services.owner.info(model.key)
        hears = model.input_modalities if info is None else info.input_modalities
        if "audio" not in hears:
            raise invalid(f"the model '{model.id}' does not take audio: it has no projector that hears", "model")


async def read_form(call: Call) -> FormData:
    """The parts of a multipart body. Raises `ApiError` 400 for another kind of body, or a broken one."""
    if not call.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise invalid("the body must be multipart/form-data")
    body = await call.body()

    async def whole() -> AsyncGenerator[bytes, None]:
        yield body

    try:
        parser = MultiPartParser(Headers(scope=call.scope), whole(), max_files=10, max_fields=MAX_FIELDS)
        return await parser.parse()
    except MultiPartException as error:
        raise invalid(f"the form is broken: {error.message}") from error
    except (KeyError, ValueError) as error:
        raise invalid("the form is broken: it has no boundary") from error


def form_fields(form: FormData) -> TranscriptionFields:
    """The text fields, which come as strings, with the types that they should have."""
    given = {name: value for name, value in form.items() if isinstance(value, str)}
    try:
        return msgspec.convert(given, TranscriptionFields, strict=False)
    except msgspec.ValidationError as error:
        raise located(error) from error


async def _file(form: FormData) -> bytes:
    upload = form.get("file")
    if not isinstance(upload, UploadFile):
        raise invalid("No input file found for transcription", "file")
    data = await upload.read()
    if not data:
        raise invalid("file: the file is empty", "file")
    return data


def _prompt(fields: TranscriptionFields, data: bytes) -> ChatPrompt:
    words = fields.prompt or PROMPT
    if fields.language:
        words += f" (language: {fields.language})"
    part = file_part(data, "file")
    sound = part if isinstance(part, AudioPart) else AudioPart(data, param="file")
    return ChatPrompt(messages=(ChatMessage("user", (TextPart(words), sound)),), enable_thinking=False)


class _Transcript:
    def __init__(self) -> None:
        self._parts: list[str] = []

    def begin(self) -> bytes:
        self._parts = []
        return b""

    def _done(self, answer: Answer) -> dict[str, Any]:
        done = usage.completed(answer)
        return {
            "type": "transcript.text.done",
            "text": "".join(self._parts).strip(),
            "usage": {"type": "tokens", **usage.responses_usage(done.usage)},
        }


class TranscriptEvents(_Transcript):
    """The streamed form."""

    media_type = "text/event-stream"
    streams = True
    comments = True

    def delta(self, delta: Delta) -> bytes:
        if not delta.text:
            return b""
        self._parts.append(delta.text)
        return sse.event(sse.to_json({"type": "transcript.text.delta", "delta": delta.text}))

    def end(self, answer: Answer) -> bytes:
        return sse.event(sse.to_json(self._done(answer)))

    def error(self, error: WireError) -> bytes:
        return sse.event(errors.body(Dialect.OPENAI, errors.from_wire(error)))

    def comment(self, text: str) -> bytes:
        return sse.comment(text)


class TranscriptBody(_Transcript):
    """The whole transcript: JSON, or nothing but its text."""

    streams = False
    comments = False

    def __init__(self, *, plain: bool) -> None:
        super().__init__()
        self._plain = plain

    @property
    def media_type(self) -> str:
        return "text/plain; charset=utf-8" if self._plain else "application/json; charset=utf-8"

    def delta(self, delta: Delta) -> bytes:
        self._parts.append(delta.text)
        return b""

    def end(self, answer: Answer) -> bytes:
        done = self._done(answer)
        return f"{done['text']}\n".encode() if self._plain else sse.to_json(done)

    def error(self, error: WireError) -> bytes:
        return errors.body(Dialect.OPENAI, errors.from_wire(error))

    def comment(self, text: str) -> bytes:
        return b""

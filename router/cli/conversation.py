"""A conversation over `/v1/chat/completions`: its messages, and answers as they stream in."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable
from typing import Any, Protocol

from router.cli.client import Client, ClientError
from router.cli.sse import server_events


class Listener(Protocol):
    """Where an answer goes while it comes."""

    def comment(self, text: str) -> None: ...

    def thought(self, text: str) -> None: ...

    def content(self, text: str) -> None: ...

    def end(self) -> None: ...


@dataclasses.dataclass
class Reply:
    """One answer. Times are seconds; `first_after` is None if nothing came."""

    model: str = ""
    content: str = ""
    reasoning: str = ""
    usage: dict[str, Any] = dataclasses.field(default_factory=dict)
    first_after: float | None = None
    took: float = 0.0
    interrupted: bool = False

    @property
    def cached_tokens(self) -> int:
        return int((self.usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)

    @property
    def tokens_per_second(self) -> float:
        """Tokens per second after the first."""
        count = int(self.usage.get("completion_tokens") or 0)
        decoding = self.took - (self.first_after or 0.0)
        return (count - 1) / decoding if count > 1 and decoding > 0 else 0.0


class Conversation:
    """Messages so far, and the fields of the requests."""

    def __init__(
        self,
        client: Client,
        model: str,
        system: str | None = None,
        fields: dict[str, Any] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._clock = clock
        self.model = model
        self.system = system
        self.fields = dict(fields or {})
        self.last: Reply | None = None
        self._messages: list[dict[str, str]] = []

    @property
    def messages(self) -> list[dict[str, str]]:
        head = [{"role": "system", "content": self.system}] if self.system else []
        return head + self._messages

    def clear(self) -> None:
        self._messages.clear()

    def set(self, field: str, value: str) -> None:
        """Set a field of the requests to a JSON value or, if it is none, to the text; "" unsets it."""
        if not field.isidentifier() or field in ("messages", "model", "stream"):
            raise ValueError("this field cannot be set")
        if not value:
            self.fields.pop(field, None)
            return
        try:
            self.fields[field] = json.loads(value)
        except ValueError:
            self.fields[field] = value

    def ask(self, text: str, listener: Listener) -> Reply:
        """Ask and hear the answer out. An interrupt ends the answer, which then counts as far as it went.

        Raises `ClientError`; the question is then forgotten, so that it can be asked again.
        """
        question = {"role": "user", "content": text}
        body = {
            **self.fields,
            "model": self.model,
            "messages": [*self.messages, question],
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        reply = Reply(model=self.model)
        begun = self._clock()
        try:
            self._hear(body, reply, listener, begun)
        except KeyboardInterrupt:
            reply.interrupted = True
        finally:
            reply.took = self._clock() - begun
            listener.end()
        self._messages += [question, {"role": "assistant", "content": reply.content}]
        self.last = reply
        return reply

    def _hear(self, body: dict[str, Any], reply: Reply, listener: Listener, begun: float) -> None:
        finished = False
        for event in server_events(self._client.lines("POST", "/v1/chat/completions", body)):
            if event.comment:
                listener.comment(event.comment)
                continue
            if event.data == "[DONE]":
                finished = True
                continue
            chunk = event.json()
            if "error" in chunk:
                error = chunk["error"]
                raise ClientError(str(error.get("message", error)) if isinstance(error, dict) else str(error))
            reply.model = chunk.get("model") or reply.model
            reply.usage = chunk.get("usage") or reply.usage
            for choice in chunk.get("choices", ()):
                delta = choice.get("delta", {})
                thought, content = delta.get("reasoning_content") or "", delta.get("content") or ""
                if (thought or content) and reply.first_after is None:
                    reply.first_after = self._clock() - begun
                if thought:
                    reply.reasoning += thought
                    listener.thought(thought)
                if content:
                    reply.content += content
                    listener.content(content)
        if not finished:
            raise ClientError("the answer broke off")

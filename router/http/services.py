"""What handlers work with, and the steps that every request takes: which model, which options, which answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from protocol.codec import Work
from protocol.errors import ErrorKind, WireError
from protocol.generate import Generate
from router.config.catalogue import Catalogue, Difference
from router.config.configuration import Configuration
from router.config.errors import ConfigError, UnknownModel
from router.config.model import Model
from router.config.settings import Settings
from router.http.answering import StreamAnswer
from router.http.call import Call
from router.http.conversations import Conversations
from router.http.errors import ApiError, from_wire, invalid, model_not_found
from router.inference import Inference, Options, Ticket
from router.metrics.exposition import Metrics
from router.security.access import AccessPolicy
from router.security.scopes import Scope
from router.supervision.owner import Owner
from router.transport.encoder import Encoder

MAX_PRIORITY = 100


@dataclass
class Services:
    """The parts behind the handlers. `draining` is set once the gateway has begun to stop."""

    configuration: Configuration
    owner: Owner
    inference: Inference
    policy: AccessPolicy
    metrics: Metrics | None = None
    draining: bool = False
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when streams that would never end by themselves have to end."""

    def __post_init__(self) -> None:
        self.conversations = Conversations(
            self.inference, total=self.settings.streams_total, detached=self.settings.stream_detached_seconds
        )

    @property
    def settings(self) -> Settings:
        return self.configuration.settings

    @property
    def catalogue(self) -> Catalogue:
        """The models as they are configured now: another object after a reload."""
        return self.configuration.catalogue

    def model(self, call: Call, named: str | None) -> Model:
        """The model of a request: its field, the query, `--default-model`, or the only one that is loaded.

        Raises `ApiError` 400 where none can be told, 404 for an unknown one, 403 where the key may not use it.
        """
        name = named or call.query.get("model")
        model = self._resolve(name)
        if not call.may_use(*model.names, *((name,) if name else ())):
            raise ApiError(403, "permission_error", f"this API key may not use the model '{model.id}'", param="model")
        self.check_loadable(model)
        return model

    def check_loadable(self, model: Model) -> None:
        """Raise `ApiError` 503 for a model whose configuration or file is known to be wrong."""
        if model.error:
            raise from_wire(WireError(ErrorKind.LOAD_FAILED, f"model '{model.id}' cannot be loaded: {model.error}"))

    def lookup(self, name: str) -> Model | None:
        """The model that has this name, None if none has."""
        try:
            return self.catalogue.resolve(name)
        except UnknownModel:
            return None

    def require(self, call: Call, scope: Scope) -> None:
        """Raise `ApiError` 403 unless the request's key has this scope, beside what its route asks for."""
        if not self.policy.may(call.key, scope):
            raise ApiError(403, "permission_error", f"this needs an API key with the scope '{scope}'")

    async def reload(self) -> Difference:
        """Read the configuration again and apply what changed. Raises `ApiError` 400, and then nothing has changed."""
        before = self.catalogue
        try:
            catalogue = await asyncio.to_thread(self.configuration.reload)
        except ConfigError as error:
            raise invalid(f"the configuration stays as it was: {error}") from error
        self.owner.configure(catalogue, self.configuration.policy())
        self.owner.news.publish("*", "models_reload")
        return catalogue.difference(before)

    def close_streams(self) -> None:
        """End the streams that would go on for ever."""
        self.closing.set()
        self.owner.news.publish("*", "server_stopping")

    def running_downloads(self) -> list[Any]:
        """What is being downloaded, for followers of events."""
        return []

    def _resolve(self, name: str | None) -> Model:
        try:
            return self.catalogue.resolve(name or None)
        except UnknownModel as error:
            if name:
                raise model_not_found(name, error.nearest) from error
            loaded = self.owner.loaded_models()
            if len(loaded) != 1:
                raise invalid("model name is missing from the request", "model") from error
            return self.catalogue.resolve(loaded[0])

    def options(self, call: Call, model: Model) -> Options:
        """How the request's headers want it to be treated."""
        deadline = call.seconds("x-request-deadline")
        if deadline is not None and deadline <= 0:
            deadline = None
        if deadline is None and self.settings.request_timeout > 0:
            deadline = self.settings.request_timeout
        return Options(
            priority=_priority(call),
            deadline=deadline,
            autoload=call.flag("autoload", self.settings.autoload),
            keep_alive=call.seconds("x-keep-alive"),
            owner=owner_of(call),
        )

    def answer(self, call: Call, id: str, model: Model, work: Work, encoder: Encoder) -> StreamAnswer:
        """Submit work and answer with what comes of it."""
        options = self.options(call, model)
        return self._answer(call, encoder, lambda: self.inference.submit(id, model, work, encoder, options))

    def answer_all(
        self, call: Call, id: str, model: Model, works: Sequence[Generate], encoder: Encoder
    ) -> StreamAnswer:
        """The same for several prompts that make one answer."""
        options = self.options(call, model)
        return self._answer(call, encoder, lambda: self.inference.submit_all(id, model, works, encoder, options))

    def _answer(self, call: Call, encoder: Encoder, submit: Callable[[], Ticket]) -> StreamAnswer:
        """Keep the stream where the client has said that it may come back for it."""
        conversation = call.headers.get("x-conversation-id", "") if encoder.streams else ""
        if conversation:
            self.conversations.make_room()
        ticket = submit()
        if conversation:
            self.conversations.keep(conversation, ticket)
        return StreamAnswer(self.inference, ticket, self.settings.early_headers_ms / 1e3)


def owner_of(call: Call) -> str:
    """Whose requests and streams these are: the name of the key, empty without keys."""
    return "" if call.key is None else call.key.name


def _priority(call: Call) -> int:
    value = call.headers.get("x-priority")
    if value is None:
        return 0
    try:
        return max(-MAX_PRIORITY, min(int(value), MAX_PRIORITY))
    except ValueError as error:
        raise invalid(f"x-priority: expected an integer, got '{value}'", "x-priority") from error

"""What handlers work with, and the steps that every request takes: which model, which options, which answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from protocol.codec import Work
from protocol.errors import ErrorKind, WireError
from protocol.generate import Generate
from router.config.catalogue import Catalogue
from router.config.errors import UnknownModel
from router.config.model import Model
from router.config.settings import Settings
from router.http.answering import StreamAnswer
from router.http.call import Call
from router.http.errors import ApiError, from_wire, invalid, model_not_found
from router.inference import Inference, Options
from router.supervision.owner import Owner
from router.transport.encoder import Encoder

MAX_PRIORITY = 100


@dataclass
class Services:
    """The parts behind the handlers. `draining` is set once the gateway has begun to stop."""

    settings: Settings
    catalogue: Catalogue
    owner: Owner
    inference: Inference
    draining: bool = field(default=False)

    def model(self, call: Call, named: str | None) -> Model:
        """The model of a request: its field, the query, `--default-model`, or the only one that is loaded.

        Raises `ApiError` 400 where none can be told, 404 for an unknown one, 403 where the key may not use it.
        """
        name = named or call.query.get("model")
        model = self._resolve(name)
        if call.key is not None and not call.key.may_use(*model.names, *((name,) if name else ())):
            raise ApiError(403, "permission_error", f"this API key may not use the model '{model.id}'", param="model")
        if model.error:
            raise from_wire(WireError(ErrorKind.LOAD_FAILED, f"model '{model.id}' cannot be loaded: {model.error}"))
        return model

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
        ticket = self.inference.submit(id, model, work, encoder, self.options(call, model))
        return StreamAnswer(self.inference, ticket, self.settings.early_headers_ms / 1e3)

    def answer_all(
        self, call: Call, id: str, model: Model, works: Sequence[Generate], encoder: Encoder
    ) -> StreamAnswer:
        """The same for several prompts that make one answer."""
        ticket = self.inference.submit_all(id, model, works, encoder, self.options(call, model))
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

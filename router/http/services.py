"""What handlers work with, and the steps that every request takes: which model, which options, which answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from protocol.chat import ChatPrompt
from protocol.codec import Work
from protocol.download import DownloadChoice, JobState
from protocol.errors import ErrorKind, WireError
from protocol.generate import Generate
from router.config.catalogue import Catalogue, Difference
from router.config.configuration import Configuration
from router.config.errors import ConfigError, UnknownModel
from router.config.model import Model
from router.config.settings import Settings
from router.downloads.job import DownloadError
from router.downloads.service import Downloads
from router.http.answering import StreamAnswer
from router.http.call import Call
from router.http.conversations import Conversations
from router.http.copies import Copies
from router.http.download_entries import job_entry, model_entries
from router.http.errors import ApiError, from_wire, invalid, model_not_found
from router.http.media import check_modalities, with_files
from router.http.remote_media import RemoteMedia
from router.http.responses_store import ResponseStore
from router.inference import Inference, Options, Provide, Ticket
from router.metrics.exposition import Metrics
from router.scheduling.events import LoadAsked
from router.security.access import AccessPolicy
from router.security.keys import InvalidKey, KeyRing
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
    downloads: Downloads
    metrics: Metrics | None = None
    copies: Copies = field(default_factory=Copies)
    """Further names of models, made by clients."""
    read_keys: Callable[[], KeyRing] | None = None
    """Reads the files of keys again; raises `InvalidKey`. None where the keys are fixed."""
    speed: Callable[[str], float] = lambda key: 0.0
    """Generated tokens per second of the model with this load key, in the last minute."""
    draining: bool = False
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when streams that would never end by themselves have to end."""

    def __post_init__(self) -> None:
        self.responses = ResponseStore()
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

        Raises `ApiError` 400 where none can be told, 404 for one that does not exist for the request's key.
        """
        name = named or call.query.get("model")
        model = self._resolve(call, name) if name else self._default(call)
        self.check_loadable(model)
        return model

    def check_loadable(self, model: Model) -> None:
        """Raise `ApiError` 503 for a model whose configuration or file is known to be wrong."""
        if model.error:
            raise from_wire(WireError(ErrorKind.LOAD_FAILED, f"model '{model.id}' cannot be loaded: {model.error}"))

    async def with_files(self, prompt: ChatPrompt, model: Model) -> ChatPrompt:
        """The prompt with the files behind addresses in it, where those are fetched. Raises `ApiError` 400."""
        check_modalities(prompt, model)
        if not self.settings.media_urls:
            return prompt
        remote = RemoteMedia(model.worker.media_limit_bytes, self.settings.body_limit)
        return await with_files(prompt, remote.fetch)

    def lookup(self, name: str) -> Model | None:
        """The model that has this name, None if none has."""
        try:
            return self.catalogue.resolve(self.copies.resolve(name))
        except UnknownModel:
            return None

    def visible(self, call: Call, name: str) -> Model | None:
        """The same for the request's key, for which models that it may not use do not exist."""
        model = self.lookup(name)
        return model if model is not None and call.may_use(name, *model.names) else None

    def require(self, call: Call, scope: Scope) -> None:
        """Raise `ApiError` 403 unless the request's key has this scope, beside what its route asks for."""
        if not self.policy.may(call.key, scope):
            raise ApiError(403, "permission_error", f"this needs an API key with the scope '{scope}'")

    async def reload(self) -> Difference:
        """Read keys and models again and apply what changed. Raises `ApiError` 400, and then nothing has changed."""
        try:
            ring = self.read_keys() if self.read_keys is not None else None
        except InvalidKey as error:
            raise invalid(f"the configuration stays as it was: {error}") from error
        difference = await self.read_models()
        if ring is not None:
            self.policy.use(ring)
        return difference

    async def read_models(self) -> Difference:
        """The same for the models alone."""
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
        return [job_entry(job) for job in self.downloads.active()]

    def with_downloads(self, call: Call, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """A list of models in which running downloads take part: by an entry of their own, or by their status."""
        downloading = {entry["id"]: entry for entry in model_entries(self.downloads.active())}
        for entry in entries:
            running = downloading.pop(entry["id"], None)
            if running is not None and entry["status"]["value"] == "unloaded":
                entry["status"] = entry["status"] | running["status"]
        new = [entry for name, entry in downloading.items() if call.may_use(name)]
        return sorted([*entries, *new], key=lambda entry: str(entry["id"]))

    async def provide(self, model: Model, note: Callable[[float], None]) -> Model:
        """Fetch the files of a configured model, and return it as it is then. Raises `DownloadError`."""
        await self.downloads.fetch(DownloadChoice(model.missing), note)
        provided = self.lookup(model.id)
        if provided is None or provided.missing or provided.error:
            words = provided.error if provided is not None and provided.error else "its configuration has changed"
            error = WireError(ErrorKind.LOAD_FAILED, f"model '{model.id}' was downloaded and cannot be loaded: {words}")
            raise DownloadError(error)
        return provided

    async def fetch_and_load(self, model: Model) -> None:
        """Begin to fetch a configured model, to be loaded when it is there. Raises `ApiError` if that is refused."""
        try:
            job = await self.downloads.pull(DownloadChoice(model.missing))
        except DownloadError as error:
            raise from_wire(error.error) from error

        def load(_: asyncio.Future[None]) -> None:
            provided = self.lookup(model.id)
            if job.state is JobState.DONE and provided is not None and provided.key:
                self.owner.post(LoadAsked(provided.key, name=provided.id))

        job.finished.add_done_callback(load)

    def _provider(self, model: Model, options: Options) -> Provide | None:
        if not model.missing:
            return None
        if not options.autoload:
            raise invalid(f"model '{model.id}' is not downloaded, and autoload is off", "model")
        return lambda note: self.provide(model, note)

    def _resolve(self, call: Call, name: str) -> Model:
        model = self.visible(call, name)
        if model is not None:
            return model
        try:
            self.catalogue.resolve(self.copies.resolve(name))
        except UnknownModel as error:
            raise model_not_found(name, [near for near in error.nearest if self.visible(call, near)]) from error
        raise model_not_found(name)

    def _default(self, call: Call) -> Model:
        try:
            model = self.catalogue.resolve(None)
        except UnknownModel as error:
            loaded = self.owner.loaded_models()
            if len(loaded) != 1:
                raise _nameless() from error
            model = self.catalogue.resolve(loaded[0])
        if not call.may_use(*model.names):
            raise _nameless()
        return model

    def options(self, call: Call, keep_alive: float | None = None) -> Options:
        """How the request's headers want it to be treated; `keep_alive` is what its body says."""
        deadline = call.seconds("x-request-deadline")
        if deadline is not None and deadline <= 0:
            deadline = None
        if deadline is None and self.settings.request_timeout > 0:
            deadline = self.settings.request_timeout
        return Options(
            priority=_priority(call),
            deadline=deadline,
            autoload=call.flag("autoload", self.settings.autoload),
            keep_alive=call.seconds("x-keep-alive") if keep_alive is None else keep_alive,
            owner=owner_of(call),
        )

    def answer(
        self, call: Call, id: str, model: Model, work: Work, encoder: Encoder, keep_alive: float | None = None
    ) -> StreamAnswer:
        """Submit work and answer with what comes of it."""
        options = self.options(call, keep_alive)
        provide = self._provider(model, options)
        return self._answer(call, encoder, lambda: self.inference.submit(id, model, work, encoder, options, provide))

    def answer_all(
        self, call: Call, id: str, model: Model, works: Sequence[Generate], encoder: Encoder
    ) -> StreamAnswer:
        """The same for several prompts that make one answer."""
        options = self.options(call)
        provide = self._provider(model, options)
        return self._answer(
            call, encoder, lambda: self.inference.submit_all(id, model, works, encoder, options, provide)
        )

    def _answer(self, call: Call, encoder: Encoder, submit: Callable[[], Ticket]) -> StreamAnswer:
        """Keep the stream where the client has said that it may come back for it."""
        conversation = call.headers.get("x-conversation-id", "") if encoder.streams else ""
        if conversation:
            self.conversations.make_room()
        if call.key is not None and 0 < call.key.concurrency <= self.inference.running(call.key.name):
            words = f"this API key may have {call.key.concurrency} requests running at once"
            raise ApiError(429, "rate_limit_error", words, retry_after=1.0)
        ticket = submit()
        if conversation:
            self.conversations.keep(conversation, ticket)
        return StreamAnswer(self.inference, ticket, self.settings.early_headers_ms / 1e3, call.dialect)


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


def _nameless() -> ApiError:
    return invalid("model name is missing from the request", "model")

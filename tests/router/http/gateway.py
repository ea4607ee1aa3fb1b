"""A gateway on a loopback port over an owner that plays scripts instead of running workers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from protocol.codec import Work
from protocol.download import ConfigureDownloads
from protocol.errors import WireError
from protocol.generate import ChoiceEnd, Completed, Delta, DeltaExtra, Generate, Timings, ToolCallDelta, Usage
from protocol.load import LoadParameters, ModelInfo
from protocol.status import UpdateStatus
from router.app import build_app
from router.config.catalogue import Catalogue
from router.config.model import Model
from router.config.settings import Settings
from router.downloads.journal import Journal
from router.downloads.service import Downloads
from router.http.gateway import Gateway
from router.http.listeners import Listeners
from router.http.server import Server
from router.http.services import Services
from router.inference import Inference
from router.scheduling.events import Event, RequestArrived, RequestLeft
from router.scheduling.model import Policy
from router.scheduling.states import State
from router.scheduling.views import Decision, ModelView, QueuedModel, WaitingView
from router.security.access import AccessPolicy
from router.security.keys import KeyRing, KeySpec
from router.supervision.news import NewsHub
from router.transport.stream import RequestStream

Play = Callable[[Work, RequestStream], None]

SMOL = Model(
    id="smol",
    source="models_dir",
    aliases=("tiny",),
    key="key-smol",
    parameters=LoadParameters(model_path="/models/smol.gguf", slots=4),
)
OTHER = Model(
    id="user/repo:Q4_0",
    source="cache",
    key="key-other",
    parameters=LoadParameters(model_path="/models/other.gguf", slots=1),
)
BROKEN = Model(id="broken", source="models_dir", error="'broken.gguf' is not a GGUF file")


def say(*words: str, stop: str = "eos", word: str = "") -> Play:
    """Answer a generation with these texts, one delta each, to every choice."""

    def play(work: Work, stream: RequestStream) -> None:
        assert isinstance(work, Generate)
        for index in range(work.n):
            for text in words:
                stream.delta(Delta(work.request, text, 1, index))
        stream.answer(completed(work, len(words), stop, word))

    return play


def rich(*extras: DeltaExtra, text: str = "", stop: str = "eos") -> Play:
    """Answer with the rarer parts of deltas, then with text."""

    def play(work: Work, stream: RequestStream) -> None:
        assert isinstance(work, Generate)
        for extra in extras:
            stream.delta(Delta(work.request, "", 1, 0, extra))
        if text:
            stream.delta(Delta(work.request, text))
        stream.answer(completed(work, len(extras) + bool(text), stop))

    return play


def tool_call(name: str, arguments: str, id: str = "call_1") -> Play:
    """Answer with one call of a tool, its arguments in two pieces."""
    half = len(arguments) // 2
    return rich(
        DeltaExtra(tool_calls=(ToolCallDelta(0, id, name, arguments[:half]),)),
        DeltaExtra(tool_calls=(ToolCallDelta(0, "", "", arguments[half:]),)),
        stop="tool_calls",
    )


def fail(error: WireError) -> Play:
    """Fail at once, before any output."""
    return lambda work, stream: stream.fail(error)


def silence(work: Work, stream: RequestStream) -> None:
    """Answer nothing."""


def completed(work: Generate, tokens: int, stop: str = "eos", word: str = "") -> Completed:
    return Completed(
        work.request,
        tuple(ChoiceEnd(index, stop, word, tokens) for index in range(work.n)),
        Usage(prompt_tokens=7, completion_tokens=tokens * work.n, cached_tokens=3),
        Timings(cache_n=3, prompt_n=4, prompt_ms=8.0, predicted_n=tokens, predicted_ms=20.0),
        slot=1,
        seed=42,
    )


@dataclass
class ScriptedOwner:
    """Stands where the owner of scheduler and children stands; `play` answers all work at once."""

    play: Play = field(default_factory=lambda: say("Hello", " world"))
    alive: bool = True
    events: list[Event] = field(default_factory=list)
    works: list[Work] = field(default_factory=list)
    arrivals: list[RequestArrived] = field(default_factory=list)
    streams: dict[int, RequestStream] = field(default_factory=dict)
    news: NewsHub = field(default_factory=NewsHub)
    views: dict[str, ModelView] = field(default_factory=dict)
    reports: dict[str, UpdateStatus] = field(default_factory=dict)
    reasoning_ended: list[int] = field(default_factory=list)
    waits: list[WaitingView] = field(default_factory=list)
    queued: list[QueuedModel] = field(default_factory=list)
    decided: list[Decision] = field(default_factory=list)
    infos: dict[str, ModelInfo] = field(default_factory=dict)

    def submit(self, work: Work, stream: RequestStream, arrived: RequestArrived) -> None:
        self.works.append(work)
        self.arrivals.append(arrived)
        self.streams[arrived.request] = stream
        self.play(work, stream)

    def post(self, event: Event) -> None:
        self.events.append(event)

    @property
    def left(self) -> list[int]:
        return [event.request for event in self.events if isinstance(event, RequestLeft)]

    def end_reasoning(self, request: int) -> bool:
        self.reasoning_ended.append(request)
        return True

    def waiting(self) -> list[WaitingView]:
        return self.waits

    def queue(self) -> list[QueuedModel]:
        return self.queued

    def decisions(self) -> list[Decision]:
        return self.decided

    def configure(self, catalogue: Catalogue, policy: Policy) -> None:
        """Take a configuration."""

    def view(self, key: str) -> ModelView | None:
        return self.views.get(key)

    def models(self) -> list[ModelView]:
        return list(self.views.values())

    def info(self, key: str) -> ModelInfo | None:
        return self.infos.get(key)

    def status(self, key: str) -> UpdateStatus | None:
        return self.reports.get(key)

    def loaded_models(self) -> list[str]:
        return [view.names[0] for view in self.views.values() if view.state is State.READY]

    def load(self, model: Model) -> None:
        """Show a model as loaded."""
        self.views[model.key] = ModelView(model.key, model.names, State.READY, "loaded", "", 0.0)


@dataclass
class FixedConfiguration:
    settings: Settings
    catalogue: Catalogue

    def reload(self) -> Catalogue:
        return self.catalogue

    def policy(self) -> Policy:
        return Policy()


@dataclass
class Running:
    """A gateway that serves: on a socket, or (`url` empty) to clients in the same process, which is quicker."""

    url: str
    owner: ScriptedOwner
    services: Services
    app: Gateway

    def client(self, **options: Any) -> httpx.AsyncClient:
        """A client of this gateway. In the same process answers come whole, so that streams cannot be followed."""
        if self.url:
            # Nobody speaks TLS here, and loading certificates takes longer than most tests.
            return httpx.AsyncClient(base_url=self.url, timeout=10, verify=False, **options)
        transport = httpx.ASGITransport(app=self.app)
        return httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=10, **options)


@contextlib.asynccontextmanager
async def gateway(
    *,
    settings: Settings | None = None,
    models: Sequence[Model] = (SMOL, OTHER, BROKEN),
    keys: Sequence[KeySpec] = (),
    play: Play | None = None,
    single: str = "",
    default: str = "",
    hosts: Sequence[str] = ("127.0.0.1",),
    listen: bool = True,
) -> AsyncIterator[Running]:
    owner = ScriptedOwner()
    if play is not None:
        owner.play = play
    configuration = FixedConfiguration(settings or Settings(), Catalogue(tuple(models), single=single, default=default))
    services = Services(
        configuration,  # type: ignore[arg-type]
        owner,  # type: ignore[arg-type]
        Inference(owner),  # type: ignore[arg-type]
        AccessPolicy(KeyRing(keys)),
        # Never opened: these tests ask for no download.
        Downloads(None, ConfigureDownloads(), Journal(Path("/nonexistent"))),  # type: ignore[arg-type]
    )
    if not listen:
        yield Running("", owner, services, build_app(services, public=False))
        services.conversations.close()
        return
    listeners = Listeners.bind(hosts, 0)
    app = build_app(services, public=not listeners.local)
    server = Server.of(app)
    serving = server.run_in_background(listeners.sockets)
    try:
        yield Running(listeners.addresses[0], owner, services, app)
    finally:
        services.close_streams()
        services.conversations.close()
        server.close()
        await asyncio.wait_for(serving, 10)
        listeners.close()

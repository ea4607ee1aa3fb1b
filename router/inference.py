"""The use case: admit a request, follow it by its id, and give it up when nobody waits for it any more."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec
from msgspec import Struct

from protocol.chat import files_of
from protocol.codec import Work, encode
from protocol.errors import ErrorKind, WireError
from protocol.generate import Generate
from protocol.text import ApplyTemplate, CountTokens, Detokenize, Tokenize
from router.config.model import Model
from router.downloads.job import DownloadError
from router.fanin import FanIn, PartStream
from router.logs.requests import log_work
from router.metrics.observations import Observations
from router.metrics.trace import TracedStream
from router.scheduling.effects import Phase
from router.scheduling.events import RequestAnswered, RequestArrived, RequestLeft
from router.supervision.owner import Owner
from router.transport.encoder import Encoder
from router.transport.stream import CAPACITY, RequestStream

VOCABULARY_WORK = (Tokenize, Detokenize, ApplyTemplate)


class Options(Struct, frozen=True):
    """How a request wants to be treated. `deadline` is seconds from now, `keep_alive` seconds of idleness.

    `owner` names the key that it came with; only that key may cancel it.
    """

    priority: int = 0
    deadline: float | None = None
    autoload: bool = True
    keep_alive: float | None = None
    owner: str = ""


class Ticket(Struct, eq=False):
    """A request that was admitted. `id` is the one its client sees."""

    id: str
    requests: tuple[int, ...]
    model: str
    owner: str
    stream: RequestStream
    kept: bool = False
    """Somebody may come back for it: a reader that leaves does not end it."""


Provide = Callable[[Callable[[float], None]], Awaitable[Model]]
"""Fetches the files of a model that has none yet, and tells the share that is there (0..1). Raises `DownloadError`."""


class Inference:
    """Admits work and keeps the tickets of what has not ended."""

    def __init__(
        self, owner: Owner, ring: int = CAPACITY, observations: Observations | None = None, log_prompts: bool = False
    ) -> None:
        """`log_prompts` puts what clients send into the log."""
        self._owner = owner
        self._log_prompts = log_prompts
        self._ring = ring
        self._observations = observations or Observations()
        self._numbers = itertools.count(1)
        self._tickets: dict[str, Ticket] = {}
        self._providing: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tickets)

    def running(self, owner: str) -> int:
        """How many requests of this key have not ended."""
        return sum(ticket.owner == owner and not ticket.stream.ended for ticket in self._tickets.values())

    def tickets(self) -> tuple[Ticket, ...]:
        """All requests that have not been forgotten."""
        return tuple(self._tickets.values())

    def submit(
        self,
        id: str,
        model: Model,
        work: Work,
        encoder: Encoder,
        options: Options,
        provide: Provide | None = None,
    ) -> Ticket:
        """Hand work to the scheduler, once `provide` has brought the model where that is needed.

        The answer, or why there is none, comes through the ticket's stream.
        """
        self._note(id, model, (work,))
        request = next(self._numbers)
        stream = self._stream(id, model, options, (request,), encoder, traced=needs_weights(work))
        ticket = self._ticket(id, (request,), model, options, stream)
        self._when_there(ticket, model, provide, lambda model: self._admit(model, work, request, stream, options))
        return ticket

    def submit_all(
        self,
        id: str,
        model: Model,
        works: Sequence[Generate],
        encoder: Encoder,
        options: Options,
        provide: Provide | None = None,
    ) -> Ticket:
        """Hand several generations to the scheduler that make one answer. Their choices are numbered in order."""
        if len(works) == 1:
            return self.submit(id, model, works[0], encoder, options, provide)
        self._note(id, model, works)
        requests = tuple(next(self._numbers) for _ in works)
        stream = self._stream(id, model, options, requests, encoder)
        ticket = self._ticket(id, requests, model, options, stream)
        parts = FanIn(stream, works, abandon=lambda: self._abandon(ticket)).parts

        def admit(model: Model) -> None:
            for request, work, part in zip(requests, works, parts, strict=True):
                self._admit(model, work, request, PartStream(request, part, stream), options)

        self._when_there(ticket, model, provide, admit)
        return ticket

    def _when_there(
        self, ticket: Ticket, model: Model, provide: Provide | None, admit: Callable[[Model], None]
    ) -> None:
        if provide is None:
            admit(model)
            return
        task = asyncio.get_running_loop().create_task(self._provide(ticket, provide, admit))
        self._providing.add(task)
        task.add_done_callback(self._providing.discard)

    async def _provide(self, ticket: Ticket, provide: Provide, admit: Callable[[Model], None]) -> None:
        stream = ticket.stream
        stream.notify(Phase.DOWNLOADING)
        try:
            model = await provide(lambda share: stream.notify(Phase.DOWNLOADING, progress=share))
        except DownloadError as error:
            stream.fail(error.error)
            return
        if self.holds(ticket):
            admit(model)

    def _stream(
        self,
        id: str,
        model: Model,
        options: Options,
        requests: tuple[int, ...],
        encoder: Encoder,
        *,
        traced: bool = True,
    ) -> RequestStream:
        def answered() -> None:
            for number in requests:
                self._owner.post(RequestAnswered(number))

        if not traced:
            # Tokens and templates take microseconds and are asked for by the thousand: no line, no histogram.
            return RequestStream(requests[0], encoder, answered, self._ring)
        return TracedStream(
            requests[0],
            encoder,
            id=id,
            model=model.id,
            key=options.owner,
            observations=self._observations,
            on_answered=answered,
            capacity=self._ring,
        )

    def _ticket(
        self, id: str, requests: tuple[int, ...], model: Model, options: Options, stream: RequestStream
    ) -> Ticket:
        ticket = Ticket(id=id, requests=requests, model=model.id, owner=options.owner, stream=stream)
        self._tickets[id] = ticket
        return ticket

    def _note(self, id: str, model: Model, works: Sequence[Work]) -> None:
        if self._log_prompts:
            for work in works:
                log_work(id, model.id, work)

    def _admit(self, model: Model, work: Work, request: int, stream: RequestStream, options: Options) -> None:
        arrived = RequestArrived(
            request=request,
            model=model.key,
            priority=options.priority,
            deadline=None if options.deadline is None else time.monotonic() + options.deadline,
            autoload=options.autoload,
            keep_alive=options.keep_alive,
            needs_weights=needs_weights(work),
            digest=digest(work),
            name=model.id,
        )
        self._owner.submit(msgspec.structs.replace(work, request=request), stream, arrived)

    def find(self, id: str, owner: str) -> Ticket | None:
        """A running request by its id, if it belongs to this key."""
        ticket = self._tickets.get(id)
        return ticket if ticket is not None and ticket.owner == owner else None

    def holds(self, ticket: Ticket) -> bool:
        """Whether it has not been forgotten."""
        return self._tickets.get(ticket.id) is ticket

    def left(self, ticket: Ticket) -> None:
        """A reader is through with the stream, or has gone: end the request unless somebody may come back."""
        if ticket.kept or ticket.stream.readers > 0:
            return
        self.forget(ticket)

    def cancel(self, ticket: Ticket, reason: str) -> None:
        """End a request in whatever phase it is; its readers get an error."""
        self.forget(ticket)
        ticket.stream.fail(WireError(ErrorKind.CANCELLED, reason))

    def forget(self, ticket: Ticket) -> None:
        """Drop a ticket for good, and what is left of its work. Harmless when repeated."""
        if not self.holds(ticket):
            return
        del self._tickets[ticket.id]
        if not ticket.stream.ended:
            if isinstance(ticket.stream, TracedStream):
                ticket.stream.gone()
            self._abandon(ticket)

    def _abandon(self, ticket: Ticket) -> None:
        for request in ticket.requests:
            self._owner.post(RequestLeft(request))


def needs_weights(work: Work) -> bool:
    """Tokens and templates need the vocabulary alone, which a sleeping worker has; images need the projector."""
    if isinstance(work, CountTokens):
        return bool(files_of(work.prompt))
    return not isinstance(work, VOCABULARY_WORK)


def digest(work: Work) -> str:
    """Names the content of a request, so that what killed a worker twice is known when it comes again."""
    if not isinstance(work, Generate):
        return ""
    return hashlib.blake2b(encode(work), digest_size=16).hexdigest()

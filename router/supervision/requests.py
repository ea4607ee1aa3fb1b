"""The work of every request that has not ended, and the way of its output from a worker to its stream."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import msgspec

from protocol.codec import Answer, Work
from protocol.errors import ErrorKind, WireError
from protocol.generate import Delta, Failed, Generate, Parked, ResumePoint
from protocol.status import SlotStatus
from router.scheduling.effects import Phase
from router.scheduling.events import Child
from router.transport.stream import RequestStream
from router.transport.table import StreamTable

log = logging.getLogger("llamaherd.supervision")


@dataclass(slots=True, eq=False)
class _Entry:
    """`child` is the worker that holds the request now; `over` says that its client has, or wants, no more."""

    work: Work
    stream: RequestStream
    child: Child | None = None
    resume: ResumePoint | None = None
    over: bool = False


class RequestBook:
    """Keeps work until its request is over for the client and no worker holds it, so that it can be sent again."""

    def __init__(self) -> None:
        self.streams = StreamTable()
        self._entries: dict[int, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, work: Work, stream: RequestStream) -> None:
        self.streams.add(stream)
        self._entries[work.request] = _Entry(work, stream)

    def assign(self, request: int, child: Child) -> Work | None:
        """The work to send to `child`, which holds the request from now on; None if nobody waits for it any more.

        Output that no client has seen is forgotten. One that a client has seen cannot be begun anew: such a request
        is failed here, unless it goes on from where it was parked.
        """
        entry = self._entries.get(request)
        if entry is None or entry.over:
            return None
        if entry.resume is None:
            if entry.stream.answered:
                self.end(request, WireError(ErrorKind.WORKER_DIED, "the worker died in the middle of the answer"))
                return None
            entry.stream.restart()
        entry.child = child
        if entry.resume is not None and isinstance(entry.work, Generate):
            return msgspec.structs.replace(entry.work, resume=entry.resume)
        return entry.work

    def deltas(self, child: Child, deltas: tuple[Delta, ...]) -> None:
        """Append the output of one decode step; what comes from a worker that lost the request since is dropped."""
        for delta in deltas:
            entry = self._entries.get(delta.request)
            if entry is not None and entry.child == child and not entry.over:
                entry.stream.delta(delta)

    def answer(self, child: Child, answer: Answer) -> bool:
        """Take the end of a request at a worker. False if that worker does not hold it."""
        entry = self._entries.get(answer.request)
        if entry is None or entry.child != child:
            return False
        entry.child = None
        if isinstance(answer, Parked):
            entry.resume = answer.resume
        else:
            if isinstance(answer, Failed):
                entry.stream.fail(answer.error)
            else:
                entry.stream.answer(answer)
            entry.over = True
        self._drop_if_done(answer.request, entry)
        return True

    def end(self, request: int, error: WireError) -> None:
        """The request is over with an error for its client."""
        entry = self._entries.get(request)
        if entry is not None:
            entry.stream.fail(error)
            entry.over = True
            self._drop_if_done(request, entry)

    def left(self, request: int) -> None:
        """Nobody waits for the answer any more."""
        entry = self._entries.get(request)
        if entry is not None:
            entry.over = True
            self._drop_if_done(request, entry)

    def lost(self, child: Child) -> None:
        """A worker is gone, and what it held with it.

        A request that had gone on there from where it was parked has more output by now than its resume point says: it
        can only begin anew, or end.
        """
        for request, entry in list(self._entries.items()):
            if entry.child == child:
                entry.child = None
                entry.resume = None
                self._drop_if_done(request, entry)

    def holder(self, request: int) -> Child | None:
        """The worker that holds a request now."""
        entry = self._entries.get(request)
        return entry.child if entry is not None else None

    def end_all(self, error: WireError) -> None:
        """Nothing will be answered any more."""
        for entry in self._entries.values():
            entry.stream.fail(error)
        self._entries.clear()
        self.streams = StreamTable()

    def notify(self, request: int, phase: Phase, position: int, progress: float) -> None:
        entry = self._entries.get(request)
        if entry is not None:
            entry.stream.notify(phase, position, progress)

    def show_prefill(self, slots: tuple[SlotStatus, ...]) -> None:
        """Tell waiting clients how far their prompt is."""
        for slot in slots:
            if slot.state == "prefill" and slot.n_prompt > 0:
                self.notify(slot.request, Phase.RUNNING, 0, slot.n_prompt_done / slot.n_prompt)

    def _drop_if_done(self, request: int, entry: _Entry) -> None:
        if entry.over and entry.child is None:
            del self._entries[request]
            self.streams.remove(request)

"""Several generations that make one answer: the prompts of one request, each of them work of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from protocol.codec import Answer
from protocol.errors import ErrorKind, WireError
from protocol.generate import Completed, Delta, Generate, Timings, Usage
from router.scheduling.effects import Phase
from router.transport.stream import RequestStream


class FanIn:
    """Leads the output of each part into one stream, with the choices numbered through.

    The first part that fails ends the answer; `abandon` then gives up the others.
    """

    def __init__(self, stream: RequestStream, works: Sequence[Generate], abandon: Callable[[], None]) -> None:
        self._stream = stream
        self._abandon = abandon
        self._ends: list[Completed | None] = [None] * len(works)
        first = 0
        self.parts: list[Part] = []
        for number, work in enumerate(works):
            self.parts.append(Part(self, number, first))
            first += work.n

    def delta(self, delta: Delta, first: int) -> None:
        if first:
            delta = msgspec.structs.replace(delta, index=delta.index + first)
        self._stream.delta(delta)

    def end(self, number: int, first: int, done: Completed) -> None:
        choices = tuple(msgspec.structs.replace(end, index=end.index + first) for end in done.choices)
        self._ends[number] = msgspec.structs.replace(done, choices=choices)
        ends = [end for end in self._ends if end is not None]
        if len(ends) == len(self._ends):
            self._stream.answer(joined(ends))

    def fail(self, error: WireError) -> None:
        if not self._stream.ended:
            self._stream.fail(error)
            self._abandon()


class PartStream(RequestStream):
    """The stream of one part. Nothing is read from it; what the part waits for is told to the answer's clients."""

    def __init__(self, request: int, part: Part, whole: RequestStream) -> None:
        super().__init__(request, part)
        self._whole = whole

    def notify(self, phase: Phase, position: int = 0, progress: float = 0.0) -> None:
        super().notify(phase, position, progress)
        self._whole.notify(phase, position, progress)


class Part:
    """The encoder of one part: everything goes on to the answer's own encoder, nothing stays here."""

    media_type = ""
    streams = True
    comments = False

    def __init__(self, whole: FanIn, number: int, first: int) -> None:
        self._whole = whole
        self._number = number
        self._first = first
        self._forwarded = False

    def begin(self) -> bytes:
        if self._forwarded:
            # Its beginning cannot be taken out of the answer that the other parts have written on.
            self._whole.fail(WireError(ErrorKind.WORKER_DIED, "the worker died while it made this answer"))
        return b""

    def delta(self, delta: Delta) -> bytes:
        self._forwarded = True
        self._whole.delta(delta, self._first)
        return b""

    def end(self, answer: Answer) -> bytes:
        if not isinstance(answer, Completed):
            raise TypeError(f"a generation cannot be answered by {type(answer).__name__}")
        self._whole.end(self._number, self._first, answer)
        return b""

    def error(self, error: WireError) -> bytes:
        self._whole.fail(error)
        return b""

    def comment(self, text: str) -> bytes:
        return b""


def joined(ends: Sequence[Completed]) -> Completed:
    """One end for all parts: choices in order, counts and times added up."""
    usages = [end.usage for end in ends]
    times = [end.timings for end in ends]
    return Completed(
        request=ends[0].request,
        choices=tuple(choice for end in ends for choice in end.choices),
        usage=Usage(*(sum(getattr(usage, name) for usage in usages) for name in Usage.__struct_fields__)),
        timings=Timings(*(sum(getattr(time, name) for time in times) for name in Timings.__struct_fields__)),
        truncated=any(end.truncated for end in ends),
        seed=ends[0].seed,
    )

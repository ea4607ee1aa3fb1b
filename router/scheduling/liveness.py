"""Tells slow from wedged: each sign of life is a counter that must move while there is work for it.

A worker is wedged when a counter stands still for longer than max(limit, 10 × the longest standstill seen of it).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from protocol.status import UpdateStatus, WorkerState

PATIENCE = 10.0
"""Times the longest standstill that ended well."""

ANSWER = "answers"
DECODE = "decode"
PREPARATION = "preparation"
PROGRESS = "progress"

_WORDS = {
    ANSWER: "it does not answer",
    DECODE: "the decode step stands still",
    PREPARATION: "the preparation of requests stands still",
    PROGRESS: "the load makes no progress",
}


@dataclass(slots=True)
class Sign:
    """One counter. `moved` is when it last moved, or when work for it began; None without work."""

    pulse: object = None
    moved: float | None = None

    def see(self, pulse: object, working: bool, now: float) -> float:
        """Take a reading; return the length of the standstill that it ended, 0.0 if none."""
        ended = 0.0
        if not working:
            self.moved = None
        elif self.moved is None:
            self.moved = now
        elif pulse != self.pulse:
            ended = now - self.moved
            self.moved = now
        self.pulse = pulse
        return ended


@dataclass(slots=True, eq=False)
class Watch:
    """The signs of life of one worker. `slowest` outlives it: the same model's next worker is as slow."""

    slowest: dict[str, float]
    heard: float
    signs: dict[str, Sign] = field(default_factory=lambda: {name: Sign() for name in _WORDS})

    def observe(self, status: UpdateStatus, held: bool, now: float) -> None:
        """Take in a status. `held` says whether the router counts requests at this worker."""
        self.heard = now
        loading = status.state in (WorkerState.LOADING, WorkerState.WAKING)
        if loading or status.state is WorkerState.READY:  # any other state was reported before the load began
            self.see(PROGRESS, (status.state, status.stage, status.progress), loading, now)
        decoding = [slot for slot in status.slots if slot.state in ("prefill", "decode")]
        self.see(DECODE, (status.step, sum(slot.n_prompt_done for slot in decoding)), bool(decoding), now)
        preparing = held and not loading and len(status.held) > len(decoding) < len(status.slots)
        self.see(PREPARATION, (status.preparation, status.step, len(decoding)), preparing, now)

    def see(self, sign: str, pulse: object, working: bool, now: float) -> None:
        ended = self.signs[sign].see(pulse, working, now)
        if ended > self.slowest.get(sign, 0.0):
            self.slowest[sign] = ended

    def expect(self, sign: str, now: float) -> None:
        """From now on this sign must move: a query was sent, a load was started."""
        state = self.signs[sign]
        if state.moved is None:
            state.moved = now

    def satisfied(self, sign: str, now: float) -> None:
        """What was expected has come."""
        self.see(sign, now, True, now)
        self.signs[sign].moved = None

    def progressed(self, now: float) -> None:
        """The process itself was seen to work (CPU time, page faults, bytes read): counts for a load only."""
        if self.signs[PROGRESS].moved is not None:
            self.see(PROGRESS, now, True, now)

    def limit(self, sign: str, wedge_after: float) -> float:
        return max(wedge_after, PATIENCE * self.slowest.get(sign, 0.0))

    def verdict(self, now: float, wedge_after: float) -> str:
        """Why the worker counts as wedged, empty if it does not."""
        for name, sign in self.signs.items():
            if sign.moved is not None and now >= sign.moved + self.limit(name, wedge_after):
                return f"{_WORDS[name]} for {now - sign.moved:.0f} s"
        return ""

    def next_verdict(self, wedge_after: float) -> float | None:
        """When the verdict has to be looked at again, if nothing moves."""
        times = [
            sign.moved + self.limit(name, wedge_after) for name, sign in self.signs.items() if sign.moved is not None
        ]
        return min(times, default=None)

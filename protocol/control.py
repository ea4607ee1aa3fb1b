"""Control messages: seen by a child between any two steps, ahead of all waiting work."""

from __future__ import annotations

from msgspec import Struct


class QueryStatus(Struct, frozen=True, tag="query_status", omit_defaults=True):
    """The ping. Answered by the I/O thread with `UpdateStatus(answers=nonce)`."""

    nonce: int


class Cancel(Struct, frozen=True, tag="cancel", omit_defaults=True):
    """End a request in whatever phase it is; answered by `Failed(cancelled)` unless it has ended already."""

    request: int


class Park(Struct, frozen=True, tag="park", omit_defaults=True):
    """Stop a running request so that it can go on in another process; answered by `Parked`."""

    request: int


class EndReasoning(Struct, frozen=True, tag="end_reasoning", omit_defaults=True):
    """Force the end of the reasoning of a running request."""

    request: int


class Sleep(Struct, frozen=True, tag="sleep", omit_defaults=True):
    """Free context and weights. Answered by `UpdateStatus(sleeping)`, or `(ready)` when declined for work held."""


class Wakeup(Struct, frozen=True, tag="wakeup", omit_defaults=True):
    """Load again what `Sleep` freed. Answered by `UpdateStatus(waking)` before anything is loaded."""


class ForecastFile(Struct, frozen=True, omit_defaults=True):
    """A model file, and the parameters of a load that its vocabulary depends on."""

    model_path: str
    override_kv: tuple[str, ...] = ()


class Forecast(Struct, frozen=True, tag="forecast", omit_defaults=True):
    """What a worker without a model may be told to load, the likeliest first; replaces the forecast before.

    It may read vocabularies ahead, behind whatever else runs on the machine. Not answered; none comes after `Load`.
    """

    files: tuple[ForecastFile, ...]


class SetThreads(Struct, frozen=True, tag="set_threads", omit_defaults=True):
    """The worker's share of the cores, from the next step on."""

    threads: int
    threads_batch: int


class Shutdown(Struct, frozen=True, tag="shutdown", omit_defaults=True):
    """End now: running work is failed as cancelled, state is kept if so configured, exit code 0."""

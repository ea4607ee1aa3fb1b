"""All children of the router: spawned, greeted, listened to, stopped, and always reaped."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from typing import Protocol

from protocol import codec
from protocol.control import Shutdown
from protocol.errors import ErrorKind, ExitCode, ProtocolViolation, WireError
from protocol.handshake import PROTOCOL_VERSION, Hello, Refused, Role, Welcome
from protocol.load import Dying
from router.scheduling.events import Child, ExitReason, ExitReport
from router.supervision import exits, ladder
from router.supervision.childlog import ChildLog
from router.supervision.process import ChildProcess, Command
from router.supervision.runtime import RuntimeFolder
from router.transport.link import ChildGone, Link

log = logging.getLogger("llamaherd.supervision")

LAST_WORDS = 0.25
"""Seconds that the frames of a dead child may take to arrive before its exit is told without them."""
SETTLE_POLL = 0.002
REFUSAL_GRACE = 5.0
"""Seconds that a refused child has to end by itself."""


class Listener(Protocol):
    """Hears of the children that were spawned for it. Every call is made on the event loop and must not block."""

    def connected(self, child: Child) -> None:
        """Its `Hello` was accepted: it may be sent to."""

    def received(self, child: Child, message: codec.FromChild) -> None:
        """A message, in the order of sending; none comes before `connected` or behind `exited`."""

    def exited(self, child: Child, report: ExitReport) -> None:
        """It has been reaped."""

    def stuck(self, child: Child) -> None:
        """It has not been reaped long after SIGKILL; `exited` may still come."""


class _Ward:
    """One child from its spawn until it is reaped."""

    def __init__(
        self, child: Child, role: Role, process: ChildProcess, link: Link, listener: Listener, log: ChildLog
    ) -> None:
        self.child = child
        self.role = role
        self.process = process
        self.listener = listener
        self.log = log
        self.ended = asyncio.Event()
        self.connected = False
        self.asked: ExitReason | None = None
        self.dying: Dying | None = None
        self.code = 0
        self.oom_kills_before = exits.count_oom_kills()
        self.since = time.monotonic()
        self.stopping: asyncio.Task[None] | None = None
        self._link = link

    def ask_to_stop(self) -> bool:
        if not self.connected:
            return False
        try:
            self._link.send(self.child, Shutdown())
        except ChildGone:
            return False
        return True

    def signal(self, number: signal.Signals) -> None:
        if not self.ended.is_set():
            self.process.signal(number)


class Nursery:
    """Spawns children and tells each one's listener what becomes of it."""

    def __init__(self, runtime: RuntimeFolder, link_over_tcp: bool = False) -> None:
        self._runtime = runtime
        self._over_tcp = link_over_tcp
        self._link = Link(self._received, self._violated)
        self._wards: dict[Child, _Ward] = {}
        self._logs: dict[str, ChildLog] = {}

    def open(self) -> None:
        """Start to listen, on the running loop."""
        over_tcp = self._over_tcp or not self._runtime.fits_socket
        self._link.bind(None if over_tcp else self._runtime.path)

    def spawn(
        self,
        child: Child,
        command: Command,
        listener: Listener,
        secrets: tuple[tuple[str, str], ...] = (),
    ) -> int:
        """Start a child; returns its process id. Raises `OSError`."""
        bootstrap = self._link.expect(child, secrets)
        try:
            process = ChildProcess(command, bootstrap)
        except OSError:
            self._link.forget(child)
            raise
        child_log = ChildLog(str(child))
        ward = _Ward(child, command.role, process, self._link, listener, child_log)
        self._wards[child] = ward
        self._logs[child.name] = child_log
        child_log.open(process.output)
        asyncio.get_running_loop().add_reader(process.pidfd, self._ended, ward)
        self._runtime.note(child, process.pid)
        log.debug("spawned %s as process %d", child, process.pid)
        return process.pid

    def send(self, child: Child, message: codec.ToChild) -> None:
        """Send to a connected child. Raises `ChildGone`."""
        self._link.send(child, message)

    def pid(self, child: Child) -> int:
        """Its process id, 0 once it has been reaped."""
        ward = self._wards.get(child)
        return ward.process.pid if ward else 0

    def log_of(self, name: str) -> ChildLog | None:
        """The output of the newest incarnation in a place, dead or alive."""
        return self._logs.get(name)

    def children(self) -> tuple[Child, ...]:
        """Those that are not reaped."""
        return tuple(self._wards)

    def stop(self, child: Child, reason: ExitReason, budget: float) -> None:
        """Walk the ladder: `budget` seconds for an end by itself, then signals. Its listener hears of the end."""
        ward = self._wards.get(child)
        if ward is not None and ward.stopping is None:
            self._climb(ward, reason, ladder.stop_budgets(budget))

    def kill(self, child: Child, reason: ExitReason, dump: bool = False) -> None:
        """End a child at once, also one that is being stopped gently. `dump` lets it write its stacks before."""
        ward = self._wards.get(child)
        if ward is not None:
            self._climb(ward, reason, ladder.kill_budgets(dump))

    async def close(self, budget: float) -> None:
        """Stop all that are left, in parallel, and stop listening. What is stuck in the kernel is left behind."""
        for child, ward in list(self._wards.items()):
            if ward.stopping is None:
                self.stop(child, ExitReason.ROUTER_STOPPING, budget)
        climbing = [ward.stopping for ward in self._wards.values() if ward.stopping is not None]
        await asyncio.gather(*climbing)
        # An ended child is told of a moment later; its listener must hear of it before the loop ends.
        for ward in list(self._wards.values()):
            if ward.ended.is_set():
                self._tell_exit(ward)
        for child in self._wards:
            log.error("%s is stuck in the kernel and is left behind", child)
        self._link.close()

    def _climb(self, ward: _Ward, reason: ExitReason, budgets: ladder.Budgets) -> None:
        if ward.ended.is_set():
            return
        if ward.stopping is not None:
            ward.stopping.cancel()
        ward.asked = ward.asked or reason
        ward.stopping = asyncio.get_running_loop().create_task(
            self._run_ladder(ward, budgets), name=f"stop {ward.child}"
        )

    async def _run_ladder(self, ward: _Ward, budgets: ladder.Budgets) -> None:
        rung = await ladder.climb(ward, budgets)
        if rung is ladder.Rung.STUCK:
            log.error("%s is not reaped %g s after SIGKILL", ward.child, budgets.kill)
            ward.listener.stuck(ward.child)
        else:
            # Nobody can ask a child that has not connected: a signal is the usual way to end it.
            usual = ladder.Rung.MESSAGE if ward.connected else ladder.Rung.TERM
            level = logging.DEBUG if rung <= usual else logging.WARNING
            log.log(level, "%s ended at rung %s", ward.child, rung.name.lower())

    # The end of a process

    def _ended(self, ward: _Ward) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(ward.process.pidfd)
        ward.code = ward.process.reap()
        ward.log.close()
        ward.ended.set()
        self._await_last_words(ward, loop.time() + LAST_WORDS)

    def _await_last_words(self, ward: _Ward, deadline: float) -> None:
        """Tell the exit once every frame has come that the child sent before it."""
        loop = asyncio.get_running_loop()
        if self._link.is_silent(ward.child) or loop.time() >= deadline:
            self._tell_exit(ward)
        elif ward.child in self._wards:
            loop.call_later(SETTLE_POLL, self._await_last_words, ward, deadline)

    def _tell_exit(self, ward: _Ward) -> None:
        if self._wards.pop(ward.child, None) is None:
            return
        self._link.forget(ward.child)
        self._runtime.strike(ward.child)
        ending = exits.Ending(
            ward.code, ward.log.lines, ward.asked, ward.dying, exits.count_oom_kills() - ward.oom_kills_before
        )
        report = exits.report(ending)
        log.info("%s ended: %s, %s", ward.child, report.reason, report.message)
        ward.listener.exited(ward.child, report)

    # What children say

    def _received(self, child: Child, message: codec.FromChild) -> None:
        ward = self._wards.get(child)
        if ward is None:
            return
        if isinstance(message, Hello):
            self._greet(ward, message)
        elif not ward.connected:
            self._violated(child, ProtocolViolation(str(child), f"{type(message).__name__} before Hello"))
        elif isinstance(message, Dying):
            ward.dying = message
        else:
            ward.listener.received(child, message)

    def _greet(self, ward: _Ward, hello: Hello) -> None:
        if hello.protocol_version != PROTOCOL_VERSION:
            words = f"it speaks protocol {hello.protocol_version}, the router speaks {PROTOCOL_VERSION}"
            ward.dying = Dying(WireError(ErrorKind.UNAVAILABLE, words), ExitCode.REFUSED)
            self._link.send(ward.child, Refused(words))
            asyncio.get_running_loop().call_later(REFUSAL_GRACE, self.kill, ward.child, ExitReason.CRASHED)
            return
        if ward.connected or hello.role != ward.role:
            detail = "a second Hello" if ward.connected else f"it is a {hello.role}, not a {ward.role}"
            self._violated(ward.child, ProtocolViolation(str(ward.child), detail))
            return
        ward.connected = True
        self._link.send(ward.child, Welcome(PROTOCOL_VERSION))
        log.debug("%s said hello after %.2f s", ward.child, time.monotonic() - ward.since)
        ward.listener.connected(ward.child)

    def _violated(self, child: Child, violation: ProtocolViolation) -> None:
        """A child that does not keep to the protocol is a crashed one."""
        ward = self._wards.get(child)
        if ward is None or ward.asked is not None:
            return
        log.error("protocol violation by %s", violation)
        ward.dying = Dying(WireError(ErrorKind.INTERNAL, f"protocol violation by {violation}"), ExitCode.CRASH)
        self.kill(child, ExitReason.CRASHED)

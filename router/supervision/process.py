"""One child process: started from the main thread, in a session and process group of its own, reaped by the caller."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from protocol.bootstrap import Bootstrap, bootstrap_line
from protocol.handshake import Role

OOM_SCORE_ABOVE_ROUTER = 500
"""The kernel, short of memory, takes a child before the router."""


class Command(Struct, frozen=True):
    """How to start a child: what to run and with which environment."""

    role: Role
    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]


def python_command(role: Role, environment: Mapping[str, str], prefix: Sequence[str] = ()) -> Command:
    """The command of a role's own package. `-P` keeps the current folder from shadowing it."""
    return Command(role, (*prefix, sys.executable, "-P", "-m", role), tuple(sorted(environment.items())))


class ChildProcess:
    """A process that was started and is not reaped yet.

    `output` is the read end of its standard output and error, not blocking; `pidfd` becomes readable when it ends.
    Both belong to whoever watches them, `close` gives back the rest.
    """

    def __init__(self, command: Command, bootstrap: Bootstrap) -> None:
        """Start it. Raises `OSError` when the system does not let us."""
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("the kernel's parent-death signal follows the forking thread: start from the main one")
        self.output, write_end = os.pipe()
        try:
            self._popen = subprocess.Popen(
                command.argv,
                stdin=subprocess.PIPE,
                stdout=write_end,
                stderr=write_end,
                env=dict(command.environment),
                # Out of reach of the terminal's Ctrl-C, but in our session: where Linux shares the cores out among
                # sessions, a child's niceness would else mean nothing between it and its siblings.
                process_group=0,
                bufsize=0,
            )
        except OSError:
            os.close(self.output)
            raise
        finally:
            os.close(write_end)
        os.set_blocking(self.output, False)
        self.pid = self._popen.pid
        try:
            self.pidfd = os.pidfd_open(self.pid)
        except OSError:  # no descriptor left: a child that cannot be watched must not live
            self._abandon()
            raise
        self._greet(bootstrap)
        self._expose_to_oom_killer()

    def signal(self, number: signal.Signals) -> None:
        """Signal the whole process group; harmless when it is empty. Only before `reap`."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def reap(self) -> int:
        """Collect the exit code, negative for a signal, once `pidfd` is readable.

        What is left of the group is killed before: until the leader is reaped its number cannot be anybody else's.
        """
        self.signal(signal.SIGKILL)
        code = self._popen.wait()
        self.close_input()
        os.close(self.pidfd)
        return code

    def close_input(self) -> None:
        """Close the pipe that tells the child we live."""
        if self._popen.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._popen.stdin.close()

    def _abandon(self) -> None:
        self._popen.kill()
        self._popen.wait()
        self.close_input()
        os.close(self.output)

    def _greet(self, bootstrap: Bootstrap) -> None:
        assert self._popen.stdin is not None
        # A child that is gone already is found out through its pidfd.
        with contextlib.suppress(BrokenPipeError):
            self._popen.stdin.write(bootstrap_line(bootstrap))

    def _expose_to_oom_killer(self) -> None:
        path = Path(f"/proc/{self.pid}/oom_score_adj")
        with contextlib.suppress(OSError):  # not Linux, or the child is gone
            own = int(Path("/proc/self/oom_score_adj").read_text())
            path.write_text(str(min(1000, own + OOM_SCORE_ABOVE_ROUTER)))

"""Runs a command and, while it is silent, says every so often that it is still at work.

    python announce.py "compiling" [--every SECONDS] -- command argument…

The command's output goes through unchanged and its exit code is ours. On a terminal the sign of life is one line that
is rewritten; elsewhere each is a line of its own. Only the standard library, so that any Python can run it.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import IO

INTERVAL = 15.0


def elapsed(seconds: float) -> str:
    """`75` is `1m15s`."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest:02}s" if minutes else f"{rest}s"


class Announcer:
    """Signs of life on one stream, kept apart from the command's own output."""

    def __init__(self, what: str, stream: IO[str]) -> None:
        self._what = what
        self._stream = stream
        self._terminal = stream.isatty()
        self._begun = time.monotonic()
        self._shown = False

    def sign(self) -> None:
        text = f"... {self._what}: {elapsed(time.monotonic() - self._begun)}"
        if self._terminal:
            print(f"\r{text}\033[K", end="", file=self._stream, flush=True)
            self._shown = True
        else:
            print(text, file=self._stream, flush=True)

    def clear(self) -> None:
        """Take the rewritten line away before something else is printed."""
        if self._shown:
            print("\r\033[K", end="", file=self._stream, flush=True)
            self._shown = False


def run(what: str, command: Sequence[str], every: float = INTERVAL) -> int:
    """Run a command to its end. The exit code is the command's, 128 + N for signal N, 127 if it cannot be started."""
    announcer = Announcer(what, sys.stderr)
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except OSError as error:
        print(f"cannot run {command[0]}: {error.strerror}", file=sys.stderr)
        return 127
    assert process.stdout is not None
    assert process.stderr is not None
    # An interrupt from the terminal reaches the command as well: wait for its end instead of dying before it.
    previous = _ignore_interrupts()
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ, sys.stdout)
        selector.register(process.stderr, selectors.EVENT_READ, sys.stderr)
        while selector.get_map():
            ready = selector.select(every)
            if not ready:
                announcer.sign()
            for key, _ in ready:
                data = os.read(key.fd, 65536)
                if not data:
                    selector.unregister(key.fileobj)
                    continue
                announcer.clear()
                key.data.buffer.write(data)
                key.data.flush()
    while process.poll() is None:
        try:
            process.wait(every)
        except subprocess.TimeoutExpired:
            announcer.sign()
    announcer.clear()
    if previous is not None:
        signal.signal(signal.SIGINT, previous)
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def _ignore_interrupts() -> signal.Handlers | None:
    """Signals can be set in the main thread only; elsewhere there is nothing to ignore."""
    if threading.current_thread() is not threading.main_thread():
        return None
    previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
    return previous if isinstance(previous, signal.Handlers) else signal.SIG_DFL


def main(arguments: Sequence[str]) -> int:
    if "--" not in arguments:
        print(__doc__, file=sys.stderr)
        return 2
    split = list(arguments).index("--")
    options, command = list(arguments[:split]), list(arguments[split + 1 :])
    every = INTERVAL
    if "--every" in options:
        at = options.index("--every")
        every = float(options[at + 1])
        del options[at : at + 2]
    if len(options) != 1 or not command:
        print(__doc__, file=sys.stderr)
        return 2
    return run(options[0], command, every)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

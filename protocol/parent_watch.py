"""Ends a child when its router is gone, in whatever way the router went and whatever the child is doing.

Three nets, because each has a hole: the kernel's parent-death signal follows the thread that forked and is cleared
by some exec calls; the parent can be gone before the signal is set; a pipe's EOF needs a thread of ours to run.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading

from protocol.errors import ExitCode

_PR_SET_PDEATHSIG = 1


def _exit_now() -> None:
    # No clean-up: a load in progress would hold it up, and nobody is left to read the result.
    os._exit(ExitCode.PARENT_GONE)


def die_with_parent(parent: int) -> None:
    """Ask the kernel for SIGKILL at the parent's end, then check that `parent` (a process id, 0 = unknown) still lives.

    Does nothing but the check where the kernel has no such call.
    """
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if parent and os.getppid() != parent:
        _exit_now()


def watch_parent(fd: int) -> threading.Thread:
    """Start the thread that ends this process with `ExitCode.PARENT_GONE` at EOF on `fd`, the bootstrap pipe."""

    def wait_for_eof() -> None:
        while os.read(fd, 4096):
            pass
        _exit_now()

    thread = threading.Thread(target=wait_for_eof, name="parent-watch", daemon=True)
    thread.start()
    return thread

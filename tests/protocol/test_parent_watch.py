"""A child ends with its parent, whichever way the parent goes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from protocol.errors import ExitCode
from tests.eventually import eventually

WATCHER = """
import os, sys, threading
from protocol.parent_watch import die_with_parent, watch_parent
die_with_parent(int(sys.argv[1]))
watch_parent(0)
print(os.getpid(), flush=True)
threading.Event().wait()
"""


def start(parent: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WATCHER, str(parent)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def finish(child: subprocess.Popen[str]) -> int:
    code = child.wait(10)
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            pipe.close()
    return code


def test_eof_ends_the_child() -> None:
    child = start(os.getpid())
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdout.readline()
    child.stdin.write("more\n")
    child.stdin.close()
    assert finish(child) == ExitCode.PARENT_GONE


def test_a_parent_that_is_gone_already_ends_the_child() -> None:
    assert finish(start(parent=1 << 22)) == ExitCode.PARENT_GONE


def test_the_kernel_ends_the_child_whose_pipe_is_held_open() -> None:
    """The middle process dies by SIGKILL, but the write end of the pipe lives on in this test."""
    middle_code = f"""
import os, subprocess, sys, threading
child = subprocess.Popen([sys.executable, "-c", {WATCHER!r}, str(os.getpid())], stdin=0, stdout=1)
threading.Event().wait()
"""
    middle = subprocess.Popen(
        [sys.executable, "-c", middle_code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert middle.stdout is not None
    grandchild = int(middle.stdout.readline())
    watch = os.pidfd_open(grandchild)
    os.kill(middle.pid, signal.SIGKILL)
    assert finish_held_open(middle, grandchild, watch) == -signal.SIGKILL


def finish_held_open(middle: subprocess.Popen[str], grandchild: int, watch: int) -> int:
    try:
        eventually(lambda: not os.path.exists(f"/proc/{grandchild}/fd/0"), 5, "the grandchild is gone")
        return middle.wait(10)
    finally:
        os.close(watch)
        for pipe in (middle.stdin, middle.stdout):
            if pipe is not None:
                pipe.close()

"""`python -P -m worker`: a worker process. Its standard input is the router's bootstrap pipe."""

from __future__ import annotations

import faulthandler
import importlib.metadata
import logging
import os
import signal
import sys

from protocol.bootstrap import read_bootstrap
from protocol.channel import Channel, ConnectionLost, RefusedByRouter
from protocol.errors import ExitCode, ProtocolViolation
from protocol.garbage import quiet_collection
from protocol.handshake import PROTOCOL_VERSION, Hello
from protocol.parent_watch import die_with_parent, watch_parent
from worker.held import HeldRequests
from worker.llama_backend import start_backend
from worker.llama_log import EngineLog
from worker.service import Worker
from worker.status import StatusBoard
from worker.step_watch import StepWatch

SWITCH_INTERVAL = 0.0001
"""Seconds: each small call into the engine gives the interpreter away, and must get it back at once."""
LINGER = 2.0
"""Seconds for the last frames to leave."""


def main() -> ExitCode:
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is the router's business
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    bootstrap = read_bootstrap(sys.stdin.fileno())
    die_with_parent(bootstrap.parent)
    watch_parent(sys.stdin.fileno())
    sys.setswitchinterval(SWITCH_INTERVAL)
    log = EngineLog()
    log.install()
    start_backend()
    held = HeldRequests()
    watch = StepWatch()
    board = StatusBoard(lambda: (*held.all(), *channel.work.requests()))
    hello = Hello(PROTOCOL_VERSION, importlib.metadata.version("llamaherd"), os.getpid(), "worker")
    channel = Channel(bootstrap, hello, board.snapshot, seen=watch.seen)
    try:
        channel.start()
    except RefusedByRouter as refusal:
        logging.error("refused by the router: %s", refusal)
        return ExitCode.REFUSED
    except ConnectionLost as loss:
        logging.error("%s", loss)
        return ExitCode.CONNECTION_LOST
    quiet_collection()
    try:
        return Worker(channel, board, held, watch, log).run()
    except ProtocolViolation as violation:
        logging.error("%s", violation)
        return ExitCode.CRASH
    finally:
        channel.close(LINGER)


if __name__ == "__main__":
    code = main()
    # Threads of the engine and of preparation may be anywhere: nothing of theirs must run at the interpreter's end.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)

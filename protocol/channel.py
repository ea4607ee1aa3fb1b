"""The child's side of the wire: one DEALER socket, one I/O thread that owns it, two lanes for what arrives."""

from __future__ import annotations

import logging
import os
import select
import threading
from collections import deque
from collections.abc import Callable
from typing import TypeAlias, cast, get_args

import zmq
from zmq.utils.monitor import recv_monitor_message

from protocol import codec, download
from protocol.bootstrap import Bootstrap
from protocol.control import Cancel, QueryStatus
from protocol.errors import ErrorKind, ExitCode, ProtocolViolation, WireError
from protocol.generate import Failed
from protocol.handshake import Hello, Refused, Welcome
from protocol.lanes import Lane, WorkLane
from protocol.load import Dying
from protocol.status import UpdateStatus

WELCOME_TIMEOUT = 30.0
"""Seconds that a router has for its answer to `Hello`."""

ControlMessage: TypeAlias = codec.Control | download.ToDownloader

logger = logging.getLogger(__name__)
_WORK = frozenset(get_args(codec.Work))
_LAST_WORDS_MS = 1000
_LOST = (
    zmq.EVENT_DISCONNECTED
    | zmq.EVENT_CLOSED
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)


class RefusedByRouter(Exception):
    """The router does not accept this child; end with `ExitCode.REFUSED`."""


class ConnectionLost(Exception):
    """The router cannot be reached; end with `ExitCode.CONNECTION_LOST`."""


def _end_process(code: ExitCode) -> None:
    # The threads that read the lanes may sit in a C call for minutes: nothing gentler ends them in time.
    os._exit(code)


class Channel:
    """Carries messages between the threads of a child and the router.

    `status(nonce)` is called on the I/O thread to answer a `QueryStatus`; it must not block. `end(code)` is called
    there when the child may not go on (connection lost, a violation by the router, a fault in `status`); it ends the
    process unless a test passes something milder. `seen(message)` is called there for each control message, once it is
    in its lane, for what cannot wait until the lane is read; it must not block either.
    """

    def __init__(
        self,
        bootstrap: Bootstrap,
        hello: Hello,
        status: Callable[[int], UpdateStatus],
        end: Callable[[ExitCode], None] = _end_process,
        seen: Callable[[ControlMessage], None] | None = None,
    ) -> None:
        self.control: Lane[ControlMessage] = Lane()
        self.work: WorkLane[codec.Work] = WorkLane()
        self._bootstrap = bootstrap
        self._hello = hello
        self._status = status
        self._end = end
        self._seen = seen
        self._outgoing: deque[bytes] = deque()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._roused = False
        self._closing = False
        self._linger_ms = 0
        self._settled = threading.Event()
        self._refusal: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="channel", daemon=True)

    def start(self, timeout: float = WELCOME_TIMEOUT) -> None:
        """Connect, say `Hello` and wait for `Welcome`.

        Raises `RefusedByRouter`, or `ConnectionLost` when no answer comes within `timeout` seconds.
        """
        self.send(self._hello)
        self._thread.start()
        if not self._settled.wait(timeout):
            self._refusal = ConnectionLost(f"no answer to Hello within {timeout:g} s")
        if self._refusal is not None:
            self.close(linger=0.0)
            raise self._refusal

    def send(self, message: codec.FromChild) -> None:
        """Queue a message from any thread; it is encoded here, so that the I/O thread stays free."""
        self._outgoing.append(codec.encode(message))
        self._rouse()

    def _rouse(self) -> None:
        # The I/O thread lowers the flag before it empties the queue: whoever finds it up has queued soon enough. Two
        # threads may both find it down, which wakes the I/O thread once in vain.
        if not self._roused:
            self._roused = True
            os.eventfd_write(self._wake, 1)

    def close(self, linger: float) -> None:
        """Send what is queued, for at most `linger` seconds, and give the socket back. Nothing may be sent after it."""
        if self._closing:
            return
        self._linger_ms = round(linger * 1000)
        self._closing = True
        self._rouse()
        if self._thread.ident is not None:
            self._thread.join()
        os.close(self._wake)

    # Everything below runs on the I/O thread.

    def _run(self) -> None:
        context = zmq.Context()
        try:
            self._serve(context)
        except ConnectionLost as error:
            self._give_up(error, ExitCode.CONNECTION_LOST)
        except ProtocolViolation as error:
            self._give_up(error, ExitCode.CRASH)
        except Exception as error:
            logger.exception("the channel failed")
            self._give_up(error, ExitCode.CRASH)
        finally:
            context.term()

    def _give_up(self, error: Exception, code: ExitCode) -> None:
        if self._closing:
            return
        if self._settled.is_set():
            logger.error("%s", error)
            self._end(code)
        else:
            self._refusal = error
            self._settled.set()

    def _serve(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        socket = context.socket(zmq.DEALER)
        monitor = socket.get_monitor_socket(_LOST)
        try:
            self._connect(socket)
            # Not ZeroMQ's own poll, which asks the kernel a dozen times for each message. The price: a descriptor only
            # tells of what comes after its socket was found empty, so each is read to the end before the next wait.
            poller = select.poll()
            watched = monitor.FD
            for descriptor in (socket.FD, watched, self._wake):
                poller.register(descriptor, select.POLLIN)
            self._watch(monitor)
            while not self._closing:
                ready = {descriptor for descriptor, _ in poller.poll()}
                if self._wake in ready:
                    self._clear_wake()
                self._flush(socket)
                self._receive(socket)
                if watched in ready:
                    self._watch(monitor)
            self._flush(socket)
        except ProtocolViolation as violation:
            error = WireError(ErrorKind.INTERNAL, str(violation))
            socket.send(codec.encode(Dying(error, ExitCode.CRASH)), zmq.NOBLOCK)
            self._linger_ms = _LAST_WORDS_MS
            raise
        finally:
            socket.disable_monitor()
            monitor.close(0)
            socket.close(self._linger_ms)

    def _connect(self, socket: zmq.Socket[bytes]) -> None:
        socket.set(zmq.ROUTING_ID, self._bootstrap.identity)
        socket.set(zmq.SNDHWM, 0)
        socket.set(zmq.RCVHWM, 0)
        socket.set(zmq.RECONNECT_IVL, -1)
        # Set before connecting: a session that ends by itself (failed handshake) would linger for ever otherwise.
        socket.set(zmq.LINGER, 0)
        keys = self._bootstrap.curve
        if keys is not None:
            socket.set(zmq.CURVE_SERVERKEY, keys.server_public.encode())
            socket.set(zmq.CURVE_PUBLICKEY, keys.public.encode())
            socket.set(zmq.CURVE_SECRETKEY, keys.secret.encode())
        socket.connect(self._bootstrap.address)

    def _watch(self, monitor: zmq.Socket[bytes]) -> None:
        if monitor.poll(0):
            event = recv_monitor_message(monitor)["event"]
            raise ConnectionLost(f"connection to the router lost ({zmq.Event(event)!r})")

    def _clear_wake(self) -> None:
        os.eventfd_read(self._wake)
        self._roused = False

    def _flush(self, socket: zmq.Socket[bytes]) -> None:
        while self._outgoing:
            try:
                socket.send(self._outgoing[0], zmq.NOBLOCK)
            except zmq.Again as error:
                # Without a high-water mark there is only one reason for it: the pipe is gone.
                raise ConnectionLost("connection to the router lost") from error
            self._outgoing.popleft()

    def _receive(self, socket: zmq.Socket[bytes]) -> None:
        while True:
            try:
                frame = socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._sort(codec.decode_to_child(frame))

    def _sort(self, message: codec.ToChild) -> None:
        if type(message) in _WORK:
            self.work.push(cast(codec.Work, message))
        elif isinstance(message, QueryStatus):
            self.send(self._status(message.nonce))
        elif isinstance(message, Cancel):
            if self.work.remove(message.request):
                self.send(Failed(message.request, WireError(ErrorKind.CANCELLED, "cancelled while it waited")))
            self._push_control(message)
        elif isinstance(message, Welcome):
            self._settled.set()
        elif isinstance(message, Refused):
            self._refusal = RefusedByRouter(message.reason)
            self._settled.set()
        else:
            self._push_control(cast(ControlMessage, message))

    def _push_control(self, message: ControlMessage) -> None:
        self.control.push(message)
        if self._seen is not None:
            self._seen(message)

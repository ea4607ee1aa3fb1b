"""The router's end of the wire: one ROUTER socket, read on the event loop without a thread of its own."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import cast

import zmq

from protocol import codec
from protocol.bootstrap import Bootstrap, CurveKeys, identity_of
from protocol.control import QueryStatus
from protocol.errors import ProtocolViolation
from router.scheduling.events import Child

logger = logging.getLogger(__name__)

DRAIN_LIMIT = 500
"""Frames handled in one go before the event loop gets a turn."""

# Plain numbers: arithmetic with enumerations costs as much as sending a frame.
_NOW = int(zmq.NOBLOCK)
_MORE = int(zmq.NOBLOCK | zmq.SNDMORE)
_READABLE = int(zmq.POLLIN)


class ChildGone(Exception):
    """The child has no connection: it never said `Hello`, or it has ended."""


class Link:
    """Sends to and hears from the children that are expected; everything else is dropped.

    `on_message(child, message)` gets each frame of an expected child, `on_violation(child, violation)` each that does
    not parse. Both run on the event loop and must not block.
    """

    def __init__(
        self,
        on_message: Callable[[Child, codec.FromChild], None],
        on_violation: Callable[[Child, ProtocolViolation], None],
    ) -> None:
        self.address = ""
        self._on_message = on_message
        self._on_violation = on_violation
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.set(zmq.ROUTER_MANDATORY, 1)
        self._socket.set(zmq.SNDHWM, 0)
        self._socket.set(zmq.RCVHWM, 0)
        self._socket.set(zmq.LINGER, 0)
        self._fd = cast(int, self._socket.get(zmq.FD))
        self._loop: asyncio.AbstractEventLoop | None = None
        self._children: dict[bytes, Child] = {}
        self._server_public = ""
        self._path: Path | None = None
        self._draining = False
        self._drain_asked = False

    def bind(self, runtime_dir: Path | None) -> None:
        """Listen: on an ipc socket in `runtime_dir`, or, with None or without ipc, on loopback TCP under CURVE."""
        if runtime_dir is None or not zmq.has("ipc"):
            # Without the server's public key nobody completes a handshake, and only our children are told it.
            public, secret = zmq.curve_keypair()
            self._server_public = public.decode()
            self._socket.set(zmq.CURVE_SERVER, 1)
            self._socket.set(zmq.CURVE_SECRETKEY, secret)
            self._socket.bind("tcp://127.0.0.1:*")
        else:
            self._path = runtime_dir / "link.sock"
            self._socket.bind(f"ipc://{self._path}")
        self.address = cast(bytes, self._socket.get(zmq.LAST_ENDPOINT)).rstrip(b"\0").decode()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._fd, self._drain)
        self._ask_drain()

    def expect(self, child: Child, secrets: tuple[tuple[str, str], ...] = ()) -> Bootstrap:
        """From now on hear this incarnation; what to tell it on its standard input."""
        self._children[identity_of(child.name, child.epoch)] = child
        curve = None
        if self._server_public:
            public, secret = zmq.curve_keypair()
            curve = CurveKeys(self._server_public, public.decode(), secret.decode())
        return Bootstrap(self.address, child.name, child.epoch, os.getpid(), curve, secrets)

    def forget(self, child: Child) -> None:
        """Drop whatever this incarnation may still send."""
        self._children.pop(identity_of(child.name, child.epoch), None)

    def send(self, child: Child, message: codec.ToChild) -> None:
        """Send now, without waiting. Raises `ChildGone`."""
        try:
            self._socket.send(identity_of(child.name, child.epoch), _MORE)
            self._socket.send(codec.encode(message), _NOW)
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                raise
            raise ChildGone(str(child)) from error
        finally:
            # The descriptor is edge-triggered: a send may swallow the edge of a frame that arrived meanwhile.
            self._ask_drain()

    def is_silent(self, child: Child) -> bool:
        """Whether everything has been delivered that a child sent whose process has ended."""
        if self._loop is None:
            return True
        try:
            self.send(child, QueryStatus(0))
        except ChildGone:
            # The socket lets go of a peer behind its last frame: what there is can be read now.
            while self._drain():
                pass
            return True
        return False

    def close(self) -> None:
        """Stop listening and remove the socket file. The children are gone by now, or will go for it."""
        if self._loop is not None:
            self._loop.remove_reader(self._fd)
            self._loop = None
        self._socket.close()
        self._context.term()
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _ask_drain(self) -> None:
        if self._loop is not None and not self._drain_asked and not self._draining:
            self._drain_asked = True
            self._loop.call_soon(self._drain)

    def _drain(self) -> bool:
        """Deliver what has arrived, within the limit. Says whether there may be more."""
        self._drain_asked = False
        if self._loop is None or self._draining or not cast(int, self._socket.get(zmq.EVENTS)) & _READABLE:
            return False
        self._draining = True
        exhausted = False
        try:
            for _ in range(DRAIN_LIMIT):
                try:
                    identity, *frames = self._socket.recv_multipart(zmq.NOBLOCK)
                except zmq.Again:
                    exhausted = True
                    return False
                self._deliver(identity, frames)
        finally:
            self._draining = False
            if not exhausted:
                self._ask_drain()
        return True

    def _deliver(self, identity: bytes, frames: list[bytes]) -> None:
        child = self._children.get(identity)
        if child is None:
            logger.debug("dropped a frame of %r, which is not expected", identity)
            return
        try:
            if len(frames) != 1:
                raise ProtocolViolation(str(child), f"{len(frames)} frames instead of one")
            message = codec.decode_from_child(frames[0], str(child))
        except ProtocolViolation as violation:
            self._on_violation(child, violation)
            return
        self._on_message(child, message)

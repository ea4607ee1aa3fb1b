"""llama.cpp's log: written to standard error line by line, with the newest lines kept for error messages."""

from __future__ import annotations

import ctypes
import os
import re
import threading
from collections import deque

import llama_cpp

from protocol.status import DeviceMemory

KEPT_LINES = 200
_DEBUG, _ERROR = 1, 4
"""Levels in the engine's own numbering."""
_CONTINUED = 5
_STDERR = 2
PROJECTOR = 1
"""What the engine gives back with the lines of a projector: its buffers are not those of the model's context."""
_installed: list[object] = []
_ENCODER = re.compile(r"CLIP using (\S+) backend")
_ENCODER_SIZE = re.compile(r"model size:\s+([\d.]+) MiB")
_BUFFER = re.compile(r"(\S+)\s+(model|KV|RS|compute|output)\s+buffer size\s*=\s*([\d.]+) MiB")


class _Thread(threading.local):
    """What one thread has logged: the beginning of a line that is not complete, its level, and errors."""

    def __init__(self) -> None:
        self.partial = ""
        self.level = 0
        self.errors: deque[str] = deque(maxlen=KEPT_LINES)


class EngineLog:
    """Takes over the engine's log for the life of the process. One per process.

    The engine calls from several threads, and a line may come in several pieces.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread = _Thread()
        self._buffers: dict[tuple[str, str], int] = {}
        self._encoder_device = "host"
        self.callback = llama_cpp.llama_log_callback(self._take)

    def install(self) -> None:
        llama_cpp.llama_log_set(self.callback, ctypes.c_void_p(0))
        # The engine goes on calling it after this object is forgotten; the one before is safe to drop only now.
        _installed[:] = [self.callback]

    def forget_buffers(self) -> None:
        """A load begins: what earlier ones have allocated is gone."""
        with self._lock:
            self._buffers.clear()

    def buffers(self) -> tuple[DeviceMemory, ...]:
        """The buffers of the present load, by device; the engine tells their sizes nowhere else."""
        with self._lock:
            sizes = dict(self._buffers)
        found = []
        for device in dict.fromkeys(device for device, _ in sizes):
            of = {kind: size for (name, kind), size in sizes.items() if name == device}
            found.append(
                DeviceMemory(
                    device=device,
                    weights=of.get("model", 0) + of.get("encoder", 0),
                    context=of.get("KV", 0) + of.get("RS", 0),
                    compute=of.get("compute", 0) + of.get("output", 0) + of.get("projector", 0),
                )
            )
        return tuple(found)

    def forget_errors(self) -> None:
        """Begin afresh, so that `errors` speaks of what this thread does next."""
        self._thread.errors.clear()

    def errors(self) -> list[str]:
        """The newest error lines of this thread, oldest first, without their line breaks."""
        return list(self._thread.errors)

    def _take(self, level: int, text: bytes, source: int | None) -> None:
        thread = self._thread
        if level != _CONTINUED:
            thread.level = level
        lines = (thread.partial + text.decode("utf-8", "replace")).split("\n")
        thread.partial = lines.pop()
        with self._lock:
            for line in lines if thread.level != _DEBUG else ():
                if thread.level == _ERROR and line.strip():
                    thread.errors.append(line.strip())
                elif buffer := _BUFFER.search(line):
                    self._count_buffer(buffer, source == PROJECTOR)
                elif source == PROJECTOR:
                    self._count_encoder(line)
                _write(line)

    def _count_encoder(self, line: str) -> None:
        """A projector says which device it is on, then how large each of its encoders is."""
        if device := _ENCODER.search(line):
            self._encoder_device = _device(device[1])
        elif size := _ENCODER_SIZE.search(line):
            key = (self._encoder_device, "encoder")
            self._buffers[key] = self._buffers.get(key, 0) + _bytes(size[1])

    def _count_buffer(self, match: re.Match[str], of_projector: bool) -> None:
        name, kind, mebibytes = match.groups()
        if of_projector:
            kind = "projector"
        key = (_device(name), kind)
        # A compute buffer is announced again whenever it is reserved anew; the others are further buffers.
        size = _bytes(mebibytes)
        self._buffers[key] = size if kind in ("compute", "projector") else self._buffers.get(key, 0) + size


def _device(name: str) -> str:
    """The device of a buffer or backend of the engine: all of main memory is one."""
    return "host" if name.startswith(("CPU", "AMX")) or name.endswith("_Host") else name


def _bytes(mebibytes: str) -> int:
    return round(float(mebibytes) * (1 << 20))


def _write(line: str) -> None:
    data = (line + "\n").encode()
    while data:
        data = data[os.write(_STDERR, data) :]

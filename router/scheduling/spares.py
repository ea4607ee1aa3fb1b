"""Keeps warm workers without a model, so that a swap costs the load and nothing more."""

from __future__ import annotations

from router.scheduling import forecast
from router.scheduling.events import ExitReason
from router.scheduling.ledger import Ledger
from router.scheduling.states import PROMISED
from router.scheduling.workers import dismiss, spares, spawn


def refill(ledger: Ledger) -> None:
    """Start a process for each model whose room is being vacated; keep the spares at their number besides.

    After a swap the refill waits for its first answer, and for any load. What the spares are told waits until nothing
    computes: to read a vocabulary meanwhile would cost a running answer a quarter of its speed.
    """
    present = spares(ledger)
    coming = sum(model.coming and model.entry.default_environment for model in ledger.queue.values())
    target = 0 if ledger.stop_deadline is not None else max(coming, ledger.policy.spare_workers)
    for worker in present[target:]:
        dismiss(ledger, worker, ExitReason.ASKED)
    quiet = _quiet(ledger)
    missing = target if quiet else coming
    if ledger.now >= ledger.spare_retry_at:
        for _ in range(missing - len(present)):
            spawn(ledger, None)
    if quiet and not any(worker.heavy for worker in ledger.workers.values()):
        forecast.tell(ledger)


def _quiet(ledger: Ledger) -> bool:
    """Whether starting a process would take nothing from anybody who waits."""
    return not any(model.state in PROMISED or model.swap_unanswered for model in ledger.models.values())

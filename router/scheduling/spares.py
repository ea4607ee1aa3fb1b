"""Keeps warm workers without a model, so that a swap costs the load and nothing more."""

from __future__ import annotations

from router.scheduling.events import ExitReason
from router.scheduling.ledger import Ledger
from router.scheduling.states import PROMISED
from router.scheduling.workers import dismiss, spares, spawn


def wanted(ledger: Ledger) -> int:
    """How many spares there should be now. After a swap the refill waits for its first answer, and for any load."""
    if ledger.stop_deadline is not None:
        return 0
    return ledger.policy.spare_workers


def _quiet(ledger: Ledger) -> bool:
    """Whether starting a process would take nothing from anybody who waits."""
    if ledger.now < ledger.spare_retry_at:
        return False
    return not any(model.state in PROMISED or model.swap_unanswered for model in ledger.models.values())


def refill(ledger: Ledger) -> None:
    present = spares(ledger)
    target = wanted(ledger)
    for worker in present[target:]:
        dismiss(ledger, worker, ExitReason.ASKED)
    if len(present) < target and _quiet(ledger):
        for _ in range(target - len(present)):
            spawn(ledger, None)

"""What the warm spares are told to get ready for: the models that will most likely be asked for next."""

from __future__ import annotations

from router.scheduling.effects import SendForecast
from router.scheduling.ledger import Ledger
from router.scheduling.workers import spares

LENGTH = 3
"""Models that a spare gets ready for: who swaps goes back to one of the last few, and each costs a spare memory."""


def tell(ledger: Ledger) -> None:
    """Tell each connected spare what is likely now, unless it has been told so."""
    likely = _likely(ledger)
    for worker in spares(ledger):
        if worker.connected and worker.forecast != likely:
            worker.forecast = likely
            ledger.emit(SendForecast(worker.child, likely))


def _likely(ledger: Ledger) -> tuple[str, ...]:
    """Models without a worker that a spare may serve, the most recently used first; nothing that was never used."""
    absent = [
        model
        for model in ledger.models.values()
        if model.worker is None and model.last_used and model.entry.default_environment and not model.gone
    ]
    absent.sort(key=lambda model: model.last_used, reverse=True)
    return tuple(model.key for model in absent[:LENGTH])

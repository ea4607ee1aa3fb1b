"""Tells the followers of the news what became of a model, and how far a load is, not more often than they can use."""

from __future__ import annotations

from router.scheduling.views import ModelView
from router.supervision.news import NewsHub
from router.supervision.worker_table import WorkerTable

STATUS_CHANGE = "status_change"
MODEL_REMOVE = "model_remove"
PROGRESS_INTERVAL = 0.2


class Announcer:
    """Publishes the views of models."""

    def __init__(self, news: NewsHub, table: WorkerTable) -> None:
        self._news = news
        self._table = table
        self._progress: dict[str, tuple[float, float, str]] = {}
        """Time, progress and stage that were told last, per model that is coming."""

    def changed(self, key: str, view: ModelView | None) -> None:
        """The public view of a model is another; None when there is no such model any more."""
        self._progress.pop(key, None)
        if view is None:
            self._news.publish(key, MODEL_REMOVE)
        else:
            info = self._table.info(key) if view.status == "loaded" else None
            self._news.publish(key, STATUS_CHANGE, view, info)

    def progressed(self, view: ModelView, now: float) -> None:
        """A model that is coming has come further: told at most five times a second, but each stage's begin and end."""
        at, progress, stage = self._progress.get(view.key, (0.0, -1.0, ""))
        if (view.progress, view.stage) == (progress, stage):
            return
        if now - at >= PROGRESS_INTERVAL or view.stage != stage or view.progress >= 1.0:
            self._progress[view.key] = (now, view.progress, view.stage)
            self._news.publish(view.key, STATUS_CHANGE, view)

"""Takes what workers say: output to its streams, the rest to the tables, and to the scheduler as events."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import cast, get_args

from protocol import codec
from protocol.generate import Failed, Parked, StepOutput
from protocol.load import Loaded
from protocol.status import UpdateStatus
from router.scheduling import events
from router.scheduling.events import Child, Event, ExitReport
from router.supervision.measuring import Measurements
from router.supervision.requests import RequestBook
from router.supervision.worker_table import WorkerTable

log = logging.getLogger("llamaherd.supervision")

_ANSWERS = frozenset(get_args(codec.Answer))


class Reception:
    """The nursery's listener for workers."""

    def __init__(
        self, post: Callable[[Event], None], book: RequestBook, table: WorkerTable, measurements: Measurements
    ) -> None:
        self._post = post
        self._book = book
        self._table = table
        self._measurements = measurements

    def connected(self, child: Child) -> None:
        record = self._table.get(child)
        if record is not None:
            record.connected = True
        self._post(events.ChildConnected(child))

    def received(self, child: Child, message: codec.FromChild) -> None:
        if isinstance(message, StepOutput):
            self._book.deltas(child, message.deltas)
        elif type(message) in _ANSWERS:
            self._answered(child, cast(codec.Answer, message))
        elif isinstance(message, UpdateStatus):
            self._reported(child, message)
        elif isinstance(message, Loaded):
            self._table.loaded(child, message)
        else:
            log.warning("%s sent %s, which no worker sends", child, type(message).__name__)

    def exited(self, child: Child, report: ExitReport) -> None:
        self._table.remove(child)
        self._post(events.ChildExited(child, report))

    def stuck(self, child: Child) -> None:
        self._post(events.ChildStuck(child))

    def _reported(self, child: Child, message: UpdateStatus) -> None:
        status = self._table.take(child, message)
        if status is None:
            return
        self._post(events.ChildReported(child, status))
        self._book.show_prefill(status.slots)
        record = self._table.get(child)
        if record is not None and record.model is not None:
            measured = self._measurements.take(record.model, status)
            if measured is not None:
                self._post(measured)

    def _answered(self, child: Child, answer: codec.Answer) -> None:
        if not self._book.answer(child, answer):
            log.debug("%s answered request %d, which it does not hold", child, answer.request)
            return
        error = answer.error if isinstance(answer, Failed) else None
        self._post(events.RequestEnded(answer.request, child, parked=isinstance(answer, Parked), error=error))

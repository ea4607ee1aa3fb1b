from __future__ import annotations

import msgspec

from protocol.load import Loaded, ModelInfo
from protocol.status import UpdateStatus, WorkerState
from router.scheduling.events import Child
from router.supervision.worker_table import WorkerRecord, WorkerTable

CHILD = Child("w1", 1)


def table(model: str | None = "m") -> WorkerTable:
    table = WorkerTable()
    table.add(WorkerRecord(CHILD, pid=5, model=model))
    return table


def status(revision: int, state: WorkerState = WorkerState.READY, answers: int = 0) -> UpdateStatus:
    return UpdateStatus(revision, state, answers=answers)


def test_the_highest_revision_is_kept() -> None:
    workers = table()
    assert workers.take(CHILD, status(2)) == status(2)
    assert workers.take(CHILD, status(1)) is None
    assert workers.take(CHILD, status(2)) is None
    assert workers.take(CHILD, status(3)) == status(3)


def test_an_answer_that_was_overtaken_still_answers() -> None:
    workers = table()
    newest = status(5, WorkerState.SLEEPING)
    workers.take(CHILD, newest)
    assert workers.take(CHILD, status(4, WorkerState.READY, answers=9)) == msgspec.structs.replace(newest, answers=9)


def test_nobody_hears_of_a_child_that_is_not_listed() -> None:
    assert table().take(Child("w1", 2), status(1)) is None


def test_facts_outlive_the_worker_but_not_the_configuration() -> None:
    workers = table()
    workers.loaded(CHILD, Loaded("m", ModelInfo("llama")))
    workers.remove(CHILD)
    assert workers.info("m") == ModelInfo("llama")
    workers.forget_models({"other"})
    assert workers.info("m") is None


def test_preparing_is_starting_loading_and_waking() -> None:
    record = WorkerRecord(CHILD)
    assert record.preparing
    record.connected = True
    assert not record.preparing  # a spare
    record.model = "m"
    assert record.preparing
    for state, preparing in [(WorkerState.LOADING, True), (WorkerState.READY, False), (WorkerState.WAKING, True)]:
        record.status = status(1, state)
        assert record.preparing is preparing

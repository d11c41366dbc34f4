"""What is wrong with one experiment's archive keeps no other one waiting."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest

from tests.builders import an_experiment
from tests.memory_store import MemoryStore
from tuner_service.dispatcher.changes import Changes
from tuner_service.dispatcher.commands import Command, ExperimentDeleted
from tuner_service.domain.archives import Archive, ArchivePhase
from tuner_service.domain.errors import UnavailableError
from tuner_service.domain.experiment import ExperimentStatus
from tuner_service.service.archiving import Archivist

FIRST, SECOND = "aaaaa", "bbbbb"


def at_work(raised: Exception, store: MemoryStore) -> tuple[Archivist, list[str]]:
    """One whose command for the first experiment raises; and which experiments it has removed."""
    for at, experiment_id in enumerate((FIRST, SECOND)):
        archive = Archive(phase=ArchivePhase.REMOVING, upto=0, at=float(at))
        experiment = replace(an_experiment(id=experiment_id), status=ExperimentStatus.STOPPED, archive=archive)
        store.commit(Changes(experiments={experiment_id: experiment}))
    removed: list[str] = []

    def submit(command: Command) -> Future[None]:
        assert isinstance(command, ExperimentDeleted)
        if command.experiment_id == FIRST:
            raise raised
        removed.append(command.experiment_id)
        answer: Future[None] = Future()
        answer.set_result(None)
        return answer

    class Clock:
        def now(self) -> float:
            return 1.0

    others: dict[str, Any] = {"files": None, "assets": None}
    archivist = Archivist(queries=store.queries, rows=store.moved_rows, clock=Clock(), submit=submit, **others)
    return archivist, removed


def test_the_next_one_is_worked_on_and_the_first_one_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    archivist, removed = at_work(ValueError("of this one"), MemoryStore())

    assert not archivist.work()

    assert removed == [SECOND]
    (record,) = caplog.records
    assert (record.message, getattr(record, "experiment", "")) == ("archiving_failed", FIRST)


def test_where_nothing_can_be_done_it_is_left_for_later(caplog: pytest.LogCaptureFixture) -> None:
    archivist, removed = at_work(UnavailableError("the server is away"), MemoryStore())

    assert not archivist.work()

    assert removed == []
    assert len(caplog.records) == 1

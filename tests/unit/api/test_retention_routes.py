"""What is removed over HTTP, and by whom."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.api_service import ApiService, an_api_service
from tests.builders import START, a_metric, a_trial
from tuner_service.dispatcher.changes import Changes
from tuner_service.dispatcher.commands import ArchiveMoved, ExperimentDeleted
from tuner_service.dispatcher.state import SetAside
from tuner_service.domain.archives import ArchivePhase
from tuner_service.domain.experiment import ExperimentReason, ExperimentStatus
from tuner_service.service import retention
from tuner_service.service.retention import Retention

EXPERIMENTS = "/api/v1/experiments"


@pytest.fixture
def api() -> ApiService:
    return an_api_service()


def ended(api: ApiService) -> str:
    experiment_id = api.create()
    assert api.client.post(f"{EXPERIMENTS}/{experiment_id}/stop").status_code == 200
    return experiment_id


def test_what_is_being_moved_is_removed_by_who_moves_it(api: ApiService) -> None:
    experiment_id = ended(api)
    assert api.client.post(f"{EXPERIMENTS}/{experiment_id}/archive").status_code == 200

    assert api.client.delete(f"{EXPERIMENTS}/{experiment_id}").status_code == 202

    command = api.runner.commands[-1]
    assert isinstance(command, ArchiveMoved)
    assert command.phase is ArchivePhase.REMOVING
    assert api.client.delete(f"{EXPERIMENTS}/{experiment_id}").status_code == 409, "nobody else may, from here on"


def test_one_that_is_deleted_by_somebody_else_keeps_no_other_one(
    api: ApiService, monkeypatch: pytest.MonkeyPatch
) -> None:
    resumed, gone, due = ended(api), ended(api), ended(api)
    found = [api.queries.experiment(experiment_id) for experiment_id in (resumed, gone, due)]
    monkeypatch.setattr(Retention, "due", lambda *_, **__: found)  # as they were when it looked
    assert api.client.post(f"{EXPERIMENTS}/{resumed}/resume", json={}).status_code == 200
    is_large = Retention.is_large

    def looked(self: Retention, experiment_id: str) -> bool:
        answer = is_large(self, experiment_id)
        if experiment_id == due:  # the last look before the first is removed
            api.runner.submit(ExperimentDeleted(at=START, experiment_id=gone)).result()
        return answer

    monkeypatch.setattr(Retention, "is_large", looked)

    answer = api.client.post(f"{EXPERIMENTS}/collect", json={"older_than": "1s"})

    assert answer.status_code == 200
    assert [one["id"] for one in answer.json()["items"]] == [due]
    assert {one["id"]: one["why"] for one in answer.json()["kept"]} == {
        resumed: f"experiment {resumed} is running and cannot be deleted; allowed: pause, stop",
        gone: f"there is no experiment {gone!r}",
    }
    assert [e.id for e in api.queries.experiments()] == [resumed]


def test_what_has_damaged_rows_goes_however_much_it_has(api: ApiService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "REMOVED_AT_ONCE", 0)
    experiment_id = api.create()
    trial, metric = a_trial(experiment_id=experiment_id), a_metric(experiment_id=experiment_id)
    api.store.commit(Changes(trials={(experiment_id, 1): trial}, metrics=[metric]))
    found = api.queries.experiment(experiment_id)
    assert found is not None
    assert found.status is not ExperimentStatus.STOPPED, "it is shown as paused"
    api.runner._dispatcher.state.set_aside[experiment_id] = SetAside(why="its rows are damaged")

    assert api.client.delete(f"{EXPERIMENTS}/{experiment_id}").status_code == 204

    assert isinstance(api.runner.commands[-1], ExperimentDeleted)


@pytest.mark.parametrize("status", [ExperimentStatus.PAUSED, ExperimentStatus.COMPLETED])
def test_what_was_set_aside_and_has_much_goes_some_rows_at_a_time(
    api: ApiService, monkeypatch: pytest.MonkeyPatch, status: ExperimentStatus
) -> None:
    monkeypatch.setattr(retention, "REMOVED_AT_ONCE", 0)
    experiment_id = api.create()
    found = api.queries.experiment(experiment_id)
    assert found is not None
    shown = replace(found, status=status, reason=ExperimentReason.ROWS_DAMAGED)
    api.store.commit(
        Changes(experiments={experiment_id: shown}, trials={(experiment_id, 1): a_trial(experiment_id=experiment_id)})
    )
    api.store.commit(Changes(metrics=[a_metric(experiment_id=experiment_id)]))
    api.runner._dispatcher.state.set_aside[experiment_id] = SetAside(why="its rows are damaged")

    assert api.client.delete(f"{EXPERIMENTS}/{experiment_id}").status_code == 202

    found = api.queries.experiment(experiment_id)
    assert found is not None
    assert found.archive is not None
    assert found.archive.phase is ArchivePhase.REMOVING

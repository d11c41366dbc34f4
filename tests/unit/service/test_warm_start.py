"""What a new experiment learns of earlier ones."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import EXPERIMENT_ID, a_spec, a_trial, an_experiment
from tests.memory_store import MemoryStore
from tuner_service.dispatcher import importing
from tuner_service.dispatcher.changes import Changes
from tuner_service.domain.errors import InputError
from tuner_service.domain.experiment import ExperimentSpec, Objective
from tuner_service.domain.trial import SOURCE_IMPORTED, TrialOutcome, TrialReason, TrialStatus
from tuner_service.ports import Queries
from tuner_service.service import warm_start
from tuner_service.service.warm_start import known_lines

EARLIER = (
    a_trial(number=1, status=TrialStatus.SUCCEEDED, value=0.5, final={"loss": 0.5, "seconds": 9.0}),
    a_trial(number=2, status=TrialStatus.EARLY_STOPPED, value=0.7, last_step=3, last_metrics={"loss": 0.7, "f1": 0.2}),
    a_trial(number=3, status=TrialStatus.FAILED),
    a_trial(number=4, status=TrialStatus.SUCCEEDED, value=0.4, parameters={"lr": 7.0, "batch": 32}),
)


def a_store() -> MemoryStore:
    store = MemoryStore()
    experiment = an_experiment(next_number=5)
    trials = {(trial.experiment_id, trial.number): trial for trial in EARLIER}
    store.commit(Changes(experiments={experiment.id: experiment}, trials=trials))
    return store


def known_outcomes(queries: Queries, spec: ExperimentSpec) -> list[TrialOutcome]:
    return [outcome for line in known_lines(queries, spec) for outcome in line.outcomes]


def known(**overrides: Any) -> list[tuple[Any, Any, Any]]:
    spec: ExperimentSpec = a_spec(warm_start=(EXPERIMENT_ID,), **overrides)
    outcomes = known_outcomes(a_store().queries, spec)
    assert all(outcome.number == 0 and outcome.source == SOURCE_IMPORTED for outcome in outcomes)
    return [(outcome.parameters, outcome.value, outcome.step) for outcome in outcomes]


def test_results_that_fit_the_space_are_known() -> None:
    same = {"lr": 0.01, "batch": 32}
    assert known() == [(same, 0.5, None), (same, 0.7, 3)]


def test_trials_that_failed_by_their_own_doing_are_known_as_failures() -> None:
    store = a_store()
    failed = a_trial(number=3, status=TrialStatus.FAILED, reason=TrialReason.OUT_OF_MEMORY)
    store.commit(Changes(trials={(failed.experiment_id, 3): failed}))
    outcomes = known_outcomes(store.queries, a_spec(warm_start=(EXPERIMENT_ID,)))
    assert [(one.status, one.own_failure) for one in outcomes] == [
        (TrialStatus.SUCCEEDED, False),
        (TrialStatus.EARLY_STOPPED, False),
        (TrialStatus.FAILED, True),
    ]


def test_a_space_that_differs_gets_what_it_has_a_place_for() -> None:
    space = {"lr": {"type": "float", "low": 0.001, "high": 10}, "kind": {"type": "const", "value": "a"}}
    assert [parameters for parameters, _, _ in known(search_space=space)] == [
        {"lr": 0.01, "kind": "a"},
        {"lr": 0.01, "kind": "a"},
        {"lr": 7.0, "kind": "a"},
    ]


def test_another_objective_is_looked_up_among_what_was_reported() -> None:
    assert [value for _, value, _ in known(objective=Objective(metric="seconds"))] == [9.0]
    assert [value for _, value, _ in known(objective=Objective(metric="f1"))] == [0.2]


def test_no_more_are_known_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warm_start, "KNOWN_LIMIT", 1)
    assert len(known()) == 1


def test_no_more_bytes_are_known_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """They stand in memory until the tuner has learned them; whole lines are left out."""
    monkeypatch.setattr(importing, "IMPORTED_LINE_BYTES", 1)
    first, _ = known_lines(a_store().queries, a_spec(warm_start=(EXPERIMENT_ID,)))
    monkeypatch.setattr(warm_start, "KNOWN_BYTES", len(first.encoded) + 1)

    assert known_lines(a_store().queries, a_spec(warm_start=(EXPERIMENT_ID,))) == (first,)


def test_an_experiment_that_does_not_exist_is_refused_by_its_place() -> None:
    with pytest.raises(InputError) as refused:
        known_outcomes(a_store().queries, a_spec(warm_start=(EXPERIMENT_ID, "gone")))
    assert [fault.pointer for fault in refused.value.faults] == ["/warm_start/1"]


def test_without_a_warm_start_nothing_is_known() -> None:
    assert known_outcomes(a_store().queries, a_spec()) == []

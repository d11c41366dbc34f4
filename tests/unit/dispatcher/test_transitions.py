"""One mover, one table: what has no arrow raises, and nothing changes."""

from __future__ import annotations

import copy
import itertools
from dataclasses import replace
from enum import StrEnum

import pytest

from tests.builders import EXPERIMENT_ID, START, a_spec, a_trial, an_attempt, an_experiment
from tuner_service.dispatcher import transitions
from tuner_service.dispatcher.changes import Changes
from tuner_service.dispatcher.state import DispatcherState, ExperimentState
from tuner_service.dispatcher.step import Step, Why
from tuner_service.domain.errors import InvalidTransitionError
from tuner_service.domain.experiment import ExperimentReason, ExperimentStatus
from tuner_service.domain.rungs import RungPhase, Rungs
from tuner_service.domain.trial import AttemptStatus, TrialReason, TrialStatus

WHY = Why(reason=TrialReason.NONE)
EXPERIMENT_WHY = Why(reason=ExperimentReason.NONE)


RUNGS = {
    RungPhase.CLIMBING: Rungs(until_step=9),
    RungPhase.REACHED: Rungs(until_step=9, rung_step=9, rung_reached=True),
    RungPhase.RESTING: Rungs(until_step=9, rung_step=9, rung_reached=True, rested_line=4, rested_step=9),
}


def a_step(*, experiment: ExperimentStatus, trial: TrialStatus, attempt: AttemptStatus, rungs: RungPhase) -> Step:
    xs = ExperimentState(
        experiment=an_experiment(status=experiment, spec=a_spec(), next_number=2, counts={trial.value: 1}),
        trials={1: a_trial(status=trial, rungs=RUNGS[rungs])},
        attempts={1: an_attempt(status=attempt)},
    )
    state = DispatcherState(lineage="memory", incarnation="life", experiments={EXPERIMENT_ID: xs})
    return Step(state=state, changes=Changes(), at=START)


def default_step(**statuses: StrEnum) -> Step:
    fields = {
        "experiment": ExperimentStatus.RUNNING,
        "trial": TrialStatus.RUNNING,
        "attempt": AttemptStatus.RUNNING,
        "rungs": RungPhase.CLIMBING,
    }
    return a_step(**(fields | statuses))  # type: ignore[arg-type]  # each test sets one of them


def move(step: Step, requested: StrEnum) -> None:
    xs = step.find(EXPERIMENT_ID)
    match requested:
        case ExperimentStatus():
            step.move_experiment(xs, requested, EXPERIMENT_WHY)
        case TrialStatus():
            step.trial(xs, 1).move(requested, WHY)
        case AttemptStatus():
            step.trial(xs, 1).move_attempt(requested)
        case RungPhase():
            step.trial(xs, 1).move_rungs(RUNGS[requested])


TABLES = {
    "experiment": (ExperimentStatus, transitions.EXPERIMENT_TRANSITIONS),
    "trial": (TrialStatus, transitions.TRIAL_TRANSITIONS),
    "attempt": (AttemptStatus, transitions.ATTEMPT_TRANSITIONS),
    "rungs": (RungPhase, transitions.RUNG_TRANSITIONS),
}
PAIRS = [
    pytest.param(what, before, after, id=f"{what}-{before}-{after}")
    for what, (statuses, _) in TABLES.items()
    for before, after in itertools.product(statuses, repeat=2)
]


def is_legal(what: str, before: StrEnum, after: StrEnum) -> bool:
    return after in TABLES[what][1][before]  # type: ignore[index]  # one table of three kinds


@pytest.mark.parametrize(("what", "before", "after"), [p for p in PAIRS if not is_legal(*p.values)])
def test_an_illegal_move_raises_and_nothing_changes(what: str, before: StrEnum, after: StrEnum) -> None:
    step = default_step(**{what: before})
    state = copy.deepcopy(step.state)

    with pytest.raises(InvalidTransitionError, match=f"is {before.value} and cannot become {after.value}"):
        move(step, after)

    assert step.state == state
    assert not step.changes
    assert step.effects == []


@pytest.mark.parametrize(("what", "before", "after"), [p for p in PAIRS if is_legal(*p.values)])
def test_a_legal_move_changes_the_row_and_the_counts(what: str, before: StrEnum, after: StrEnum) -> None:
    step = default_step(**{what: before})
    xs = step.find(EXPERIMENT_ID)
    move(step, after)

    match after:
        case ExperimentStatus():
            assert step.changes.experiments[EXPERIMENT_ID].status is after
        case TrialStatus():
            assert step.changes.trials[EXPERIMENT_ID, 1].status is after
            assert xs.experiment.counts == {after.value: 1}
        case AttemptStatus():
            (row,) = step.changes.attempts.values()
            assert row.status is after
        case RungPhase():
            assert step.changes.trials[EXPERIMENT_ID, 1].rungs == xs.trials[1].rungs == RUNGS[after]


def put(step: Step, what: str) -> None:
    """A row that has moved, as if that were any other change."""
    xs = step.find(EXPERIMENT_ID)
    ts = step.trial(xs, 1)
    match what:
        case "experiment":
            step.put_experiment(xs, replace(xs.experiment, status=ExperimentStatus.PAUSED))
        case "trial":
            ts.put(replace(ts.trial, status=TrialStatus.FAILED))
        case "attempt":
            ts.put_attempt(replace(ts.live, status=AttemptStatus.LOST))
        case _:
            ts.put(replace(ts.trial, rungs=ts.trial.rungs.reached(3)))


@pytest.mark.parametrize("what", list(TABLES))
def test_a_row_that_is_written_moves_beside_no_table(what: str) -> None:
    step = default_step()
    state = copy.deepcopy(step.state)

    with pytest.raises(InvalidTransitionError):
        put(step, what)

    assert step.state == state
    assert not step.changes


@pytest.mark.parametrize(("statuses", "table"), list(TABLES.values()))
def test_every_status_has_its_row_in_the_table(statuses: type[StrEnum], table: dict[StrEnum, object]) -> None:
    assert set(table) == set(statuses)


def test_final_statuses_have_no_arrow_out() -> None:
    for trial_status in TrialStatus:
        assert trial_status.is_final == (not transitions.TRIAL_TRANSITIONS[trial_status])
    for attempt_status in AttemptStatus:
        assert attempt_status.is_final == (not transitions.ATTEMPT_TRANSITIONS[attempt_status])


def test_an_ended_experiment_can_only_be_resumed() -> None:
    for status in ExperimentStatus:
        if status.has_ended:
            assert transitions.EXPERIMENT_TRANSITIONS[status] == {ExperimentStatus.RUNNING}


def test_a_moved_experiment_leaves_a_journal_line_and_long_texts_are_cut() -> None:
    step = default_step()
    xs = step.find(EXPERIMENT_ID)
    why = Why(reason=ExperimentReason.REQUESTED, message="m" * 5_000, detail="d" * 50_000)
    step.move_experiment(xs, ExperimentStatus.PAUSED, why)

    assert (len(xs.experiment.message), len(xs.experiment.detail)) == (1_000, 16_000)
    (line,) = step.changes.journal
    assert (line.payload["from"], line.payload["to"]) == ("running", "paused")


def test_an_ended_attempt_is_no_longer_the_live_one() -> None:
    step = default_step()
    xs = step.find(EXPERIMENT_ID)
    step.trial(xs, 1).move_attempt(AttemptStatus.EXITED)

    assert xs.attempts == {}

"""Trials of experiments with several objectives: what their end needs, and how it is told."""

from __future__ import annotations

import pytest

from tests.unit.dispatcher.harness import Harness, a_final, an_intermediate
from tuner_service.dispatcher.items import Queue, StopAdvised, TrialEnded
from tuner_service.domain.experiment import AlgorithmSpec, FinalFrom, Goal, Objective
from tuner_service.domain.trial import TrialOutcome, TrialReason, TrialStatus

OBJECTIVE = Objective(metric="loss", further=(Objective(metric="speed", goal=Goal.MAXIMIZE),))


def told(h: Harness) -> list[TrialOutcome]:
    return [item.outcome for item in h.pending(Queue.TUNER) if isinstance(item, TrialEnded)]


def test_the_end_is_told_with_a_value_for_each_objective(h: Harness) -> None:
    h.run(objective=OBJECTIVE)
    h.report(1, a_final(0.25, speed=3.0))

    h.exit(1)

    assert [outcome.values for outcome in told(h)] == [(0.25, 3.0)]
    assert h.experiment.best_number == 1


def test_a_trial_without_the_final_value_of_one_objective_fails_naming_it(h: Harness) -> None:
    h.run(objective=OBJECTIVE)
    h.report(1, an_intermediate(1, 0.5, speed=1.0), a_final(0.25))

    h.exit(1)

    assert (h.trial(1).status, h.trial(1).reason) == (TrialStatus.FAILED, TrialReason.NO_FINAL_METRIC)
    assert "no final 'speed'" in h.trial(1).message
    assert [outcome.values for outcome in told(h)] == [(None,)]


def test_the_last_reports_may_stand_for_final_values(h: Harness) -> None:
    h.run(objective=OBJECTIVE, trial={"final": FinalFrom.LAST})
    h.report(1, an_intermediate(1, 0.5, speed=1.0), an_intermediate(2, 0.4, speed=2.0))

    h.exit(1)

    assert [outcome.values for outcome in told(h)] == [(0.4, 2.0)]


@pytest.mark.parametrize(("speed", "values"), [({"speed": 2.0}, (0.4, 2.0)), ({}, (0.4, None))])
def test_a_trial_that_is_stopped_early_is_told_with_what_it_reported_last(
    h: Harness, speed: dict[str, float], values: tuple[float | None, ...]
) -> None:
    h.run(objective=OBJECTIVE, assessor=AlgorithmSpec(name="median_stop"))
    h.report(1, an_intermediate(1, 0.4, **speed))
    h.advise_stop(1)

    h.exit(1)

    assert h.trial(1).status is TrialStatus.EARLY_STOPPED
    assert [outcome.values for outcome in told(h)] == [values]
    assert not any(isinstance(item, StopAdvised) for item in h.pending(Queue.TUNER))

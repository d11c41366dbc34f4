"""What a trial left is recorded with the trial, once its attempt says so and before its end."""

from __future__ import annotations

import pytest

from tests.builders import EXPERIMENT_ID
from tests.unit.dispatcher.harness import AGENT, EXITED, Harness, a_final
from trials.wire.attempt import AttemptKey
from tuner_service.dispatcher import commands as c
from tuner_service.domain.experiment import Objective
from tuner_service.domain.trial import TrialOutput, TrialStatus

OUTPUT = TrialOutput(attempt=1, asset="a" * 64, size=7, files=1)
KEY = AttemptKey(experiment_id=EXPERIMENT_ID, number=1, attempt=1)


@pytest.fixture
def h() -> Harness:
    harness = Harness()
    harness.begin(budget={"trials": 1})
    harness.suggest()
    harness.started(1)
    return harness


def collected(h: Harness, output: TrialOutput = OUTPUT, *, nonce: str) -> None:
    h.handle(c.OutputCollected(at=h.at, agent_id=AGENT, key=KEY, nonce=nonce, output=output))


def test_it_stands_with_the_trial_and_the_experiment_names_it(h: Harness) -> None:
    collected(h, nonce=h.attempt(1).nonce)

    assert h.trial(1).output == OUTPUT
    assert h.changes.named_assets == [(EXPERIMENT_ID, OUTPUT.asset)]
    assert [line["asset"] for line in h.journal("output_collected")] == [OUTPUT.asset]


def test_saying_it_again_changes_nothing(h: Harness) -> None:
    nonce = h.attempt(1).nonce
    collected(h, nonce=nonce)
    collected(h, nonce=nonce)

    assert not h.changes
    assert len(h.journal("output_collected")) == 1


def test_a_newer_one_takes_its_place(h: Harness) -> None:
    nonce = h.attempt(1).nonce
    collected(h, TrialOutput(attempt=1, asset="b" * 64, step=3), nonce=nonce)
    collected(h, nonce=nonce)

    assert h.trial(1).output == OUTPUT


def test_of_an_attempt_that_is_not_believed_or_over_nothing_is_taken(h: Harness) -> None:
    nonce = h.attempt(1).nonce
    collected(h, nonce="another")
    assert h.trial(1).output is None

    h.report(1, a_final(0.5))
    h.exit(1, EXITED)
    collected(h, nonce=nonce)

    assert (h.trial(1).status, h.trial(1).output) == (TrialStatus.SUCCEEDED, None)


def test_what_could_not_be_kept_is_said_and_names_nothing(h: Harness) -> None:
    lost = TrialOutput(attempt=1, asset="", is_complete=False, message="the disk is full")
    collected(h, lost, nonce=h.attempt(1).nonce)

    assert h.trial(1).output == lost
    assert h.changes.named_assets == []


def test_a_training_without_a_result_has_succeeded_where_it_has_no_objective_to_reach() -> None:
    h = Harness()
    h.begin(budget={"trials": 1}, search_space={}, objective=Objective(metric="default", is_optional=True))
    h.suggest()
    h.started(1)
    h.exit(1, EXITED)

    assert (h.trial(1).status, h.trial(1).value) == (TrialStatus.SUCCEEDED, None)
    assert h.experiment.best_number is None

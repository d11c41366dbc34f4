"""``ports.Store``: what an advisor decided is in its history."""

from __future__ import annotations

from typing import Any

from tests.builders import EXPERIMENT_ID, a_line, a_spec, a_trial, an_experiment
from tuner_service.dispatcher.changes import Changes, StoredDecision
from tuner_service.dispatcher.items import Queue, SuggestionRequested, TrialRested
from tuner_service.domain.experiment import AlgorithmSpec
from tuner_service.domain.rungs import Rungs
from tuner_service.domain.trial import DecisionKind


def test_the_history_of_an_advisor_says_what_it_decided(store: Any) -> None:
    """A start with the parameters of its trial, a promotion without; a request answered with nothing is left out."""
    start = StoredDecision(experiment_id=EXPERIMENT_ID, line=1, kind=DecisionKind.START, number=1, until_step=3)
    promotion = StoredDecision(
        experiment_id=EXPERIMENT_ID, line=3, kind=DecisionKind.PROMOTE, number=1, until_step=9, dropped=(4, 5)
    )
    trial = a_trial(decided_line=1, rungs=Rungs(segment_line=3, until_step=9, rung_step=3, rested_step=3))
    lines = [
        a_line(line=1, payload={"number": 1}),
        a_line(line=2, kind="trial_rested", payload={"number": 1, "step": 3}),
        a_line(line=3, payload={"number": 2}),
        a_line(line=4, payload={"number": 2}),
    ]
    spec = a_spec(advisor=AlgorithmSpec(name="hyperband"))
    experiment = an_experiment(spec=spec, next_line=5, tuner_cursor=4)
    store.commit(
        Changes(
            experiments={EXPERIMENT_ID: experiment},
            trials={(EXPERIMENT_ID, 1): trial},
            journal=lines,
            decisions=[start, promotion],
        )
    )

    items = list(store.history(EXPERIMENT_ID, Queue.TUNER, after=0, upto=4))

    assert items == [
        SuggestionRequested(line=1, number=1, decision=start.decision(trial.parameters)),
        TrialRested(line=2, number=1, step=3),
        SuggestionRequested(line=3, number=2, decision=promotion.decision(None)),
    ]
    (loaded,) = store.load()
    assert loaded.trials == (trial,)
    assert loaded.experiment.spec == spec

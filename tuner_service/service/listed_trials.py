"""Trials as their list shows them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tuner_service.domain.experiment import ExperimentId
from tuner_service.domain.trial import Trial
from tuner_service.ports import Queries
from tuner_service.service.views import View, trial_view


def listed_trials(
    queries: Queries, experiment_id: ExperimentId, trials: Sequence[Trial], *, now: float, inputs: View
) -> Iterator[View]:
    """Each with when it reported the last time, where it goes on, and with ``inputs``, which are the same for all."""
    told = last_reports(queries, experiment_id, trials)
    for trial in trials:
        yield {**trial_view(trial, now=now, reported_at=told.get(trial.number)), "inputs": inputs}


def last_reports(queries: Queries, experiment_id: ExperimentId, trials: Sequence[Trial]) -> Mapping[int, float]:
    """When those that go on reported the last time, by their numbers; where all have ended, nothing is looked up."""
    return queries.reported_at(experiment_id, [trial.number for trial in trials if trial.ended_at is None])

"""What all experiments come to together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from tuner_service.dispatcher.items import Queue
from tuner_service.dispatcher.state import DispatcherState
from tuner_service.domain.experiment import ExperimentStatus
from tuner_service.domain.trial import TrialStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """``experiments`` and ``trials`` by status, each key is always there.

    ``queues``: the lines that wait in them, of experiments whose algorithms are to answer. What an experiment that has
    ended left unanswered waits for nobody.
    """

    experiments: Mapping[str, int]
    trials: Mapping[str, int]
    queues: Mapping[str, int]
    held: frozenset[tuple[str, str]]  # the devices that trials hold, by agent and UUID


def totals_of(state: DispatcherState) -> Totals:
    """May be called from any thread: a look from outside that locks nothing, and copies before it counts.

    It costs as much as there are experiments, however many trials those have: each experiment keeps its counts.
    """
    experiments: Counter[str] = Counter({status.value: 0 for status in ExperimentStatus})
    trials: Counter[str] = Counter({status.value: 0 for status in TrialStatus})
    queues: Counter[str] = Counter({queue.value: 0 for queue in Queue})
    for xs in list(state.experiments.values()):
        experiment = xs.experiment
        experiments[experiment.status.value] += 1
        for status in TrialStatus:
            trials[status.value] += experiment.counts.get(status.value, 0)
        if xs.wants_worker:
            for queue, waiting in xs.queues.items():
                queues[queue.value] += len(waiting.pending)
    return Totals(
        experiments=dict(experiments), trials=dict(trials), queues=dict(queues), held=frozenset(state.ledger.shares)
    )

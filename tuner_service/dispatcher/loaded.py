"""One experiment as its rows give it back."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from tuner_service.dispatcher.items import Queue, QueueItem
from tuner_service.domain.experiment import Experiment
from tuner_service.domain.trial import Attempt, Checkpoint, Trial


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedExperiment:
    """What the dispatcher needs of one experiment to go on.

    ``trials``: those not final, and final ones whose end was not told yet. ``attempts``: the live ones.
    ``unanswered``: per queue the items past its cursor, in line order.
    ``seen_steps``: for each loaded trial the steps of the objective that algorithms saw.
    ``checkpoints``: of the loaded trials, oldest first. ``search_space``: the newest that the tuner
    has taken, where scripts may add to it.
    ``damage``: why it cannot be gone on with. Then ``experiment`` and ``attempts`` are what could be read, and no more.
    """

    experiment: Experiment
    trials: tuple[Trial, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    unanswered: dict[Queue, tuple[QueueItem, ...]] = field(default_factory=dict)
    seen_steps: Mapping[int, Set[int]] = field(default_factory=dict)
    checkpoints: tuple[Checkpoint, ...] = ()
    search_space: dict[str, Any] | None = None
    damage: str = ""

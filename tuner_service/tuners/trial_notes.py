"""What a model-based tuner remembers of trials, and how much of it a model is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tuner_service.domain.experiment import Objective
from tuner_service.domain.objectives import front, losses
from tuner_service.domain.trial import Parameters

RUNNING, FINISHED, PRUNED = "running", "finished", "pruned"
FAILED = "failed"  # it says nothing of its parameters: given up, or ended by what was none of its doing
FAILED_ITSELF = "failed_itself"  # its parameters may be why


@dataclass(slots=True, kw_only=True)
class TrialNote:
    """``values``: one for each objective; None where it has none, or where it counts as the worst.

    ``place`` says as the how manieth it ended; None while it runs.
    """

    number: int
    parameters: Parameters
    state: str = RUNNING
    values: tuple[float | None, ...] = ()
    step: int | None = None
    place: int | None = None

    def to_plain(self) -> list[Any]:
        return [self.number, self.parameters, self.state, list(self.values), self.step, self.place]


def note_from_plain(plain: list[Any]) -> TrialNote:
    number, parameters, state, values, step, place = plain
    return TrialNote(number=number, parameters=parameters, state=state, values=tuple(values), step=step, place=place)


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinning:
    """Which trials a model is shown: all, up to ``limit`` of them, and then fewer, so that it stays quick.

    At ``limit`` ended trials, and again whenever ``refresh`` more have ended, it is shown anew ``keep`` of them: the
    best and the newest, a quarter of ``keep`` each, and of the rest every so manieth in the order in which they ended.
    Between two such choices every trial that ends is shown as well. What was left out is kept, and counts as proposed.
    """

    limit: int
    keep: int
    refresh: int

    def chosen_at(self, count: int) -> int:
        """The number of ended trials at which the newest choice was made; 0 before the first."""
        return 0 if count < self.limit else count - (count - self.limit) % self.refresh

    def choose(self, ended: Sequence[TrialNote], objective: Objective) -> list[TrialNote]:
        """Of ``ended``, in the order in which they ended; the same for the same ones, whenever it is asked."""
        quarter = self.keep // 4
        chosen = {id(note) for note in best_of(ended, quarter, objective)}
        chosen |= {id(note) for note in ended[len(ended) - quarter :]}
        rest = [note for note in ended if id(note) not in chosen]
        wanted = min(self.keep - len(chosen), len(rest))
        chosen |= {id(rest[index * len(rest) // wanted]) for index in range(wanted)}
        return [note for note in ended if id(note) in chosen]


def best_of(ended: Sequence[TrialNote], count: int, objective: Objective) -> list[TrialNote]:
    """The ``count`` best, finished ones before those stopped early; several objectives: front by front."""
    worst = float("inf")
    scored = []
    for note in ended:
        loss = losses(objective, note.values)
        scored.append((note.state != FINISHED, loss or (worst,) * len(objective.every), note))
    if not objective.further:
        scored.sort(key=lambda one: one[:2])
        return [note for _, _, note in scored[:count]]
    left = [(loss, note) for stopped, loss, note in scored if not stopped]
    found: list[TrialNote] = []
    while left and len(found) < count:
        places = set(_front([loss for loss, _ in left]))
        found += [note for index, (_, note) in enumerate(left) if index in places]
        left = [one for index, one in enumerate(left) if index not in places]
    return found[:count]


def _front(points: Sequence[Sequence[float]]) -> list[int]:
    """As ``front`` has it; of more than three objectives, of which it may be nearly all, by arrays."""
    if len(points[0]) <= 3:
        return front(points)
    import numpy as np

    array = np.array(points, dtype=np.float64)
    order = np.lexsort(array.T[::-1])
    kept: list[int] = []
    beside = np.empty_like(array)  # of those
    for index in order.tolist():
        if not (beside[: len(kept)] <= array[index]).all(axis=1).any():
            beside[len(kept)] = array[index]
            kept.append(index)
    return sorted(kept)

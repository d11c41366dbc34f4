"""``auto``: the tuner for those who do not want to choose one. Written for this project.

The beginning is drawn at random. Then a Gaussian process over the whole space, conditional parameters included,
proposes where the expected improvement (of the hypervolume, with two objectives) is largest. How well it predicts each
result from all others is looked at all the time: where it predicts badly, every other suggestion comes from ``tpe``,
which assumes less; and so does every one past ``PROCESS_TRIALS`` results, where the process would see few of them.

Trials that were stopped early count with the value and the step they came to. Trials that failed by their own doing
teach where others would: the expected improvement is weighed by the probability of success.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from tuner_service.domain.experiment import Objective
from tuner_service.domain.objectives import front, losses
from tuner_service.domain.search_space import SearchSpace
from tuner_service.domain.trial import Parameters, TrialOutcome
from tuner_service.tuners.model_columns import Columns, Rows, stacked
from tuner_service.tuners.model_gp import Vector, log_expected_improvement
from tuner_service.tuners.model_search import CENTRES, candidates, expected_hypervolume_improvement
from tuner_service.tuners.model_surrogate import Belief, Points, Surrogate, rank_correlation
from tuner_service.tuners.model_tuner import ModelTuner
from tuner_service.tuners.tpe import TpeTuner
from tuner_service.tuners.trial_notes import PRUNED, RUNNING, TrialNote

STARTUP = 5  # results, after which the process knows enough to be asked how well it predicts
PROCESS_TRIALS = 300  # results past which ``tpe`` proposes
WIDEST = 100  # columns past which ``tpe`` proposes
TRUSTED = 0.3  # rank correlation of predicted and true results, below which every other suggestion is of ``tpe``
CANDIDATES_TRIED = 64  # for one that was not proposed and keeps the constraints
MARGIN = 0.1  # of the front's extent, by which the hypervolume's corner lies beyond it


class AutoTuner(ModelTuner):
    several_objectives = True
    model_redraws = 0  # what was proposed before is left out already
    proposes_likely = True

    def __init__(self, space: SearchSpace, objective: Objective) -> None:
        super().__init__(space, objective, startup=STARTUP)
        self._forget()

    @property
    def choice(self) -> str:
        """Which algorithm proposes now, and why; for people."""
        return f"{self._proposer}; {self._chances.told}" if self._chances.matter else self._proposer

    @property
    def _proposer(self) -> str:
        count, width = len(self.modelled), self._columns.width
        if count < self._startup:
            return f"random: the first {self._startup} results come from random draws ({count} so far)"
        if self._is_beyond_process():
            many = f"{count} results" if count > PROCESS_TRIALS else f"{width} parameters"
            return f"tpe: {many} are too many for a Gaussian process"
        trust = f"predicts results from the others with rank correlation {self._trust:.2f}" if self._asked else "new"
        if self._asked and self._trust < TRUSTED:
            return f"gp and tpe in turns: a Gaussian process of {width} parameters {trust}"
        return f"gp: a Gaussian process of {width} parameters, {trust}"

    # ── the model ───────────────────────────────────────────────────────────────────────────────
    def _forget(self) -> None:
        self._columns = Columns(self.space)
        self._surrogates = [Surrogate(self._columns.unordered) for _ in self.objective.every]
        self._rows: dict[int, Rows | None] = {}  # by the identity of the notes, which live as long as this
        self._tpe: TpeTuner | None = None
        self._trust, self._asked = 0.0, False

    def pending(self, number: int, parameters: Parameters) -> None:
        super().pending(number, parameters)
        if self._tpe is not None:
            self._tpe.pending(number, parameters)

    def observe(self, outcome: TrialOutcome) -> None:
        super().observe(outcome)
        if self._tpe is not None:
            self._tpe.observe(outcome)

    def _is_beyond_process(self) -> bool:
        return len(self.modelled) > PROCESS_TRIALS or not 0 < self._columns.width <= WIDEST

    def _propose(self, rng: random.Random) -> Parameters:
        if self._is_beyond_process():
            return self._by_tpe(rng)
        rows = stacked([row for note in self.modelled if (row := self._row(note)) is not None], self._columns.width)
        beliefs = self._beliefs(rows)
        self._trust, self._asked = min(map(_trust_in, beliefs)), True
        if self._trust < TRUSTED and rng.random() < 0.5:
            return self._by_tpe(rng)
        running = [row for note in self.notes if note.state == RUNNING and (row := self._row(note)) is not None]
        stack = stacked(running, self._columns.width)
        beliefs = [belief.with_running(stack) for belief in beliefs]
        generator = np.random.default_rng(rng.getrandbits(64))
        found = self._best(beliefs, rows, generator)
        return self.space.sample(rng) if found is None else found

    def _beliefs(self, rows: Rows) -> list[Belief]:
        longest = max((note.step or 0 for note in self.modelled), default=0)
        reach = np.array([_reach(note, longest) for note in self.modelled])
        found = []
        for place, surrogate in enumerate(self._surrogates):
            values = [self._losses(note)[place] for note in self.modelled]
            found.append(surrogate.believe(Points(rows=rows, reach=reach, losses=np.array(values)), key=longest))
        return found

    def _losses(self, note: TrialNote) -> tuple[float, ...]:
        known = losses(self.objective, note.values)
        return known if known is not None else (math.inf,) * len(self.objective.every)

    def _row(self, note: TrialNote) -> Rows | None:
        if id(note) not in self._rows:
            self._rows[id(note)] = self._columns.encode(note.parameters)
        return self._rows[id(note)]

    # ── the search in it ────────────────────────────────────────────────────────────────────────
    def _best(self, beliefs: list[Belief], rows: Rows, rng: np.random.Generator) -> Parameters | None:
        """The parameters with the largest expected improvement; ``rows``: of the results, in their order."""
        weights = rng.dirichlet(np.ones(len(beliefs)))
        means = [belief.at_end(rows)[0] for belief in beliefs]
        if len(beliefs) == 1:
            centres = rows[np.argsort(means[0], kind="stable")[:CENTRES]]
            acquisition = _improvement(beliefs[0], float(means[0].min()))
        else:
            centres = rows[_spread(means, rng)]
            acquisition = _of_two(beliefs, means) if len(beliefs) == 2 else _of_many(beliefs, means, weights)
        acquisition = self._chances.weighed(acquisition, known=rows, is_logarithm=len(beliefs) != 2)
        for tried, row in enumerate(candidates(self._columns, centres, acquisition, rng)):
            if tried >= CANDIDATES_TRIED:
                break
            parameters = self._columns.decode(row)
            if parameters not in self._proposed and self.space.admits(parameters):
                return parameters
        return None

    def _by_tpe(self, rng: random.Random) -> Parameters:
        if self._tpe is None:
            self._tpe = TpeTuner(self.space, self.objective)
            self._tpe.experiment_seed = self.experiment_seed
            self._tpe.load_state_dict(self.state_dict())
        suggested = self._tpe.suggest(0, rng)  # weighed by success, as this is
        assert isinstance(suggested, dict)  # noqa: S101  # it always has one
        return suggested


def _improvement(belief: Belief, best: float) -> Any:
    return lambda rows: log_expected_improvement(*belief.at_end(rows), best)


def _of_two(beliefs: list[Belief], means: Sequence[Vector]) -> Any:
    points = np.column_stack(list(means))
    kept = points[front(points.tolist())]
    reference = kept.max(axis=0) + MARGIN * (kept.max(axis=0) - kept.min(axis=0))
    reference = np.maximum(reference, np.median(points, axis=0))

    def acquisition(rows: Rows) -> Vector:
        (mean, deviation), (other_mean, other_deviation) = (belief.at_end(rows) for belief in beliefs)
        return expected_hypervolume_improvement(
            (mean, other_mean), (deviation, other_deviation), front=kept, reference=reference
        )

    return acquisition


def _of_many(beliefs: list[Belief], means: Sequence[Vector], weights: Vector) -> Any:
    """A random weighing of the objectives, as in ParEGO (Knowles, 2006), on what the processes believe."""
    points = np.column_stack(list(means))
    least, extent = points.min(axis=0), np.maximum(np.ptp(points, axis=0), 1e-9)
    best = float(_weighed((points - least) / extent, weights).min())

    def acquisition(rows: Rows) -> Vector:
        predicted = [belief.at_end(rows) for belief in beliefs]
        units = (np.column_stack([mean for mean, _ in predicted]) - least) / extent
        spread = np.column_stack([deviation for _, deviation in predicted]) / extent
        deviation = np.sqrt(((weights * spread) ** 2).sum(axis=1))
        return log_expected_improvement(_weighed(units, weights), deviation, best)

    return acquisition


def _weighed(units: Rows, weights: Vector) -> Vector:
    value: Vector = (units * weights).max(axis=1) + 0.05 * (units * weights).sum(axis=1)
    return value


def _spread(means: Sequence[Vector], rng: np.random.Generator) -> Any:
    """Indices of the extremes of the front and of some between."""
    points = np.column_stack(list(means))
    kept = np.array(front(points.tolist()))
    ordered = kept[np.argsort(points[kept, 0], kind="stable")]
    if len(ordered) <= CENTRES:
        return ordered
    between = rng.choice(ordered[1:-1], CENTRES - 2, replace=False)
    return np.concatenate([ordered[[0, -1]], between])


def _reach(note: TrialNote, longest: int) -> float:
    """How far a trial came: 1 where it ended by itself; where it was stopped, its logarithmic share of the longest."""
    if note.state != PRUNED or note.step is None or longest <= 1:
        return 1.0
    return math.log(max(note.step, 1)) / math.log(longest)


def _trust_in(belief: Belief) -> float:
    """Rank correlation between each target and what all others predict for it."""
    predicted, _ = belief.process.left_out(belief.targets)
    return rank_correlation(predicted, belief.targets)

"""``pb2``: population based training whose changes come from a model.

Parker-Holder, Nguyen and Roberts, "Provably Efficient Online Hyperparameter Optimization with Population-Based
Bandits", 2020. A Gaussian process learns how much an interval improved a trial from where the interval began, the loss
before it and the parameters it ran with; older intervals count less. A fork gets the parameters, among random ones and
small changes of its source's, with the highest upper confidence bound. Forks that run already count as known, with the
improvement that is expected of them, so that parallel ones differ.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner_service.advisors.pbt import Member, Pbt, scaled
from tuner_service.domain.experiment import Objective
from tuner_service.domain.ranges import Choice
from tuner_service.domain.search_space import SearchSpace
from tuner_service.domain.trial import Decision, Parameters, Report, TrialOutcome

DATA_LIMIT = 300  # the newest intervals that the model is fitted to
LEAST_DATA = 4  # with fewer, parameters are drawn at random
CANDIDATES = 200
SMALL_CHANGES = 50  # of them
FORGETTING = 0.1  # per interval: how fast older ones lose their weight
NOISE = 1e-2  # variance, of standardised improvements
LIMIT = 1e150  # of losses and improvements, which are subtracted and squared
LENGTHS = (0.1, 0.2, 0.4, 0.8, 1.6)  # length scales of the kernel, in the unit cube; the likeliest is taken

Matrix = NDArray[np.float64]
Datum = tuple[int, float, list[float], float]  # (interval, loss before, point, improvement)


class Pb2(Pbt):
    def __init__(  # noqa: PLR0913  # its options, by keyword
        self,
        space: SearchSpace,
        objective: Objective,
        *,
        population_size: int = 10,
        interval: int = 5,
        max_step: int = 100,
        quantile: float = 0.25,
        explored: str = "",
    ) -> None:
        super().__init__(
            space,
            objective,
            population_size=population_size,
            interval=interval,
            max_step=max_step,
            quantile=quantile,
            explored=explored,
        )
        self._data: list[Datum] = []
        self._before: dict[int, float] = {}  # loss with which a running trial began its interval

    def explore(self, source: Member, rng: random.Random) -> Parameters:
        candidates = [point for point in self._candidates(source, rng) if self.space.encode(point) is not None]
        if len(self._data) < LEAST_DATA or not candidates:
            return candidates[0] if candidates else super().explore(source, rng)
        now = source.step // self._interval
        points = np.array([self._features(now, source.loss, self._encoded(point)) for point in candidates])
        bound = self._upper_bounds(points)
        return candidates[int(np.argmax(bound))]

    def _candidates(self, source: Member, rng: random.Random) -> list[Parameters]:
        drawn = [
            self.changed(source.parameters, lambda range_, _: range_.sample(rng))
            for _ in range(CANDIDATES - SMALL_CHANGES)
        ]
        near = [
            self.changed(
                source.parameters,
                lambda range_, value: (
                    range_.sample(rng)
                    if value is None or isinstance(range_, Choice)
                    else scaled(range_, value, rng.uniform(0.8, 1.25))
                ),
            )
            for _ in range(SMALL_CHANGES)
        ]
        return drawn + near

    # ── what it learns ──────────────────────────────────────────────────────────────────────────
    def decided(self, decision: Decision) -> None:
        super().decided(decision)
        member = self._members[decision.number]
        source = self._members.get(decision.forked_from or 0)
        loss = member.loss if source is None else source.loss
        if loss is None or math.isinf(loss):
            self._before.pop(decision.number, None)
        else:
            self._before[decision.number] = loss

    def rested(self, trial: int, reports: Sequence[Report]) -> None:
        began = self._members[trial].step
        super().rested(trial, reports)
        member, before = self._members[trial], self._before.pop(trial, None)
        point = self.space.encode(member.parameters)
        if before is None or point is None or math.isinf(loss := member.loss or 0.0):
            return
        gain = _within(_within(before) - _within(loss))
        self._data.append((began // self._interval, before, list(point), gain))
        del self._data[:-DATA_LIMIT]

    def ended(self, outcome: TrialOutcome, reports: Sequence[Report]) -> None:
        super().ended(outcome, reports)
        self._before.pop(outcome.number, None)

    def update_search_space(self, space: SearchSpace) -> None:
        """What it learned are points of the old space."""
        super().update_search_space(space)
        self._data = []

    def state_dict(self) -> dict[str, Any]:
        data = [list(datum) for datum in self._data]
        return {**super().state_dict(), "data": data, "before": list(self._before.items())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._data = [(began, before, list(point), gain) for began, before, point, gain in state["data"]]
        self._before = dict(state["before"])

    # ── the model ───────────────────────────────────────────────────────────────────────────────
    def _encoded(self, parameters: Parameters) -> list[float]:
        return list(self.space.encode(parameters) or ())

    def _features(self, interval: int, loss: float | None, point: list[float]) -> list[float]:
        losses = [_within(before) for _, before, _, _ in self._data]
        low, high = min(losses, default=0.0), max(losses, default=1.0)
        place = 0.5 if loss is None or high <= low else min(max((_within(loss) - low) / (high - low), 0.0), 1.0)
        return [float(interval), place, *point]

    def _upper_bounds(self, candidates: Matrix) -> Matrix:
        """Shape (n,): mean and spread of the improvement of each candidate, forks that run included as expected."""
        known = np.array([self._features(began, before, point) for began, before, point, _ in self._data])
        raw = np.array([_within(gain) for *_, gain in self._data])
        gains = np.asarray((raw - raw.mean()) / (float(raw.std()) or 1.0), dtype=np.float64)
        length = max(LENGTHS, key=lambda scale: _log_likelihood(known, gains, scale))
        for trial, before in self._before.items():
            member = self._members[trial]
            point = self.space.encode(member.parameters)
            if point is not None:
                running = np.array([self._features(member.step // self._interval, before, list(point))])
                expected, _ = _posterior(known, gains, running, length)
                known, gains = np.vstack([known, running]), np.append(gains, expected)
        mean, deviation = _posterior(known, gains, candidates, length)
        weight = math.sqrt(max(0.2, 0.2 + math.log(0.4 * len(known))))
        return mean + weight * deviation


def _within(value: float) -> float:
    return min(max(value, -LIMIT), LIMIT)


def _kernel(one: Matrix, other: Matrix, length: float) -> Matrix:
    """Shapes (n, d) and (m, d) to (n, m). The first column is the interval: with it similarity fades."""
    squares = ((one[:, None, 1:] - other[None, :, 1:]) ** 2).sum(axis=2)
    apart = np.abs(one[:, None, 0] - other[None, :, 0])
    kernel: Matrix = np.exp(-squares / (2 * length**2)) * (1 - FORGETTING) ** (apart / 2)
    return kernel


def _factor(known: Matrix, length: float) -> Matrix:
    kernel = _kernel(known, known, length) + NOISE * np.eye(len(known))
    return np.asarray(np.linalg.cholesky(kernel), dtype=np.float64)


def _log_likelihood(known: Matrix, gains: Matrix, length: float) -> float:
    factor = _factor(known, length)
    solved = np.linalg.solve(factor, gains)
    return float(-0.5 * solved @ solved - np.log(np.diag(factor)).sum())


def _posterior(known: Matrix, gains: Matrix, candidates: Matrix, length: float) -> tuple[Matrix, Matrix]:
    """Mean and standard deviation at each candidate; shapes (n,) and (n,)."""
    factor = _factor(known, length)
    across = np.linalg.solve(factor, _kernel(known, candidates, length))
    mean: Matrix = across.T @ np.linalg.solve(factor, gains)
    deviation: Matrix = np.sqrt(np.maximum(1.0 + NOISE - (across**2).sum(axis=0), 1e-12))
    return mean, deviation

"""``wilcoxon``: stop a trial that is surely worse than the best one, over folds or instances.

Optuna's WilcoxonPruner, for trials that evaluate the same parameters on several folds (or problem instances, seeds)
and report each fold's value at a step of its own. The values are compared pair by pair with those that the best trial
had at the same steps, by Wilcoxon's signed-rank test ("Individual Comparisons by Ranking Methods", 1945): a trial is
stopped when it is worse with a probability of error below ``p_threshold``, and worse on average.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from operator import add
from typing import Any, ClassVar, Self

from tuner_service.assessors.base import Assessor, Keep, Stop, Verdict
from tuner_service.assessors.losses import loss_of, read, shown, written
from tuner_service.domain.experiment import Objective
from tuner_service.domain.trial import Report, TrialOutcome, TrialStatus

STEP_LIMIT = 10_000  # folds of the best trial that are remembered
EXACT_UP_TO = 50  # folds: the distribution is counted out, as SciPy does; above it is taken as normal
PROBABILITIES_KEPT = 4_096
FOLDS_REMEMBERED = 100  # more than these, with ties among them, are tested anew each time


class Wilcoxon(Assessor):
    learns_while_assessing: ClassVar[bool] = False

    def __init__(self, objective: Objective, *, p_threshold: float = 0.1, min_folds: int = 4) -> None:
        super().__init__(objective)
        self._p_threshold, self._min_folds = p_threshold, min_folds
        self._best: float = math.inf
        self._folds: dict[int, float] = {}  # step → loss of the best trial; replaced as a whole, so a fork shares it

    def assess(self, trial: int, reports: Sequence[Report]) -> Verdict:  # noqa: ARG002  # the port's signature
        if reports[-1].step not in self._folds:
            return Keep()
        pairs = [
            (loss_of(self.objective, report.value), self._folds[report.step])
            for report in reports[:STEP_LIMIT]
            if report.step in self._folds
        ]
        if any(math.isinf(loss) for loss, _ in pairs):
            return Stop(f"at step {reports[-1].step} one of its values is no finite number, and the best trial's are")
        differences = [loss - best for loss, best in pairs]
        if len(pairs) < self._min_folds or sum(differences) <= 0:
            return Keep()
        probability = _probability_of_error(differences)
        if not probability < self._p_threshold:
            return Keep()
        mean, best = (sum(column) / len(pairs) for column in zip(*pairs, strict=True))
        return Stop(
            f"over {len(pairs)} folds it is worse than the best trial ({shown(self.objective, mean)} on average, not "
            f"{shown(self.objective, best)}) with a probability of error of {probability:.2g}"
        )

    def ended(self, outcome: TrialOutcome, reports: Sequence[Report]) -> None:
        loss = loss_of(self.objective, outcome.value)
        if outcome.status is not TrialStatus.SUCCEEDED or not loss < self._best:
            return
        self._best = loss
        folds = ((report.step, loss_of(self.objective, report.value)) for report in reports[:STEP_LIMIT])
        self._folds = {step: fold for step, fold in folds if math.isfinite(fold)}

    def fork(self) -> Self:
        forked = type(self)(self.objective, p_threshold=self._p_threshold, min_folds=self._min_folds)
        forked._best, forked._folds = self._best, self._folds  # noqa: SLF001  # of its own class
        return forked

    def state_dict(self) -> dict[str, Any]:
        return {"version": 1, "best": written(self._best), "folds": list(self._folds.items())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._best, self._folds = read(state["best"]), dict(state["folds"])


def _probability_of_error(differences: Sequence[float]) -> float:
    """That the trial is not worse, one-sided; ties with the best are shared out between both sides.

    It depends on the signs and ranks of the differences only; those with ties come again and again.
    """
    if not any(differences):
        return 1.0
    ordered = sorted(differences, key=lambda difference: (abs(difference), difference))
    sizes = [abs(difference) for difference in ordered]
    if sizes[0] and not any(size == following for size, following in pairwise(sizes)):
        if len(ordered) > EXACT_UP_TO:
            return _tested(ordered)
        return _probabilities(len(ordered))[sum(rank for rank, each in enumerate(ordered, start=1) if each > 0)]
    ranks = tuple(math.copysign(bisect_left(sizes, abs(each)) + 1, each) if each else 0.0 for each in ordered)
    return _with_ties(ranks) if len(ranks) <= FOLDS_REMEMBERED else _tested(ranks)


@lru_cache(maxsize=EXACT_UP_TO + 1)
def _ways(count: int) -> tuple[int, ...]:
    """In how many of the 2 ** ``count`` choices of signs the positive ranks have each sum."""
    if count == 0:
        return (1,)
    without = _ways(count - 1)
    shift = (0,) * count
    return tuple(map(add, without + shift, shift + without))


@lru_cache(maxsize=EXACT_UP_TO + 1)
def _probabilities(count: int) -> tuple[float, ...]:
    """Of each sum, or a larger one, where a difference is as likely positive as negative."""
    at_least = tuple(accumulate(reversed(_ways(count))))
    return tuple(number / 2**count for number in reversed(at_least))


def _tested(differences: Sequence[float]) -> float:
    from scipy.stats import wilcoxon

    return float(wilcoxon(differences, alternative="greater", zero_method="zsplit").pvalue)


_with_ties = lru_cache(maxsize=PROBABILITIES_KEPT)(_tested)

"""Learning curves of one experiment, kept from question to question: every report is read once, few points are kept."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tuner_service.analyst.down_sampling import down_sampled
from tuner_service.domain.experiment import ExperimentId
from tuner_service.domain.trial import FINAL_STATUSES
from tuner_service.ports import Queries, TrialEntry
from tuner_service.service.questions import Check

POINTS_KEPT = 2_000  # of one curve; as many again before they are thinned out
CURVES_KEPT = 4_000  # of one experiment, those asked for last
REPORTS_READ = 1_000_000  # for one answer; the rest is read for the next ones, and the curves say that it is missing
REPORTS_PAGE = 10_000  # of one trial at a time, so that one with many reports does not leave the others without
_FINAL = frozenset(status.value for status in FINAL_STATUSES)


@dataclass(slots=True)
class KeptCurve:
    """Ascending ``steps`` and the values beside them. ``place``: the report it has been read to."""

    steps: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    place: tuple[int, int] = (0, 0)
    complete: bool = False  # no further report was there when it was read
    settled: bool = False  # nor will there be one


class KeptCurves:
    """One thread."""

    def __init__(self, queries: Queries, experiment_id: ExperimentId, *, reports_are_cut: bool) -> None:
        """``reports_are_cut``: of a trial that ends, late reports may be taken back (deterministic experiments)."""
        self._queries, self._experiment_id, self._cut = queries, experiment_id, reports_are_cut
        self._curves: OrderedDict[int, KeptCurve] = OrderedDict()

    def read(self, trials: Sequence[TrialEntry], check: Check) -> list[KeptCurve]:
        """The curve of each, as far as it was read: all of REPORTS_READ reports at most."""
        with self._queries.snapshot():
            found = [self._begun(trial) for trial in trials]
            left, behind = REPORTS_READ, [pair for pair in zip(trials, found, strict=True) if not pair[1].settled]
            while behind and left > 0:
                for trial, curve in behind:
                    check()
                    left -= self._read_page(trial, curve)
                    if left <= 0:
                        break
                behind = [pair for pair in behind if not pair[1].complete]
        while len(self._curves) > max(CURVES_KEPT, len(trials)):
            self._curves.popitem(last=False)
        return found

    def _begun(self, trial: TrialEntry) -> KeptCurve:
        curve = self._curves.get(trial.number)
        if curve is None or (self._cut and not curve.settled and _is_settled(trial)):
            curve = self._curves[trial.number] = KeptCurve()
        self._curves.move_to_end(trial.number)
        curve.complete = curve.settled
        return curve

    def _read_page(self, trial: TrialEntry, curve: KeptCurve) -> int:
        page = self._queries.curve_points(self._experiment_id, trial.number, after=curve.place, limit=REPORTS_PAGE)
        if page:
            curve.place = page[-1].attempt, page[-1].sequence
            _add(curve, ((point.step, point.value) for point in page))
        curve.complete = len(page) < REPORTS_PAGE
        curve.settled = curve.complete and _is_settled(trial)
        return len(page)


def _is_settled(trial: TrialEntry) -> bool:
    return trial.status in _FINAL and trial.told_line is not None


def _add(curve: KeptCurve, points: Iterable[tuple[int, float]]) -> None:
    """Points that are left out here were neither the least nor the greatest where they stood, so no later look does."""
    steps, values = curve.steps, curve.values
    in_order = True
    for step, value in points:
        in_order = in_order and (not steps or step > steps[-1])
        steps.append(step)
        values.append(value)
    if not in_order:  # a script may report its steps in any order
        order = sorted(range(len(steps)), key=steps.__getitem__)
        steps[:], values[:] = [steps[place] for place in order], [values[place] for place in order]
    if len(steps) > 2 * POINTS_KEPT:
        places = down_sampled(values, POINTS_KEPT)
        steps[:], values[:] = [steps[place] for place in places], [values[place] for place in places]

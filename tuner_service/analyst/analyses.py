"""What an experiment has found, for people: the best, the front, slices, learning curves, whether going on is worth it.

Judged from its trials as they are kept. Every list has a bound, above which points are left out evenly.
"""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import islice
from statistics import median
from typing import Any, NamedTuple

from tuner_service.analyst.down_sampling import down_sampled
from tuner_service.analyst.evenly import evenly
from tuner_service.analyst.failure_rules import Ended, failure_rule
from tuner_service.analyst.importance import TRIALS_LEAST, TRIALS_LIMIT, importance
from tuner_service.analyst.kept_curves import KeptCurve, KeptCurves
from tuner_service.analyst.kept_trials import KeptTrials
from tuner_service.domain.experiment import Experiment, Goal, Objective
from tuner_service.domain.objectives import Reported, front, hypervolume, losses, value_of
from tuner_service.domain.search_space import parse_search_space
from tuner_service.domain.trial import OWN_FAILURES, Parameters, TrialStatus
from tuner_service.domain.values import flattened
from tuner_service.domain.wording import counted
from tuner_service.ports import TrialEntry
from tuner_service.service.questions import Check
from tuner_service.service.views import View, objective_view, plain

POINTS_LIMIT = 2_000  # of one slice, one history
RULE_TRIALS = 10_000  # the newest that ended, of which failures are told apart by a rule
FRONT_LIMIT = 1_000  # trials of a front that are shown
HYPERVOLUME_WORK = 200_000  # points of a front, to the power of the objectives beside one; above it no volume is told
OUTLOOK_TRIALS = 4  # with fewer outcomes nothing is said about the next ones
REFERENCE_MARGIN = 0.1  # of the range of outcomes, beyond the worst: where the hypervolume ends
VALUED = (TrialStatus.SUCCEEDED, TrialStatus.EARLY_STOPPED)


class Outcome(NamedTuple):
    """A trial that succeeded. ``values``: one for each objective; ``losses`` the same for minimising."""

    entry: TrialEntry
    values: tuple[float | None, ...]
    losses: tuple[float, ...]

    @property
    def number(self) -> int:
        return self.entry.number

    @property
    def parameters(self) -> Parameters:
        return dict(json.loads(self.entry.parameters))  # few of many are looked at


@dataclass(frozen=True, kw_only=True)
class Analyses:
    """Of the trials as they were refreshed last. ``search_space`` is the newest revision."""

    experiment: Experiment
    trials: KeptTrials
    search_space: Mapping[str, Any]
    judged: Sequence[Outcome] | None = None  # the outcomes, where they are known

    @property
    def objective(self) -> Objective:
        return self.experiment.spec.objective

    def best(self) -> View:
        """The best trial (several objectives: of the first), how it was come to, and what more trials may bring."""
        found = self.outcomes
        best = min(found, key=lambda one: (one.losses[0], one.number)) if found else None
        ended = sorted(found, key=lambda one: (one.entry.ended_at or 0.0, one.number))
        return {
            "id": self.experiment.id,
            "objective": objective_view(self.objective),
            "trials": len(found),
            "best": None if best is None else _point(best),
            "front": self._front(found) if self.objective.further else [],
            "history": _history([(one.number, one.losses[0], one.values[0]) for one in ended]),
            "outlook": outlook([one.losses[0] for one in ended], trials_left(self.experiment)),
        }

    def pareto(self) -> View:
        """The trials that no other dominates, and the volume that they dominate up to ``reference``."""
        found = self.outcomes
        points = [one.losses for one in found]
        reference = _reference(points)
        shown = self._front(found)
        return {
            "id": self.experiment.id,
            "objectives": [{"metric": one.metric, "goal": one.goal.value} for one in self.objective.every],
            "front": shown[:FRONT_LIMIT],
            "left_out": max(0, len(shown) - FRONT_LIMIT),
            "others": [{"number": o.number, "values": plain(o.values)} for o in evenly(found, POINTS_LIMIT)],
            "reference": plain([_signed(one, value) for one, value in _paired(self.objective, reference)]),
            "hypervolume": plain(hypervolume(points, reference)) if points and self._is_measured(len(shown)) else None,
        }

    def slices(self) -> View:
        """For each parameter its values and the objectives' values beside them, trial by trial."""
        found: dict[str, tuple[list[int], list[Any], list[Any]]] = {}
        for outcome in evenly(self.outcomes, POINTS_LIMIT):
            values, number = plain(outcome.values), outcome.number
            for name, value in flattened(outcome.parameters, "").items():
                numbers, parameter, beside = found.get(name) or found.setdefault(name, ([], [], []))
                numbers.append(number)
                parameter.append(value if type(value) is float and math.isfinite(value) else plain(value))
                beside.append(values)
        slices = {
            name: {"numbers": numbers, "parameter": parameter, "values": beside}
            for name, (numbers, parameter, beside) in found.items()
        }
        return {"id": self.experiment.id, "objective": objective_view(self.objective), "slices": slices}

    def failures(self) -> View:
        """Which parameter makes trials fail, of the newest trials that ended: the simplest rule, where one holds."""
        counted = {status.value for status in (*VALUED, TrialStatus.FAILED)}
        failed = TrialStatus.FAILED.value
        newest = (
            entry
            for entry in reversed(self.trials.entries)
            if entry.status in counted and (entry.status != failed or entry.reason in OWN_FAILURES)
        )
        looked_at = list(islice(newest, RULE_TRIALS))[::-1]  # of the others no parameters are read
        ended: list[Ended] = [
            (flattened(dict(json.loads(entry.parameters)), ""), entry.status == failed) for entry in looked_at
        ]
        rule = failure_rule(ended)
        return {
            "id": self.experiment.id,
            "ended": len(ended),
            "failed": sum(has_failed for _, has_failed in ended),
            "rule": None if rule is None else {**plain(asdict(rule)), "sentence": rule.sentence},
        }

    def curves(self, kept: KeptCurves, *, limit: int, points: int, check: Check) -> View:
        """Learning curves of the first objective: those of the best trials, then of the newest, ``limit`` in all."""
        trials = [entry for entry in self.trials.entries if entry.step is not None]
        maximize = self.objective.goal is Goal.MAXIMIZE
        ranked = heapq.nsmallest(limit, trials, key=lambda t: _rank(t.value, maximize=maximize))  # as sorted has them
        newest = trials[max(0, len(trials) - limit // 2) :]
        # The newest ones may be among the best ones; then there is room for more of these.
        chosen = dict(islice({t.number: t for t in [*newest, *ranked]}.items(), limit))
        shown = [chosen[number] for number in sorted(chosen)]
        curves = kept.read(shown, check)
        return {
            "id": self.experiment.id,
            "metric": self.objective.metric,
            "curves": [_curve_view(trial, curve, points) for trial, curve in zip(shown, curves, strict=True)],
            "left_out": len(trials) - len(shown),
        }

    def importance(self, metric: str | None) -> View:
        """How much each parameter matters for one objective, the first unless ``metric`` names another."""
        asked = self.importance_input(metric)
        count, shares = len(asked["losses"]), {}
        message = f"{counted(count, 'trial')} with a value; with {TRIALS_LEAST} it can be told"
        if count >= TRIALS_LEAST:
            space = parse_search_space(dict(self.search_space))
            message, shares = "", importance(space, asked["parameters"], asked["losses"])
        return {
            "id": self.experiment.id,
            "metric": metric or self.objective.metric,
            "importance": shares,
            "trials": count,
            "message": message,
        }

    def importance_input(self, metric: str | None) -> View:
        """What importance is judged by: parameters and losses of one objective, of many trials some that lie evenly."""
        place = next((i for i, one in enumerate(self.objective.every) if one.metric == metric), 0)
        finite = evenly([(o, o.losses[place]) for o in self.outcomes if math.isfinite(o.losses[place])], TRIALS_LIMIT)
        return {
            "parameters": [o.parameters for o, _ in finite],
            "losses": [loss for _, loss in finite],
        }

    def _is_measured(self, points: int) -> bool:
        """Whether the volume below a front of so many is computed: the work grows with each objective."""
        return points <= FRONT_LIMIT and points ** (len(self.objective.every) - 1) <= HYPERVOLUME_WORK

    def _front(self, found: Sequence[Outcome]) -> list[View]:
        return [_point(found[index]) for index in front([one.losses for one in found])]

    @cached_property
    def outcomes(self) -> Sequence[Outcome]:
        """Of the trials that succeeded those with a value of every objective, by number."""
        if self.judged is not None:
            return self.judged
        if not self.objective.further:
            return list(_of_one(self.trials.entries, self.objective))
        found = []
        for entry in self.trials.entries:
            if entry.status == TrialStatus.SUCCEEDED.value:
                values = (entry.value, *self._further_values(entry))
                loss = losses(self.objective, values)
                if loss is not None:
                    found.append(Outcome(entry=entry, values=values, losses=loss))
        return found

    def _further_values(self, entry: TrialEntry) -> Iterator[float | None]:
        source = self.experiment.spec.trial.final
        reported = Reported(
            status=TrialStatus(entry.status), final=json.loads(entry.final), last=json.loads(entry.last_metrics)
        )
        return (value_of(reported, one, source) for one in self.objective.further)


def _of_one(entries: Sequence[TrialEntry], objective: Objective) -> Iterator[Outcome]:
    """As ``losses`` has it; an experiment may have a hundred thousand trials."""
    sign, succeeded = (-1.0 if objective.goal is Goal.MAXIMIZE else 1.0), TrialStatus.SUCCEEDED.value
    for entry in entries:
        value = entry.value
        if entry.status == succeeded and value is not None and not math.isnan(value):
            yield Outcome(entry, (value,), (sign * value,))


def trials_left(experiment: Experiment) -> int | None:
    """Of the budget; None without one."""
    trials = experiment.spec.budget.trials
    if trials is None:
        return None
    return max(0, trials - sum(experiment.counts.get(status.value, 0) for status in VALUED))


def outlook(losses_so_far: Sequence[float], left: int | None) -> View | None:
    """How likely more trials are to beat the best, judged by how often it was beaten in the later half of the search.

    Improvements are taken to come as often as there (a Poisson process with Jeffreys' prior for its rate); as they grow
    rarer while a search goes on, the chance is rather an upper bound. None with fewer than OUTLOOK_TRIALS outcomes.
    """
    count = len(losses_so_far)
    if count < OUTLOOK_TRIALS:
        return None
    gains: list[tuple[int, float]] = []
    best = losses_so_far[0]
    for place, loss in enumerate(losses_so_far[1:], start=1):
        if loss < best:
            gains.append((place, best - loss))
            best = loss
    later = [gain for place, gain in gains if place >= count / 2]
    half, more = count - math.ceil(count / 2), left or max(1, count // 2)
    chance = 1.0 - (1.0 + more / half) ** -(len(later) + 0.5)
    since = count - 1 - (gains[-1][0] if gains else 0)
    return {
        "trials": count,
        "since_improvement": since,
        "improvements_in_later_half": len(later),
        "typical_gain": plain(median(later)) if later else None,
        "more_trials": more,
        "chance_of_improvement": round(chance, 3),
        "message": _advice(chance, more=more, since=since, left=left),
    }


def _advice(chance: float, *, more: int, since: int, left: int | None) -> str:
    what = f"the {counted(more, 'trial')} left" if left else f"{counted(more, 'more trial')}"
    odds = f"about {chance:.0%} for {what} to beat the best, which has stood for {counted(since, 'trial')}"
    if chance >= 0.6:
        return f"worth going on: {odds}"
    if chance >= 0.3:
        return f"may be worth going on: {odds}"
    return f"little more to be expected: {odds}"


def _history(ended: Sequence[tuple[int, float, float | None]]) -> View:
    """The best so far after each trial, in the order in which they ended."""
    numbers: list[int] = []
    values: list[Any] = []
    best = math.inf
    shown: float | None = None
    for number, loss, value in ended:
        if loss < best or shown is None:
            best, shown = loss, value
        numbers.append(number)
        values.append(shown)
    places = evenly(range(len(numbers)), POINTS_LIMIT)
    return {"numbers": [numbers[place] for place in places], "values": [plain(values[place]) for place in places]}


def _point(outcome: Outcome) -> View:
    return {
        "number": outcome.number,
        "value": plain(outcome.values[0]),
        "values": plain(outcome.values),
        "parameters": plain(outcome.parameters),
    }


def _reference(points: Sequence[tuple[float, ...]]) -> tuple[float, ...]:
    """A little worse than the worst finite loss of each objective."""
    reference = []
    for column in zip(*points, strict=True):
        finite = [value for value in column if math.isfinite(value)] or [0.0]
        reference.append(max(finite) + REFERENCE_MARGIN * ((max(finite) - min(finite)) or 1.0))
    return tuple(reference)


def _paired(objective: Objective, reference: Sequence[float]) -> Iterator[tuple[Objective, float]]:
    return zip(objective.every, reference, strict=False)


def _signed(objective: Objective, loss: float) -> float:
    return -loss if objective.goal.value == "maximize" else loss


def _curve_view(trial: TrialEntry, curve: KeptCurve, points: int) -> View:
    places = down_sampled(curve.values, points)
    return {
        "number": trial.number,
        "status": trial.status,
        "steps": [curve.steps[place] for place in places],
        "values": [plain(curve.values[place]) for place in places],
        "complete": curve.complete,
    }


def _rank(value: float | None, *, maximize: bool) -> float:
    if value is None or math.isnan(value):
        return math.inf
    return -value if maximize else value

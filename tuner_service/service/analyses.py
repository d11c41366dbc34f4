"""What an experiment has found, for people: the best, the front, slices, learning curves, whether going on is worth it.

Read from the trials' rows; nothing is kept here. Every list has a bound, above which points are left out evenly.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from tuner_service.domain.experiment import Experiment, Objective
from tuner_service.domain.objectives import front, further_values, hypervolume, losses
from tuner_service.domain.search_space import parse_search_space
from tuner_service.domain.trial import OWN_FAILURES, Parameters, Trial, TrialStatus
from tuner_service.ports import Queries, TrialEntry
from tuner_service.service.export import PARAMETERS, flattened
from tuner_service.service.failure_rules import Ended, failure_rule
from tuner_service.service.importance import TRIALS_LEAST, TRIALS_LIMIT, importance
from tuner_service.service.views import View, objective_view, plain

TRIALS_PAGE = 1_000
POINTS_LIMIT = 2_000  # of one slice, one history
RULE_TRIALS = 10_000  # the newest that ended, of which failures are told apart by a rule
FRONT_LIMIT = 1_000  # trials of a front that are shown
HYPERVOLUME_WORK = 200_000  # points of a front, to the power of the objectives beside one; above it no volume is told
CURVES_LIMIT = 100  # trials whose curves are shown
CURVE_POINTS = 200  # of one learning curve
METRICS_LIMIT = 100_000  # reports of one trial that are looked at
OUTLOOK_TRIALS = 4  # with fewer outcomes nothing is said about the next ones
REFERENCE_MARGIN = 0.1  # of the range of outcomes, beyond the worst: where the hypervolume ends
VALUED = (TrialStatus.SUCCEEDED, TrialStatus.EARLY_STOPPED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A trial that succeeded. ``values``: one for each objective; ``losses`` the same for minimising, None for NaN."""

    number: int
    ended_at: float
    values: tuple[float | None, ...]
    losses: tuple[float, ...] | None
    given: Parameters | str  # as JSON, where it was read as such: few of many are looked at

    @property
    def parameters(self) -> Parameters:
        return dict(json.loads(self.given)) if isinstance(self.given, str) else self.given


@dataclass(frozen=True, kw_only=True)
class Analyses:
    queries: Queries
    experiment: Experiment
    check: Callable[[], None] = lambda: None  # called now and then; raises where nobody wants the answer any more

    @property
    def objective(self) -> Objective:
        return self.experiment.spec.objective

    def best(self) -> View:
        """The best trial (several objectives: of the first), how it was come to, and what more trials may bring."""
        outcomes = self._outcomes()
        found = [(o, o.losses) for o in outcomes if o.losses is not None]
        best = min(found, key=lambda one: (one[1][0], one[0].number))[0] if found else None
        ended = sorted(found, key=lambda one: (one[0].ended_at, one[0].number))
        return {
            "id": self.experiment.id,
            "objective": objective_view(self.objective),
            "best": None if best is None else _point(best),
            "front": self._front(found) if self.objective.further else [],
            "history": _history([(o.number, loss[0], o.values[0]) for o, loss in ended]),
            "outlook": outlook([loss[0] for _, loss in ended], self._trials_left()),
        }

    def pareto(self) -> View:
        """The trials that no other dominates, and the volume that they dominate up to ``reference``."""
        found = [(o, o.losses) for o in self._outcomes() if o.losses is not None]
        points = [loss for _, loss in found]
        reference = _reference(points)
        shown = self._front(found)
        return {
            "id": self.experiment.id,
            "objectives": [{"metric": one.metric, "goal": one.goal.value} for one in self.objective.every],
            "front": shown[:FRONT_LIMIT],
            "left_out": max(0, len(shown) - FRONT_LIMIT),
            "others": [{"number": o.number, "values": plain(o.values)} for o, _ in _evenly(found, POINTS_LIMIT)],
            "reference": plain([_signed(one, value) for one, value in _paired(self.objective, reference)]),
            "hypervolume": plain(hypervolume(points, reference)) if points and self._is_measured(len(shown)) else None,
        }

    def slices(self) -> View:
        """For each parameter its values and the objectives' values beside them, trial by trial."""
        outcomes = _evenly([o for o in self._outcomes() if o.losses is not None], POINTS_LIMIT)
        slices: dict[str, View] = {}
        for outcome in outcomes:
            for name, value in flattened(outcome.parameters, PARAMETERS).items():
                name = name.removeprefix(PARAMETERS)  # noqa: PLW2901  # the name that people know
                column = slices.setdefault(name, {"numbers": [], "parameter": [], "values": []})
                column["numbers"].append(outcome.number)
                column["parameter"].append(plain(value))
                column["values"].append(plain(outcome.values))
        return {"id": self.experiment.id, "objective": objective_view(self.objective), "slices": slices}

    def failures(self) -> View:
        """Which parameter makes trials fail, of the newest trials that ended: the simplest rule, where one holds."""
        ended: deque[Ended] = deque(maxlen=RULE_TRIALS)
        for entry in self._entries([status.value for status in (*VALUED, TrialStatus.FAILED)]):
            failed = entry.status == TrialStatus.FAILED.value
            if not failed or entry.reason in OWN_FAILURES:
                flat = flattened(dict(json.loads(entry.parameters)), PARAMETERS)
                ended.append(({name.removeprefix(PARAMETERS): value for name, value in flat.items()}, failed))
        rule = failure_rule(ended)
        return {
            "id": self.experiment.id,
            "ended": len(ended),
            "failed": sum(failed for _, failed in ended),
            "rule": None if rule is None else {**plain(asdict(rule)), "sentence": rule.sentence},
        }

    def curves(self, *, limit: int, points: int) -> View:
        """Learning curves of the first objective: those of the best trials, then of the newest, ``limit`` in all."""
        trials = [entry for entry in self._entries() if entry.step is not None]
        better = self.objective.goal.value == "maximize"
        ranked = sorted(trials, key=lambda t: _rank(t.value, maximize=better))[: limit - limit // 2]
        newest = trials[len(trials) - limit // 2 :] if len(trials) > limit else trials
        chosen = {trial.number: trial for trial in [*ranked, *newest]}
        return {
            "id": self.experiment.id,
            "metric": self.objective.metric,
            "curves": [self._curve(chosen[number], points) for number in sorted(chosen)[:limit]],
            "left_out": max(0, len(trials) - limit),
        }

    def importance(self, metric: str | None) -> View:
        """How much each parameter matters for one objective, the first unless ``metric`` names another."""
        asked = self.importance_input(metric)
        count, shares = len(asked["losses"]), {}
        message = f"{count} trials have a value; with {TRIALS_LEAST} it can be told"
        if count >= TRIALS_LEAST:
            space = parse_search_space(asked["search_space"])
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
        found = [(o, o.losses[place]) for o in self._outcomes() if o.losses is not None]
        finite = _evenly([(o, loss) for o, loss in found if math.isfinite(loss)], TRIALS_LIMIT)
        return {
            "search_space": self.queries.search_space(self.experiment.id),
            "parameters": [o.parameters for o, _ in finite],
            "losses": [loss for _, loss in finite],
        }

    def revision(self) -> str:
        """Another one whenever the outcomes, and what is told of them, may have changed."""
        experiment = self.experiment
        succeeded = experiment.counts.get(TrialStatus.SUCCEEDED.value, 0)
        space = json.dumps(self.queries.search_space(experiment.id), sort_keys=True)
        return f"{succeeded}/{self._trials_left()}/{hashlib.sha256(space.encode()).hexdigest()}"

    def failures_revision(self) -> str:
        """The same, of ``failures``."""
        counts = self.experiment.counts
        return "/".join(str(counts.get(status.value, 0)) for status in (*VALUED, TrialStatus.FAILED))

    def _is_measured(self, points: int) -> bool:
        """Whether the volume below a front of so many is computed: the work grows with each objective."""
        return points <= FRONT_LIMIT and points ** (len(self.objective.every) - 1) <= HYPERVOLUME_WORK

    def _front(self, found: Sequence[tuple[Outcome, tuple[float, ...]]]) -> list[View]:
        return [_point(found[index][0]) for index in front([loss for _, loss in found])]

    def _curve(self, trial: TrialEntry, points: int) -> View:
        seen: dict[int, float] = {}
        for report in self.queries.metrics(self.experiment.id, trial.number, limit=METRICS_LIMIT):
            value = report.values.get(self.objective.metric)
            if report.step is not None and value is not None:
                seen.setdefault(report.step, value)
        steps = _evenly(sorted(seen), points)
        values = [plain(seen[step]) for step in steps]
        return {"number": trial.number, "status": trial.status, "steps": steps, "values": values}

    def _outcomes(self) -> list[Outcome]:
        spec, statuses = self.experiment.spec, (TrialStatus.SUCCEEDED.value,)
        if not spec.objective.further:  # then a few columns of each tell everything
            entries = self._entries(statuses)
            return [self._outcome(one.number, one.ended_at, (one.value,), one.parameters) for one in entries]
        return [
            self._outcome(
                trial.number, trial.ended_at, (trial.value, *further_values(trial, spec)), trial.result_parameters
            )
            for trial in self._trials(statuses)
        ]

    def _outcome(
        self, number: int, ended_at: float | None, values: tuple[float | None, ...], given: Parameters | str
    ) -> Outcome:
        found = losses(self.objective, values)
        return Outcome(number=number, ended_at=ended_at or 0.0, values=values, losses=found, given=given)

    def _entries(self, statuses: Sequence[str] = ()) -> Iterator[TrialEntry]:
        after, limit = 0, TRIALS_PAGE
        while page := self.queries.trial_entries(self.experiment.id, after=after, limit=limit, statuses=statuses):
            self.check()
            yield from page
            after = page[-1].number

    def _trials(self, statuses: Sequence[str] = ()) -> Iterator[Trial]:
        after, limit = 0, TRIALS_PAGE
        while page := self.queries.trials(self.experiment.id, after=after, limit=limit, statuses=statuses):
            self.check()
            yield from page
            after = page[-1].number

    def _trials_left(self) -> int | None:
        trials = self.experiment.spec.budget.trials
        if trials is None:
            return None
        return max(0, trials - sum(self.experiment.counts.get(status.value, 0) for status in VALUED))


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
    what = f"the {more} trials left" if left else f"{more} more trials"
    odds = f"about {chance:.0%} for {what} to beat the best, which has stood for {since} trials"
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
        values.append(plain(shown))
    places = _evenly(range(len(numbers)), POINTS_LIMIT)
    return {"numbers": [numbers[place] for place in places], "values": [values[place] for place in places]}


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


def _rank(value: float | None, *, maximize: bool) -> float:
    if value is None or math.isnan(value):
        return math.inf
    return -value if maximize else value


def _evenly(items: Sequence[Any], limit: int) -> list[Any]:
    """At most ``limit`` of them, the first and the last included."""
    if len(items) <= limit:
        return list(items)
    return [items[place * (len(items) - 1) // (limit - 1)] for place in range(limit)] if limit > 1 else [items[-1]]

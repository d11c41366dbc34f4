"""``auto``: the advisor for trials that report as they go. Written for this project.

Asynchronous successive halving in its stopping form (Li et al., 2020) that compares where trials are believed to end,
and stops none that is ahead where it stands: a Gaussian process over (parameters, how far a trial has come) learns from
the reports, so a trial that learns slowly and ends well is not stopped for its slow start, and each new trial is where
the expected improvement at the end of a trial is largest. No trial needs a checkpoint.

Rungs are counted in reports, not in steps: 1, 3, 9, … of about fifty. Longer trials have them in proportion.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from tuner_service.advisors.base import Advisor, Choice, Judgement, Start
from tuner_service.advisors.draws import Draws
from tuner_service.advisors.rungs import loss_in, loss_out
from tuner_service.assessors.base import Keep, Stop
from tuner_service.domain.experiment import Objective
from tuner_service.domain.search_space import SearchSpace
from tuner_service.domain.trial import Decision, Parameters, Report, TrialOutcome, TrialStatus
from tuner_service.tuners.base import NotYet
from tuner_service.tuners.model_columns import Columns, Rows, stacked
from tuner_service.tuners.model_gp import log_expected_improvement, normal_cdf
from tuner_service.tuners.model_search import CENTRES, candidates
from tuner_service.tuners.model_surrogate import Belief, Points, Surrogate, finite

REPORTS_AT_FIRST_RUNG = 50  # a trial with so many reports in all is first compared after one of them
CANDIDATES_TRIED = 64
CHECKED_EVERY = 8  # a trusted model lets one of so many trials go on anyway, or it would never learn that it errs
NEWEST_PEERS = 30  # a trial is compared with: among all, the more the model has learned the fewer would go on
TRUSTED = 0.6  # rank correlation of predicted and true losses, below which some trials are drawn at random
RANDOM_PORTION = 0.75  # of the trials then
TRUST_POINTS = 128  # the newest trials by which that is judged
HOPE = 0.15  # probability of becoming the best, above which a trial goes on whatever its rank


@dataclass(slots=True, kw_only=True, eq=False)
class _Curve:
    """Of one trial; ``losses`` after each of its reports, ``row`` None outside the space."""

    number: int
    parameters: Parameters
    row: Rows | None
    losses: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Point:
    """What the model is told: the loss of a trial after ``count`` reports, or at its end."""

    curve: _Curve
    count: int
    loss: float
    is_end: bool


class AutoAdvisor(Advisor):
    learns_while_assessing: ClassVar[bool] = False  # what ``assess`` notes of a trial, ``ended`` tells again

    def __init__(
        self, space: SearchSpace, objective: Objective, *, reduction_factor: int = 3, n_startup_trials: int = 10
    ) -> None:
        super().__init__(space, objective)
        self._factor, self._startup = reduction_factor, n_startup_trials
        self._live: dict[int, _Curve] = {}
        self._past: list[_Curve] = []
        self._points: list[_Point] = []  # in the order in which they became known, and never changed
        self._draws = Draws(space)
        self._longest = 0  # reports of the longest trial that ran to its end; 0: none has
        self._forget()

    @property
    def choice(self) -> str:
        """What it does, and why; for people."""
        known = len(self._past) + sum(bool(curve.losses) for curve in self._live.values())
        if known < self._startup:
            return f"random: the first {self._startup} trials are drawn at random ({known} have reported)"
        return (
            f"gp: a Gaussian process over {self._columns.width} parameters and the course of {known} trials proposes; "
            f"of {self._factor} at a rung the one believed to end best goes on"
        )

    # ── the port ────────────────────────────────────────────────────────────────────────────────
    def suggest(self, number: int, rng: random.Random) -> Choice:
        if not number:
            return NotYet()  # nothing rests here
        curves = self._reported()
        if len(curves) < self._startup or not self._columns.width:
            return Start(parameters=self._draws.draw(rng))
        belief = self._believe()
        if self._trust(belief) < TRUSTED and rng.random() < RANDOM_PORTION:
            return Start(parameters=self._draws.draw(rng))
        running = [c.row for c in self._live.values() if c.row is not None]
        belief = belief.with_running(stacked(running, self._columns.width))
        rows = stacked([c.row for c in curves if c.row is not None], self._columns.width)
        means, _ = belief.at_end(rows)
        best = float(means.min())
        centres = rows[np.argsort(means, kind="stable")[:CENTRES]]
        generator = np.random.default_rng(rng.getrandbits(64))

        def acquisition(asked: Rows) -> Any:
            return log_expected_improvement(*belief.at_end(asked), best)

        for tried, row in enumerate(candidates(self._columns, centres, acquisition, generator)):
            if tried >= CANDIDATES_TRIED:
                break
            parameters = self._columns.decode(row)
            if self._draws.is_new(parameters) and self.space.admits(parameters):
                return Start(parameters=parameters)
        return Start(parameters=self._draws.draw(rng))

    def decided(self, decision: Decision) -> None:
        if decision.parameters is not None:
            self.added(decision.number, decision.parameters)

    def added(self, number: int, parameters: Parameters) -> None:
        self._draws.add(parameters)
        self._live[number] = _Curve(number=number, parameters=parameters, row=self._columns.encode(parameters))

    def assess(self, trial: int, reports: Sequence[Report]) -> Judgement:
        curve = self._live.get(trial)
        if curve is None:
            return Keep()
        self._take(curve, reports)
        count = len(curve.losses)
        if curve.row is None or not self._is_rung(count):
            return Keep()
        peers = sorted((c for c in self._reported() if len(c.losses) >= count), key=lambda c: c.number)
        ahead = sum(peer.losses[count - 1] < curve.losses[-1] for peer in peers)
        if len(peers) < self._factor or ahead <= len(peers) / self._factor:
            return Keep()  # as successive halving has it, whatever the model believes
        newest = peers[-NEWEST_PEERS:]
        if curve not in newest:
            newest.append(curve)
        ends, hope = self._expected(newest, curve, count)
        better = sum(end < ends[newest.index(curve)] for end in ends)
        if better <= len(ends) / self._factor or hope > HOPE:
            return Keep()
        return Stop(
            f"after {count} reports it is behind {ahead} of {len(peers)} trials, believed to end behind {better} of "
            f"the newest {len(ends)}, and to become the best with a probability of {hope:.2f}"
        )

    def rested(self, trial: int, reports: Sequence[Report]) -> None:
        if trial in self._live:
            self._take(self._live[trial], reports)

    def ended(self, outcome: TrialOutcome, reports: Sequence[Report]) -> None:
        self._draws.add(outcome.parameters)
        curve = self._live.pop(outcome.number, None)
        if curve is None or curve.parameters != outcome.parameters:
            row = self._columns.encode(outcome.parameters)
            curve = _Curve(number=outcome.number, parameters=outcome.parameters, row=row)
        if reports:
            self._take(curve, reports)
        if outcome.status is TrialStatus.SUCCEEDED:
            self._longest = max(self._longest, len(curve.losses))
            curve.losses = curve.losses or [self.loss_of(outcome.value)]
            self._note(curve, loss=self.loss_of(outcome.value), is_end=True)
        if curve.losses:
            self._past.append(curve)

    def update_search_space(self, space: SearchSpace) -> None:
        super().update_search_space(space)
        self._draws.move_to(space)
        self._forget()
        for curve in (*self._live.values(), *self._past):
            curve.row = self._columns.encode(curve.parameters)

    def fork(self) -> Self:
        forked = type(self)(self.space, self.objective, reduction_factor=self._factor, n_startup_trials=self._startup)
        # Of its own class; the points and the curves of trials that have ended are never changed.
        forked._past, forked._points = list(self._past), list(self._points)  # noqa: SLF001
        forked._longest, forked._columns = self._longest, self._columns  # noqa: SLF001
        for number, curve in self._live.items():
            copied = _Curve(number=number, parameters=curve.parameters, row=curve.row, losses=list(curve.losses))
            forked._live[number] = copied  # noqa: SLF001
        return forked

    def state_dict(self) -> dict[str, Any]:
        curves = [*self._past, *self._live.values()]
        places = {id(curve): place for place, curve in enumerate(curves)}
        return {
            "version": 1,
            "curves": [[c.number, c.parameters, list(map(loss_out, c.losses))] for c in curves],
            "past": len(self._past),
            "points": [[places[id(p.curve)], p.count, loss_out(p.loss), p.is_end] for p in self._points],
            "longest": self._longest,
            "draws": self._draws.state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._draws.restore(state["draws"])
        self._longest = state["longest"]
        curves = [self._read(*written) for written in state["curves"]]
        self._past = curves[: state["past"]]
        self._live = {curve.number: curve for curve in curves[state["past"] :]}
        self._points = [
            _Point(curve=curves[place], count=count, loss=loss_in(loss), is_end=is_end)
            for place, count, loss, is_end in state["points"]
        ]
        self._surrogate = Surrogate(self._columns.unordered)

    # ── what is known ───────────────────────────────────────────────────────────────────────────
    def _forget(self) -> None:
        self._columns = Columns(self.space)
        self._surrogate = Surrogate(self._columns.unordered)

    def _take(self, curve: _Curve, reports: Sequence[Report]) -> None:
        """Note what is new among ``reports``."""
        for index in range(len(curve.losses), len(reports)):
            curve.losses.append(self.loss_of(reports[index].value))
            if self._is_rung(len(curve.losses)):
                self._note(curve, loss=curve.losses[-1], is_end=False)

    def _note(self, curve: _Curve, *, loss: float, is_end: bool) -> None:
        self._points.append(_Point(curve=curve, count=len(curve.losses), loss=loss, is_end=is_end))

    def _reported(self) -> list[_Curve]:
        """Those inside the space with a report at least, the ended ones first, in the order in which they ended."""
        curves = [c for c in self._past if c.row is not None]
        return curves + [c for c in self._live.values() if c.row is not None and c.losses]

    def _is_rung(self, count: int) -> bool:
        rung: int = max(1, self._longest // REPORTS_AT_FIRST_RUNG)
        while rung < count:
            rung *= self._factor
        return rung == count and (not self._longest or count < self._longest)

    def _expected(self, peers: list[_Curve], curve: _Curve, count: int) -> tuple[list[float], float]:
        """Where each of ``peers`` is believed to end, and the probability that ``curve`` ends as the best.

        Early in a search the losses at this rung stand for the ends; then, and while the model predicts badly, there is
        no such probability: 0. It is 1 for the trials by which a trusted model is checked.
        """
        if len(self._reported()) < self._startup:
            return [peer.losses[count - 1] for peer in peers], 0.0
        belief = self._believe()
        if self._trust(belief) < TRUSTED:
            return [peer.losses[count - 1] for peer in peers], 0.0
        rows = stacked([c.row for c in peers if c.row is not None], self._columns.width)
        means, deviations = belief.at_end(rows)
        if curve.number % CHECKED_EVERY == 0:
            return means.tolist(), 1.0
        best = float(belief.targets.min())
        place = peers.index(curve)
        hope = normal_cdf(np.array([(best - means[place]) / deviations[place]]))[0]
        return means.tolist(), float(hope)

    # ── the model ───────────────────────────────────────────────────────────────────────────────
    def _believe(self) -> Belief:
        points = [p for p in self._points if p.curve.row is not None]
        most = max(self._longest, max((p.count for p in points), default=0), 2)
        reach = [1.0 if p.is_end else math.log(p.count) / math.log(most) for p in points]
        rows = stacked([p.curve.row for p in points if p.curve.row is not None], self._columns.width)
        given = Points(rows=rows, reach=np.array(reach), losses=finite([p.loss for p in points]))
        return self._surrogate.believe(given, key=most)

    def _trust(self, belief: Belief) -> float:
        """How well the model predicts the first loss of each trial from those of all others: a rank correlation."""
        first: dict[int, _Point] = {}
        for point in self._points:
            if point.curve.row is not None:
                first.setdefault(id(point.curve), point)
        shown = list(first.values())[-TRUST_POINTS:]
        rows = stacked([p.curve.row for p in shown if p.curve.row is not None], self._columns.width)
        return belief.trust_in(rows, finite([p.loss for p in shown]))

    def _read(self, number: int, parameters: Parameters, losses: list[float | None]) -> _Curve:
        row = self._columns.encode(parameters)
        return _Curve(number=number, parameters=parameters, row=row, losses=[loss_in(loss) for loss in losses])

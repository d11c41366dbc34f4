"""``auto``: the advisor for trials that report as they go. Written for this project.

Asynchronous successive halving in its stopping form (Li et al., 2020), and a Gaussian process over (parameters, how far
a trial has come) that learns from the reports. Where the process predicts well, each new trial is where the expected
improvement at the end of a trial is largest, and trials are compared where they are believed to end, so that one that
learns slowly and ends well is not stopped for its slow start. Where it predicts badly, most new trials are drawn at
random, and trials are compared where they stand. Either way a trial goes on only while its course so far may yet lead
to a new best: of that, the courses of the trials that have ended tell. No trial needs a checkpoint.

Rungs are counted in reports, not in steps: 1, 3, 9, … of about fifty. Longer trials have them in proportion.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np

from tuner_service.advisors.base import Advisor, Choice, Judgement, Start
from tuner_service.advisors.beliefs import TRUSTED, Beliefs
from tuner_service.advisors.courses import Course, Field, Point, course_from_plain
from tuner_service.advisors.draws import Draws
from tuner_service.advisors.prospects import Prospects
from tuner_service.advisors.rungs import levels, loss_in, loss_out
from tuner_service.assessors.base import Keep, Stop
from tuner_service.domain.experiment import Objective
from tuner_service.domain.search_space import SearchSpace
from tuner_service.domain.trial import Decision, Parameters, Report, TrialOutcome, TrialStatus
from tuner_service.tuners.base import NotYet
from tuner_service.tuners.model_columns import Columns, Rows, stacked
from tuner_service.tuners.model_gp import log_expected_improvement, normal_cdf
from tuner_service.tuners.model_search import CENTRES, candidates

REPORTS_AT_FIRST_RUNG = 50  # a trial with so many reports in all is first compared after one of them
CANDIDATES_TRIED = 64
CHECKED_EVERY = 8  # one of so many trials goes on whatever a model says, or it would never learn that it errs
CHECKS_LIMIT = 0.2  # while all such trials have made no more than this portion of the reports
NEWEST_PEERS = 30  # a trial is compared with: among all, the more the model has learned the fewer would go on
FIRST_PEERS = 9  # the first trials at a rung, which had few to be compared with, are compared again with each report
STALE_TRIALS = 30  # after so many without a new best, every other one is drawn at random
GAIN = 0.01  # expected gain over the best end, in deviations of the ends, below which a trial is not worth its time
LATE = 6  # a trusted model knows more than a course of less than one of so many parts of the longest
HOPE = 0.15  # probability of becoming the best, above which a trial goes on whatever its rank
SNAPSHOT_VERSION = 2


class AutoAdvisor(Advisor):
    learns_while_assessing: ClassVar[bool] = False  # what ``assess`` notes of a trial, ``ended`` tells again

    def __init__(
        self, space: SearchSpace, objective: Objective, *, reduction_factor: int = 3, n_startup_trials: int = 10
    ) -> None:
        super().__init__(space, objective)
        self._factor, self._startup = reduction_factor, n_startup_trials
        self._live: dict[int, Course] = {}
        self._past: list[Course] = []
        self._points: list[Point] = []  # in the order in which they became known, and never changed
        self._draws = Draws(space)
        self._longest = 0  # reports of the longest trial that ran to its end; 0: none has
        self._columns = Columns(space)
        self._derive()

    @property
    def choice(self) -> str:
        """What it does, and why; for people."""
        chances = self._draws.chances
        return f"{self._proposer}; {chances.told}" if chances.matter else self._proposer

    @property
    def _proposer(self) -> str:
        known = len(self._past) + sum(bool(curve.losses) for curve in self._live.values())
        if known < self._startup:
            return f"random: the first {self._startup} trials are drawn at random ({known} have reported)"
        trust = self._beliefs.trust(self._inside, longest=self._furthest)
        told = f"a Gaussian process over {self._columns.width} parameters and the course of {known} trials"
        if trust is not None and trust < TRUSTED:
            portion = round(100 * _random_portion(trust, self._stale))
            return (
                f"random and gp: {told} predicts first losses from the others with a rank correlation of {trust:.2f} "
                f"only, so {portion} % of the trials are drawn at random and successive halving stops them"
            )
        return f"gp: {told} proposes; of {self._factor} at a rung the one believed to end best goes on"

    # ── the port ────────────────────────────────────────────────────────────────────────────────
    def suggest(self, number: int, rng: random.Random) -> Choice:
        if not number:
            return NotYet()  # nothing rests here
        courses = self._reported()
        if len(courses) < self._startup or not self._inside or not self._columns.width:
            return Start(parameters=self._draws.draw(rng))
        trust = self._beliefs.trust(self._inside, longest=self._furthest)
        if trust is not None and rng.random() < _random_portion(trust, self._stale):
            return Start(parameters=self._draws.draw(rng))
        belief = self._beliefs.belief(self._inside, longest=self._furthest)
        running = [c.row for c in self._live.values() if c.row is not None]
        belief = belief.with_running(stacked(running, self._columns.width))
        rows = stacked([c.row for c in courses if c.row is not None], self._columns.width)
        means, _ = belief.at_end(rows)
        best = float(means.min())
        centres = rows[np.argsort(means, kind="stable")[:CENTRES]]
        generator = np.random.default_rng(rng.getrandbits(64))

        def acquisition(asked: Rows) -> Any:
            return log_expected_improvement(*belief.at_end(asked), best)

        weighed = self._draws.chances.weighed(acquisition, known=rows)
        for tried, row in enumerate(candidates(self._columns, centres, weighed, generator)):
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
        self._live[number] = Course(number=number, parameters=parameters, row=self._columns.encode(parameters))

    def assess(self, trial: int, reports: Sequence[Report]) -> Judgement:
        course = self._live.get(trial)
        if course is None:
            return Keep()
        self._take(course, reports)
        count = len(course.losses)
        field = self._field_of(course)
        if field is None or (self._longest and count >= self._longest):
            return Keep()
        if count > field.count and not field.is_among_first(course, FIRST_PEERS):
            return Keep()
        ahead = field.ahead_of(course)
        if len(field) < self._factor:
            return Keep()
        trusted = self._beliefs.is_trusted(self._inside, longest=self._furthest)
        exempt = self._is_exempt(course)
        may_stop = not exempt and (not trusted or count * LATE >= self._longest)
        gain = self._gain(course, field) if may_stop else None
        if gain is not None and gain < GAIN:
            return Stop(f"after {count} reports it is expected to gain {gain:.4f} deviations of the ends over the best")
        if ahead <= len(field) / self._factor:
            return Keep()  # as successive halving has it, whatever the model believes
        newest = field.newest(NEWEST_PEERS, course)
        if trusted:
            ends, hope = self._believed_ends(newest, course, exempt=exempt)
        else:
            ends, hope = [peer.losses[field.count - 1] for peer in newest], 0.0
        better = sum(end < ends[newest.index(course)] for end in ends)
        if better <= len(ends) / self._factor or hope > HOPE:
            return Keep()
        return Stop(
            f"after {field.count} reports it is behind {ahead} of {len(field)} trials, "
            f"{'believed to end ' if trusted else ''}behind {better} of the newest {len(ends)}, "
            f"and to become the best with a probability of {hope:.2f}"
        )

    def rested(self, trial: int, reports: Sequence[Report]) -> None:
        if trial in self._live:
            self._take(self._live[trial], reports)

    def ended(self, outcome: TrialOutcome, reports: Sequence[Report]) -> None:
        self._draws.ended(outcome)
        course = self._live.pop(outcome.number, None)
        if course is None or course.parameters != outcome.parameters:
            if course is not None and course.losses:
                self._past.append(course)  # what it reported with other parameters stays known
            row = self._columns.encode(outcome.parameters)
            course = Course(number=outcome.number, parameters=outcome.parameters, row=row)
        if reports:
            self._take(course, reports)
        ended_well, count = outcome.status is TrialStatus.SUCCEEDED, len(course.losses)
        loss = self.loss_of(outcome.value)
        if ended_well and not count:
            self._add(course, loss)
            course.is_whole = False
        if course.losses:
            self._past.append(course)
        if ended_well and count:
            self._reach(count)  # it is one of those that are placed anew where the rungs move
        if ended_well:
            self._note(Point(course=course, count=len(course.losses), loss=loss, is_end=True))

    def update_search_space(self, space: SearchSpace) -> None:
        super().update_search_space(space)
        self._draws.move_to(space)
        self._columns = Columns(space)
        # Others in their place: forks, which go on in the space that they were made in, have the same ones.
        self._replace_courses(
            {id(c): c.copied(row=self._columns.encode(c.parameters)) for c in (*self._past, *self._live.values())}
        )
        self._derive()

    def _replace_courses(self, others: dict[int, Course]) -> None:
        """``others``: by the identity of the course that each stands for."""
        self._past = [others.get(id(course), course) for course in self._past]
        self._live = {number: others.get(id(course), course) for number, course in self._live.items()}
        self._points = [replace(p, course=others[id(p.course)]) if id(p.course) in others else p for p in self._points]

    def fork(self) -> Self:
        forked = type(self)(self.space, self.objective, reduction_factor=self._factor, n_startup_trials=self._startup)
        # Of its own class; the courses of trials that have ended are never changed.
        forked._longest, forked._columns, forked._past = self._longest, self._columns, self._past  # noqa: SLF001
        forked._live, forked._points = self._live, self._points  # noqa: SLF001
        forked._replace_courses({id(c): c.copied(row=c.row) for c in self._live.values()})  # noqa: SLF001
        forked._derive()  # noqa: SLF001
        # They begin with the same points, of which what was worked out stays true.
        forked._beliefs, forked._prospects = self._beliefs.copied(), self._prospects.copied()  # noqa: SLF001
        return forked

    def state_dict(self) -> dict[str, Any]:
        courses = [*self._past, *self._live.values()]
        places = {id(course): place for place, course in enumerate(courses)}
        return {
            "version": SNAPSHOT_VERSION,
            "courses": [course.to_plain() for course in courses],
            "past": len(self._past),
            "points": [[places[id(p.course)], p.count, loss_out(p.loss), p.is_end] for p in self._points],
            "longest": self._longest,
            "draws": self._draws.state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["version"] != SNAPSHOT_VERSION:
            raise ValueError(f"a snapshot of version {state['version']}; this is version {SNAPSHOT_VERSION}")
        self._draws.restore(state["draws"])
        self._longest = state["longest"]
        courses = [course_from_plain(plain, self._columns.encode(plain[1])) for plain in state["courses"]]
        self._past = courses[: state["past"]]
        self._live = {course.number: course for course in courses[state["past"] :]}
        self._points = [
            Point(course=courses[place], count=count, loss=loss_in(loss), is_end=is_end)
            for place, count, loss, is_end in state["points"]
        ]
        self._derive()

    # ── what is known ───────────────────────────────────────────────────────────────────────────
    def _derive(self) -> None:
        """Everything that follows from the courses, the points and the space."""
        self._beliefs, self._prospects = Beliefs(self._columns), Prospects()
        self._inside: list[Point] = []
        self._best, self._stale, self._seen = math.inf, 0, set[int]()
        self._furthest = self._longest
        self._ends: list[Point] = []
        courses = (*self._past, *self._live.values())
        self._work = sum(len(course.losses) for course in courses)
        self._checks = sum(len(course.losses) for course in courses if _is_check(course))
        for point in self._points:
            self._learn(point)
        self._place_fields()

    def _place_fields(self) -> None:
        self._fields: dict[int, Field] = {}
        for course in (*self._past, *self._live.values()):
            for count in self._rungs_until(len(course.losses)):
                self._enter(course, count)

    def _enter(self, course: Course, count: int) -> None:
        if course.row is not None and course.is_whole:
            self._fields.setdefault(count, Field(count)).enter(course)

    def _take(self, course: Course, reports: Sequence[Report]) -> None:
        """Note what is new among ``reports``."""
        for index in range(len(course.losses), len(reports)):
            self._add(course, self.loss_of(reports[index].value))
            count = len(course.losses)
            if count in self._rungs_until(count):
                self._enter(course, count)
                self._note(Point(course=course, count=count, loss=course.losses[-1], is_end=False))

    def _add(self, course: Course, loss: float) -> None:
        course.losses.append(loss)
        self._work += 1
        self._checks += _is_check(course)

    def _note(self, point: Point) -> None:
        self._points.append(point)
        self._learn(point)

    def _learn(self, point: Point) -> None:
        if point.course.row is None:
            return
        self._inside.append(point)
        self._furthest = max(self._furthest, point.count)
        if point.is_end and point.course.is_whole:
            self._ends.append(point)
        if id(point.course) not in self._seen:
            self._seen.add(id(point.course))
            self._stale += 1
        if point.loss < self._best:
            self._best, self._stale = point.loss, 0

    def _reach(self, count: int) -> None:
        """A trial has run to its end with so many reports: where the rungs are may depend on it."""
        first = self._first_rung
        self._longest = max(self._longest, count)
        self._furthest = max(self._furthest, count)
        if self._first_rung != first:
            self._place_fields()

    def _reported(self) -> list[Course]:
        """Those inside the space with a loss at least, the ended ones first, in the order in which they ended."""
        courses = [c for c in self._past if c.row is not None]
        return courses + [c for c in self._live.values() if c.row is not None and c.losses]

    @property
    def _first_rung(self) -> int:
        return max(1, self._longest // REPORTS_AT_FIRST_RUNG)

    def _rungs_until(self, count: int) -> tuple[int, ...]:
        """The rungs that a trial of ``count`` reports has passed."""
        return levels(self._first_rung, count + 1, self._factor)

    def _field_of(self, course: Course) -> Field | None:
        """That of the newest rung that it has passed; None before the first, and outside the space."""
        rungs = self._rungs_until(len(course.losses))
        return self._fields.get(rungs[-1]) if rungs and course.row is not None else None

    def _is_exempt(self, course: Course) -> bool:
        """Whether the models do not stop it: it checks them, and checks have not had more than their portion."""
        return _is_check(course) and self._checks <= CHECKS_LIMIT * self._work

    def _gain(self, course: Course, field: Field) -> float | None:
        """What its course so far promises; None: not known yet."""
        rungs = self._rungs_until(field.count)
        ended = [
            ([point.course.losses[rung - 1] for rung in rungs], point.loss)
            for point in self._ends
            if len(point.course.losses) >= field.count
        ]
        return self._prospects.expected_gain([course.losses[rung - 1] for rung in rungs], ended, rungs=rungs)

    def _believed_ends(self, peers: list[Course], course: Course, *, exempt: bool) -> tuple[list[float], float]:
        """Where each of ``peers`` is believed to end, and the probability that ``course`` ends as the best: 1 for one
        that is exempt.
        """
        belief = self._beliefs.belief(self._inside, longest=self._furthest)
        rows = stacked([c.row for c in peers if c.row is not None], self._columns.width)
        means, deviations = belief.at_end(rows)
        if exempt:
            return means.tolist(), 1.0
        best = float(belief.targets.min())
        place = peers.index(course)
        hope = normal_cdf(np.array([(best - means[place]) / deviations[place]]))[0]
        return means.tolist(), float(hope)


def _is_check(course: Course) -> bool:
    """Whether the models are checked by this trial; a result from elsewhere, which has the number 0, checks nothing."""
    return course.number > 0 and course.number % CHECKED_EVERY == 0


def _random_portion(trust: float, stale: int) -> float:
    """Of the trials: while the model is not trusted, what of the losses' ranks it does not explain; and the more the
    longer no trial has become the best, for then the model turns around what it knows.
    """
    unexplained = 0.0 if trust >= TRUSTED else 1.0 - max(trust, 0.0) ** 2
    return max(unexplained, stale / (stale + STALE_TRIALS))

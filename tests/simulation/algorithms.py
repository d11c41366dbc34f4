"""The simulated algorithm worker: the folds of the real one, and a tuner that forgets nothing it was told."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tuner_service.advisors.base import Advisor, Choice, Fork, Judgement, Pause, Promote, Start
from tuner_service.advisors.registry import create_advisor
from tuner_service.assessors.base import Keep, Stop
from tuner_service.assessors.registry import create_assessor
from tuner_service.dispatcher import commands as c
from tuner_service.dispatcher import effects as e
from tuner_service.dispatcher.items import (
    AlgorithmFault,
    MetricsReported,
    PauseAdvised,
    Queue,
    QueueItem,
    StopAdvised,
)
from tuner_service.domain.experiment import ExperimentSpec
from tuner_service.domain.search_space import SearchSpace, parse_search_space
from tuner_service.domain.trial import Decision, Parameters, Report, TrialOutcome
from tuner_service.tuners.base import Exhausted, NotYet, Suggestion, Tuner
from tuner_service.tuners.registry import create_tuner
from tuner_service.workers.folds.advisor import AdvisorFold
from tuner_service.workers.folds.folding import AssessorFold, TunerFold

if TYPE_CHECKING:
    from tests.simulation.world import World

EXPERIMENT = "sim"
REMEMBERING = "remembering"
ERRATIC = "erratic"
NOT_YET_CHANCE = 0.1
EXHAUSTED_CHANCE = 0.01


class RememberingTuner(Tuner):
    """Its suggestions depend on everything it was told, in order: any difference in history shows in what follows."""

    def __init__(self, space: Any, objective: Any) -> None:
        super().__init__(space, objective)
        self._told = ""
        self._outstanding: set[int] = set()

    def suggest(self, number: int, rng: random.Random) -> Suggestion:
        generator = random.Random(f"{self._told}{rng.random()}")
        if self._outstanding and generator.random() < NOT_YET_CHANCE:
            return NotYet()
        if generator.random() < EXHAUSTED_CHANCE:
            return Exhausted()
        return self.space.sample(generator)

    def pending(self, number: int, parameters: Parameters) -> None:
        self._outstanding.add(number)
        self._tell("pending", number, sorted(parameters.items()))

    def observe(self, outcome: TrialOutcome) -> None:
        self._outstanding.discard(outcome.number)
        self._tell("ended", outcome.number, outcome.status.value, outcome.value, outcome.step, outcome.parameters)

    def update_search_space(self, space: SearchSpace) -> None:
        super().update_search_space(space)
        self._tell("space", space.raw)

    def _tell(self, *what: object) -> None:
        self._told = hashlib.sha256(f"{self._told}{what!r}".encode()).hexdigest()

    def state_dict(self) -> dict[str, Any]:
        return {"told": self._told, "outstanding": sorted(self._outstanding)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._told, self._outstanding = state["told"], set(state["outstanding"])


def a_tuner(spec: ExperimentSpec) -> Tuner:
    space = parse_search_space(spec.search_space)
    if spec.tuner.name == REMEMBERING:
        return RememberingTuner(space, spec.objective)
    assert spec.tuner.name is not None
    return create_tuner(spec.tuner.name, spec.tuner.args, space=space, objective=spec.objective)


def an_assessor(spec: ExperimentSpec) -> AssessorFold:
    assert spec.assessor is not None
    assert spec.assessor.name is not None
    assessor = create_assessor(spec.assessor.name, spec.assessor.args, objective=spec.objective)
    return AssessorFold(assessor, deterministic=spec.deterministic)


class ErraticAdvisor(Advisor):
    """Decides anything that is allowed, by everything it was told: any difference in history shows in what follows.

    It judges, too: now and then a trial is stopped or paused while it runs.
    """

    def __init__(self, space: Any, objective: Any) -> None:
        super().__init__(space, objective)
        self._told = ""
        self._resting: dict[int, int] = {}  # trial → step
        self._rested: dict[int, int] = {}  # not ended
        self._running: set[int] = set()

    def suggest(self, number: int, rng: random.Random) -> Choice:
        generator = random.Random(f"{self._told}{rng.random()}")
        if self._running and generator.random() < NOT_YET_CHANCE:
            return NotYet()
        dropped = tuple(n for n in self._resting if generator.random() < 0.1)
        goal = generator.choice((1, 2, 3, 4, None))
        resting = sorted(set(self._resting) - set(dropped))
        if resting and (not number or generator.random() < 0.5):
            trial = generator.choice(resting)
            until = None if goal is None else self._resting[trial] + goal
            return Promote(trial=trial, until_step=until, dropped=dropped)
        if not number:
            return NotYet()
        parameters = self.space.sample(generator)
        if self._rested and generator.random() < 0.4:
            source = generator.choice(sorted(self._rested))
            until = None if goal is None else self._rested[source] + goal
            return Fork(trial=source, parameters=parameters, until_step=until, dropped=dropped)
        return Start(parameters=parameters, until_step=goal, dropped=dropped)

    def assess(self, trial: int, reports: Sequence[Report]) -> Judgement:
        chance = random.Random(f"{self._told}{trial}{reports[-1]}").random()
        if chance < 0.02:
            return Stop("no luck")
        return Pause("a rest") if chance < 0.05 else Keep()

    def decided(self, decision: Decision) -> None:
        for number in (decision.number, *decision.dropped):
            self._resting.pop(number, None)
        self._running.add(decision.number)
        self._tell("decided", decision.number, decision.kind.value, decision.until_step, decision.forked_from)

    def rested(self, trial: int, reports: Sequence[Report]) -> None:
        self._running.discard(trial)
        step = reports[-1].step if reports else 0
        self._resting[trial] = self._rested[trial] = step
        self._tell("rested", trial, step, [report.value for report in reports])

    def ended(self, outcome: TrialOutcome, reports: Sequence[Report]) -> None:
        number = outcome.number
        self._running.discard(number)
        self._resting.pop(number, None)
        self._rested.pop(number, None)
        self._tell("ended", number, outcome.status.value, outcome.value, [report.value for report in reports])

    def update_search_space(self, space: SearchSpace) -> None:
        super().update_search_space(space)
        self._tell("space", space.raw)

    def _tell(self, *what: object) -> None:
        self._told = hashlib.sha256(f"{self._told}{what!r}".encode()).hexdigest()

    def state_dict(self) -> dict[str, Any]:
        return {
            "told": self._told,
            "resting": list(self._resting.items()),
            "rested": list(self._rested.items()),
            "running": sorted(self._running),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._told, self._running = state["told"], set(state["running"])
        self._resting, self._rested = dict(state["resting"]), dict(state["rested"])


def a_first_fold(spec: ExperimentSpec) -> TunerFold | AdvisorFold:
    """Of the tuner's queue."""
    if spec.advisor is None:
        return TunerFold(a_tuner(spec), seed=spec.seed)
    space = parse_search_space(spec.search_space)
    if spec.advisor.name == ERRATIC:
        advisor: Advisor = ErraticAdvisor(space, spec.objective)
    else:
        assert spec.advisor.name is not None
        advisor = create_advisor(spec.advisor.name, spec.advisor.args, space=space, objective=spec.objective)
    return AdvisorFold(advisor, seed=spec.seed, deterministic=spec.deterministic, space=space)


class Worker:
    """The folds of the real worker, in memory: killed, everything is gone."""

    def __init__(self, world: World, order: e.StartWorker) -> None:
        self.world, self.order = world, order
        spec = order.spec
        self.tuner = a_first_fold(spec)
        self.assessor = None if spec.assessor is None else an_assessor(spec)
        self.lines: dict[Queue, list[QueueItem]] = {q: [] for q in Queue}
        self.unread: set[int] = set()  # lines told without their reports
        self.halted: set[Queue] = set()
        self.answered: dict[Queue, int] = {Queue.TUNER: order.tuner_cursor, Queue.ASSESSOR: order.assessor_cursor}
        self._fold_history(order)
        world.later(
            0.1,
            lambda: self._if_alive(c.WorkerReady(at=world.now, experiment_id=EXPERIMENT, generation=order.generation)),
        )

    def _fold_history(self, order: e.StartWorker) -> None:
        store = self.world.store
        for queue, upto in ((Queue.TUNER, order.tuner_cursor), (Queue.ASSESSOR, order.assessor_cursor)):
            after, fold = 0, self._fold(queue)
            if fold is None:
                continue
            snapshot = store.snapshot(EXPERIMENT, queue)
            if snapshot is not None and self.world.chance(0.8):
                fold.load_state_dict(json.loads(snapshot.state))
                after = snapshot.line
            for item in store.history(EXPERIMENT, queue, after=after, upto=upto):
                fold.take(item)  # type: ignore[arg-type]  # the store routes by queue

    def _fold(self, queue: Queue) -> TunerFold | AdvisorFold | AssessorFold | None:
        return self.tuner if queue is Queue.TUNER else self.assessor

    def deliver(self, queue: Queue, item: QueueItem) -> None:
        if isinstance(item, MetricsReported) and item.unread:
            self.unread.add(item.line)
            self.world.unread += 1
        self.lines[queue].append(item)
        if len(self.lines[queue]) == 1:
            self.world.later(0.1 + self.world.rng.random() * 0.5, lambda: self._work(queue))

    def _work(self, queue: Queue) -> None:
        """Answer what is waiting, as one batch."""
        if self.world.worker is not self or not self.lines[queue]:
            return
        items, self.lines[queue] = list(map(self._whole, self.lines[queue])), []
        fold = self._fold(queue)
        assert fold is not None
        if queue in self.halted:
            return
        if self.world.may_kill(self.world.faults.algorithm):
            self._raise_at(queue, items.pop(self.world.rng.randrange(len(items))), items)
        answers = tuple(fold.take(item) for item in items)  # type: ignore[arg-type]  # routed by queue
        generation = self.order.generation
        advised = (a.line for a in answers if isinstance(a, StopAdvised | PauseAdvised) and a.line in self.unread)
        answered = c.QueueAnswered(
            at=self.world.now,
            experiment_id=EXPERIMENT,
            generation=generation,
            queue=queue,
            answers=answers,
            read=tuple(self.world.store.reports_on(EXPERIMENT, line) for line in advised),
        )
        self.world.later(self.world.rng.random() * 0.3, lambda: self._if_alive(answered))
        if items and self.world.chance(0.3):
            self._snapshot(queue, items[-1].line)

    def _whole(self, item: QueueItem) -> QueueItem:
        return self.world.store.reports_on(EXPERIMENT, item.line) if item.line in self.unread else item

    def _raise_at(self, queue: Queue, raising: QueueItem, items: list[QueueItem]) -> None:
        """The algorithm raises there: what stood before is answered, nothing after it."""
        self.halted.add(queue)
        del items[next((i for i, item in enumerate(items) if item.line > raising.line), len(items)) :]
        faulted = c.AlgorithmFaulted(
            at=self.world.now,
            experiment_id=EXPERIMENT,
            generation=self.order.generation,
            queue=queue,
            line=raising.line,
            fault=self.world.rng.choice((AlgorithmFault.RAISED, AlgorithmFault.TEMPORARY)),
            message="bad luck",
            traceback="",
        )
        # After the answers, as on the worker's one pipe.
        self.world.later(0.35, lambda: self._if_alive(faulted))

    def _snapshot(self, queue: Queue, line: int) -> None:
        fold = self._fold(queue)
        state = fold.state_dict() if fold is not None else None
        taken = c.SnapshotTaken(
            at=self.world.now,
            experiment_id=EXPERIMENT,
            generation=self.order.generation,
            queue=queue,
            line=line,
            state=json.dumps(state),
        )
        # After the answers, as on the worker's one pipe.
        self.world.later(0.35, lambda: self._if_alive(taken))

    def _if_alive(self, command: c.Command) -> None:
        if self.world.worker is self:
            self.world.tell(command)

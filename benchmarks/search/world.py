"""One experiment on simulated time, through the project's own dispatcher and folds; no process and no database.

What is real: every decision of the dispatcher, the tuner and the assessor (or the advisor), in the order in which the
journal would have them. What is simulated: the agent, the trials, whose metrics and seconds come from the task, and
the clock, which stands still while an algorithm thinks; its own seconds are measured beside it.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.search.outcome import Evaluation, Limits, Outcome
from benchmarks.search.task import Parameters, Task
from trials.wire.messages import Launch, Stop
from trials.wire.records import ExitCause, ExitRecord, MetricRecord, ProcessRecord
from tuner_service.advisors.registry import create_advisor
from tuner_service.assessors.registry import create_assessor
from tuner_service.dispatcher import commands as c
from tuner_service.dispatcher import effects as e
from tuner_service.dispatcher.dispatcher import Dispatcher
from tuner_service.dispatcher.items import Queue, QueueItem, SuggestionRequested
from tuner_service.domain.experiment import ExperimentSpec
from tuner_service.domain.search_space import parse_search_space
from tuner_service.tuners.registry import create_tuner
from tuner_service.workers.folds.advisor import AdvisorFold
from tuner_service.workers.folds.folding import AssessorFold, TunerFold

AGENT = "simulated"
EXPERIMENT = "search"
FAILURE = 'Traceback (most recent call last):\n  File "train.py", line {}, in main\nError: of this trial alone'
EVENT_LIMIT = 5_000_000  # a search that needs more does not end


@dataclass(slots=True, kw_only=True)
class _Attempt:
    launch: Launch
    epoch: int
    sequence: int = 0
    ended: bool = False


@dataclass(slots=True)
class _Clock:
    now: float = 0.0
    heap: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    order: Any = field(default_factory=itertools.count)

    def later(self, delay: float, event: Callable[[], None]) -> None:
        heapq.heappush(self.heap, (self.now + delay, next(self.order), event))


class World:
    """``run`` it once. It ends with its budget, or where ``limits`` say so.

    A task may have ``fails_at(parameters)``: the epoch in which the trial fails, before its report; None: it does not.
    """

    def __init__(self, task: Task, spec: ExperimentSpec, limits: Limits) -> None:
        self._task, self._spec, self._horizon, self._begun = task, spec, limits.horizon_s, limits.begun
        self._fails_at: Callable[[Parameters], int | None] = getattr(task, "fails_at", lambda _: None)
        self._clock = _Clock()
        self._dispatcher = Dispatcher(lineage="benchmark", incarnation="benchmark")
        self._folds: dict[Queue, Any] = {}
        self._generation = 0
        self._waiting: dict[Queue, list[QueueItem]] = {queue: [] for queue in Queue}
        self._attempts: dict[str, _Attempt] = {}
        self._epochs: dict[int, int] = {}  # of each trial, so that one that goes on goes on from there
        self._evaluations: list[Evaluation] = []
        self._own_s = self._suggest_s = self._processor_s = 0.0
        self._trials: set[int] = set()
        self._failed: list[int] = []

    def run(self) -> Outcome:
        self._handle(c.AgentConnected(at=0.0, agent_id=AGENT, cpus=10_000, memory_bytes=2**40, attempts=()))
        self._handle(c.ExperimentCreated(at=0.0, experiment_id=EXPERIMENT, spec=self._spec))
        clock = self._clock
        for _ in range(EVENT_LIMIT):
            if not clock.heap or self._is_over():
                break
            at, _, event = heapq.heappop(clock.heap)
            if self._horizon is not None and at > self._horizon:
                break
            clock.now = at
            event()
        return Outcome(
            evaluations=self._evaluations,
            trials=len(self._trials),
            own_s=self._own_s,
            suggest_s=self._suggest_s,
            choice=_choice_of(self._folds.get(Queue.TUNER)),
            failed=tuple(sorted(self._failed)),
            processor_s=self._processor_s,
        )

    def _is_over(self) -> bool:
        if self._begun is not None and len(self._trials) > self._begun:
            return True
        xs = self._dispatcher.state.experiments.get(EXPERIMENT)
        if xs is None or xs.experiment.status.has_ended:
            return True
        if xs.experiment.status.value == "paused":
            raise RuntimeError(f"the experiment was paused: {xs.experiment.message}\n{xs.experiment.detail}")
        return False

    # ── the service ─────────────────────────────────────────────────────────────────────────────
    def _handle(self, command: c.Command) -> None:
        effects = self._dispatcher.handle(command)
        self._dispatcher.take_changes()
        for effect in effects:
            self._perform(effect)

    def _perform(self, effect: e.Effect) -> None:
        match effect:
            case e.StartWorker():
                self._start_worker(effect)
            case e.Deliver():
                self._waiting[effect.queue].append(effect.item)
                if len(self._waiting[effect.queue]) == 1:
                    queue = effect.queue
                    self._clock.later(0.0, lambda: self._answer(queue))
            case e.Tell(message=Launch() as order):
                self._launch(order)
            case e.Tell(message=Stop() as order):
                attempt = self._attempts.get(order.nonce)
                if attempt is not None and not attempt.ended:
                    self._exit(attempt, ExitRecord(cause=ExitCause.STOPPED, stop_reason=order.reason))
            case _:
                pass  # answers to an agent that needs none

    # ── the algorithm worker ────────────────────────────────────────────────────────────────────
    def _start_worker(self, effect: e.StartWorker) -> None:
        self._generation = effect.generation
        self._folds = _folds(effect.spec)
        ready = c.WorkerReady(at=self._clock.now, experiment_id=EXPERIMENT, generation=effect.generation)
        self._clock.later(0.0, lambda: self._handle(ready))

    def _answer(self, queue: Queue) -> None:
        items, self._waiting[queue] = self._waiting[queue], []
        for item in items:
            begun, processor = time.perf_counter(), time.process_time()
            answer = self._folds[queue].take(item)
            spent = time.perf_counter() - begun
            self._own_s += spent
            self._processor_s += time.process_time() - processor
            if isinstance(item, SuggestionRequested):
                self._suggest_s += spent
            answered = c.QueueAnswered(
                at=self._clock.now,
                experiment_id=EXPERIMENT,
                generation=self._generation,
                queue=queue,
                answers=(answer,),
            )
            self._handle(answered)

    # ── the agent and its trials ────────────────────────────────────────────────────────────────
    def _launch(self, order: Launch) -> None:
        number = order.key.number
        attempt = _Attempt(launch=order, epoch=self._epochs.get(number, 0))
        self._attempts[order.nonce] = attempt
        self._trials.add(number)
        process = ProcessRecord(boot_id="simulated", pid=number, start_time=1)
        started = c.AttemptStarted(
            at=self._clock.now, agent_id=AGENT, key=order.key, nonce=order.nonce, process=process
        )
        self._clock.later(0.0, lambda: self._handle(started))
        self._go_on(attempt)

    def _go_on(self, attempt: _Attempt) -> None:
        """The next epoch, or the end after the last one."""
        if attempt.epoch >= self._task.max_epochs:
            self._finish(attempt)
            return
        seconds = self._task.runtime(attempt.launch.spec.parameters, attempt.epoch + 1)
        self._clock.later(seconds, lambda: self._epoch_over(attempt))

    def _epoch_over(self, attempt: _Attempt) -> None:
        if attempt.ended:
            return
        attempt.epoch += 1
        number = attempt.launch.key.number
        if attempt.epoch == self._fails_at(attempt.launch.spec.parameters):
            self._failed.append(number)
            self._exit(attempt, ExitRecord(cause=ExitCause.EXITED, code=1, tail=FAILURE.format(number)))
            return
        self._epochs[number] = attempt.epoch
        values = self._values(attempt)
        self._evaluations.append(Evaluation(at=self._clock.now, trial=number, epoch=attempt.epoch, values=values))
        if self._task.max_epochs > 1:
            self._report(attempt, MetricRecord(step=attempt.epoch, values=values, at=self._clock.now))
        # After whatever the report decides, so that a stop at this epoch spends none of the next.
        self._clock.later(0.0, lambda: self._clock.later(0.0, lambda: self._after_report(attempt)))

    def _after_report(self, attempt: _Attempt) -> None:
        if not attempt.ended:
            self._go_on(attempt)

    def _values(self, attempt: _Attempt) -> dict[str, float]:
        return self._task.metrics(attempt.launch.spec.parameters, max(1, attempt.epoch), attempt.launch.spec.seed)

    def _finish(self, attempt: _Attempt) -> None:
        self._report(attempt, MetricRecord(step=None, values=self._values(attempt), at=self._clock.now, final=True))
        self._exit(attempt, ExitRecord(cause=ExitCause.EXITED, code=0))

    def _report(self, attempt: _Attempt, record: MetricRecord) -> None:
        attempt.sequence += 1
        launch = attempt.launch
        self._handle(
            c.ReportsReceived(
                at=self._clock.now,
                agent_id=AGENT,
                key=launch.key,
                nonce=launch.nonce,
                first_sequence=attempt.sequence,
                records=(record,),
            )
        )

    def _exit(self, attempt: _Attempt, record: ExitRecord) -> None:
        if attempt.ended:
            return
        attempt.ended = True
        launch = attempt.launch
        exited = c.AttemptExited(
            at=self._clock.now,
            agent_id=AGENT,
            key=launch.key,
            nonce=launch.nonce,
            exit=record,
            last_sequence=attempt.sequence,
        )
        self._clock.later(0.0, lambda: self._handle(exited))


def _folds(spec: ExperimentSpec) -> dict[Queue, Any]:
    space = parse_search_space(spec.search_space)
    if spec.advisor is not None:
        advisor = create_advisor(spec.advisor.label, spec.advisor.args, space=space, objective=spec.objective)
        return {Queue.TUNER: AdvisorFold(advisor, seed=spec.seed, deterministic=spec.deterministic)}
    tuner = create_tuner(spec.tuner.label, spec.tuner.args, space=space, objective=spec.objective)
    folds: dict[Queue, Any] = {Queue.TUNER: TunerFold(tuner, seed=spec.seed)}
    if spec.assessor is not None:
        assessor = create_assessor(spec.assessor.label, spec.assessor.args, objective=spec.objective)
        folds[Queue.ASSESSOR] = AssessorFold(assessor, deterministic=spec.deterministic)
    return folds


def _choice_of(fold: Any) -> str:
    """What ``auto`` says it chose; nothing of other algorithms."""
    algorithm = getattr(fold, "_tuner", None) or getattr(fold, "_advisor", None)
    return str(getattr(algorithm, "choice", ""))

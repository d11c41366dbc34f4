"""Whole experiments on virtual time: one seed, one history.

A service (dispatcher and memory store), one agent with its attempts, and one algorithm worker exchange messages over
a network that delays, doubles, loses and reorders them. Everything may be killed at any step: the service between any
two of its statements (recovery included), the worker, the agent, supervisors and trials. What each of them keeps
across its death is what the real one keeps on disk.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.memory_store import MemoryStore
from trials.protocol import (
    AttemptKey,
    CheckpointRecord,
    ExitRecord,
    LaunchSpec,
    MetricRecord,
    ObservedAttempt,
    ProcessRecord,
)
from tuner_service.assessors.registry import create_assessor
from tuner_service.dispatcher import commands as c
from tuner_service.dispatcher import effects as e
from tuner_service.dispatcher.dispatcher import Dispatcher
from tuner_service.dispatcher.invariants import violations
from tuner_service.dispatcher.items import AlgorithmFault, Queue, QueueItem
from tuner_service.domain.errors import ConflictError
from tuner_service.domain.experiment import ExperimentSpec, ExperimentStatus
from tuner_service.domain.search_space import parse_search_space
from tuner_service.ports import LoadedExperiment
from tuner_service.tuners.registry import create_tuner
from tuner_service.workers.folding import AssessorFold, TunerFold

AGENT = "agent-1"
EXPERIMENT = "sim"
STEP_S = 1.0  # between two reports of a trial
CHECKPOINT_EVERY = 3  # steps
RESEND_S = 3.0
RESTART_S = 2.0
NO_LAUNCH = LaunchSpec(command=(), parameters={}, seed=0, objective="loss")  # of an attempt that never started
EVENT_LIMIT = 60_000  # a history longer than this has not come to an end


class Killed(Exception):  # noqa: N818  # not an error: the end of a process
    """The service died here."""


@dataclass(frozen=True, kw_only=True)
class Faults:
    """Chances, per opportunity."""

    kill_service: float = 0.0
    kill_worker: float = 0.0
    kill_agent: float = 0.0
    kill_supervisor: float = 0.0
    kill_trial: float = 0.0
    reboot: float = 0.0
    lose: float = 0.0
    double: float = 0.0
    person: float = 0.0  # pauses or stops the experiment, and resumes it a while later
    algorithm: float = 0.0  # raises, or says that it is temporarily unable
    most_kills: int = 40  # then the world is left in peace, so that every history ends


def unit(*parts: Any) -> float:
    """A number in [0, 1) that depends on ``parts`` alone."""
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:6], "big") / 2**48


@dataclass(kw_only=True)
class SimAttempt:
    """What is on the node's disk, and whether it runs."""

    key: AttemptKey
    nonce: str
    lineage: str
    spec: LaunchSpec
    spool: list[c.Record] = field(default_factory=list)
    acknowledged: int = 0
    exit: ExitRecord | None = None
    in_flight_since: float | None = None
    exit_sent_at: float | None = None
    stopping: bool = False


class World:
    def __init__(self, *, seed: int, spec: ExperimentSpec, steps: int, faults: Faults) -> None:
        self.rng = random.Random(seed)
        self.spec, self.steps, self.faults = spec, steps, faults
        self.now = 1_000.0
        self.store = MemoryStore()
        self.kills = 0
        self.events = 0
        self.max_live = 0
        self.launched: dict[str, int] = {}
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self.service: Service | None = None
        self.agent = Agent(self)
        self.worker: Worker | None = None
        self.lives = 0

    # ── time ────────────────────────────────────────────────────────────────────────────────────
    def later(self, delay: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (self.now + delay, next(self._order), event))

    def chance(self, probability: float) -> bool:
        return probability > 0 and self.rng.random() < probability

    def may_kill(self, probability: float) -> bool:
        if self.kills >= self.faults.most_kills or not self.chance(probability):
            return False
        self.kills += 1
        return True

    def run(self) -> None:
        """Until the experiment has ended, and nothing is left that could change it."""
        self.start_service()
        self.send_command(lambda at: c.ExperimentCreated(at=at, experiment_id=EXPERIMENT, spec=self.spec))
        while self._heap and not self.is_over():
            self.events += 1
            assert self.events < EVENT_LIMIT, "the experiment does not come to an end"
            self.now, _, event = heapq.heappop(self._heap)
            event()
            if self.worker is not None and self.may_kill(self.faults.kill_worker):
                self.kill_worker()

    def is_over(self) -> bool:
        experiment = self.store.queries.experiment(EXPERIMENT)
        return (
            experiment is not None
            and experiment.status in {ExperimentStatus.COMPLETED, ExperimentStatus.FAILED}
            and self.service is not None
            and not self.agent.held
        )

    # ── the service's life ──────────────────────────────────────────────────────────────────────
    def start_service(self) -> None:
        self.lives += 1
        service = Service(self)
        self.service = service
        try:
            service.recover()
        except Killed:
            self.service_died()
            return
        self.later(self.rng.random(), self.agent.connect)
        self.later(0.5, lambda: self.tick(service))

    def service_died(self) -> None:
        self.service = None
        self.worker = None  # its standard input closed
        self.agent.connected = False
        self.later(RESTART_S * self.rng.random(), self.start_service)

    def tick(self, service: Service) -> None:
        if self.service is service:
            self.tell(c.TimePassed(at=self.now))
            self._person_looks()
            self.later(0.5, lambda: self.tick(service))

    def _person_looks(self) -> None:
        """Resumes what was paused or stopped, whoever did it; sometimes it was this person."""
        experiment = self.store.queries.experiment(EXPERIMENT)
        if experiment is None:
            return
        if experiment.status in {ExperimentStatus.PAUSED, ExperimentStatus.STOPPED}:
            if self.rng.random() < 0.5:
                self.tell(c.ExperimentResumed(at=self.now, experiment_id=EXPERIMENT))
        elif experiment.status is ExperimentStatus.RUNNING and self.may_kill(self.faults.person):
            asked = self.rng.choice((c.ExperimentPaused, c.ExperimentStopped))
            self.tell(asked(at=self.now, experiment_id=EXPERIMENT))

    def tell(self, command: c.Command) -> None:
        """One command to the service, if it is alive."""
        if self.service is None:
            return
        try:
            self.service.step(command)
        except Killed:
            self.service_died()

    def send_command(self, make: Callable[[float], c.Command]) -> None:
        """A person's request: repeated until it was acknowledged, as a client with an idempotency key does."""

        def attempt() -> None:
            if self.store.queries.experiment(EXPERIMENT) is not None:
                return
            self.tell(make(self.now))
            self.later(1.0, attempt)

        self.later(0.1, attempt)

    # ── the network ─────────────────────────────────────────────────────────────────────────────
    def to_service(self, command: Callable[[], c.Command]) -> None:
        """From the agent: late, perhaps doubled, perhaps lost."""
        if self.chance(self.faults.lose):
            return
        for _ in range(2 if self.chance(self.faults.double) else 1):
            self.later(self.rng.random() * 0.4, lambda: self.tell(command()))

    def to_agent(self, effect: Callable[[], None]) -> None:
        if not self.chance(self.faults.lose):
            self.later(self.rng.random() * 0.2, effect)

    def kill_worker(self) -> None:
        worker, self.worker = self.worker, None
        if worker is not None:
            generation = worker.order.generation
            self.later(
                0.1,
                lambda: self.tell(
                    c.WorkerDied(at=self.now, experiment_id=EXPERIMENT, generation=generation, detail="killed")
                ),
            )


class Service:
    """A dispatcher and its store; ``Killed`` is raised wherever the process may die."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.dispatcher = Dispatcher(
            lineage=world.store.lineage, incarnation=f"life{world.lives}", first_generation=world.lives * 1000
        )

    def recover(self) -> None:
        for loaded in self.world.store.load():
            self._check_loaded(loaded)
            self.dispatcher.restore(loaded)
        self._die_here()
        effects = self.dispatcher.recover(self.world.now)
        self._finish(effects)

    def _check_loaded(self, loaded: LoadedExperiment) -> None:
        assert loaded.experiment.id == EXPERIMENT

    def step(self, command: c.Command) -> None:
        try:
            effects = self.dispatcher.handle(command)
        except ConflictError:
            return
        self._finish(effects)

    def _finish(self, effects: list[e.Effect]) -> None:
        broken = violations(self.dispatcher.state)
        assert not broken, broken
        xs = self.dispatcher.state.experiments.get(EXPERIMENT)
        self.world.max_live = max(self.world.max_live, len(xs.attempts) if xs else 0)
        changes = self.dispatcher.take_changes()
        self._die_here()
        if changes:
            self.world.store.commit(changes)
        self._die_here()
        for effect in effects:
            self.perform(effect)
            self._die_here()

    def _die_here(self) -> None:
        if self.world.may_kill(self.world.faults.kill_service):
            raise Killed

    def perform(self, effect: e.Effect) -> None:
        world = self.world
        match effect:
            case e.StartWorker():
                world.worker = Worker(world, effect)
            case e.StopWorker():
                world.worker = None
            case e.Deliver():
                if world.worker is not None and world.worker.order.generation == effect.generation:
                    world.worker.deliver(effect.queue, effect.item)
            case e.PingWorker():
                generation = effect.generation
                world.later(
                    0.05,
                    lambda: world.tell(c.WorkerPonged(at=world.now, experiment_id=EXPERIMENT, generation=generation)),
                )
            case e.WelcomeAgent():
                world.agent.welcomed(effect)
            case e.RemoveExperimentFolders() | e.DeleteCheckpointFile():
                pass
            case _:
                world.to_agent(lambda: world.agent.take(effect))


class Worker:
    """The folds of the real worker, in memory: killed, everything is gone."""

    def __init__(self, world: World, order: e.StartWorker) -> None:
        self.world, self.order = world, order
        spec = order.spec
        space = parse_search_space(spec.search_space)
        assert spec.tuner.name is not None
        tuner = create_tuner(spec.tuner.name, spec.tuner.args, space=space, objective=spec.objective)
        self.tuner = TunerFold(tuner, seed=spec.seed)
        self.assessor: AssessorFold | None = None
        if spec.assessor is not None and spec.assessor.name is not None:
            assessor = create_assessor(spec.assessor.name, spec.assessor.args, objective=spec.objective)
            self.assessor = AssessorFold(assessor, deterministic=spec.deterministic)
        self.lines: dict[Queue, list[QueueItem]] = {q: [] for q in Queue}
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

    def _fold(self, queue: Queue) -> TunerFold | AssessorFold | None:
        return self.tuner if queue is Queue.TUNER else self.assessor

    def deliver(self, queue: Queue, item: QueueItem) -> None:
        self.lines[queue].append(item)
        if len(self.lines[queue]) == 1:
            self.world.later(0.1 + self.world.rng.random() * 0.5, lambda: self._work(queue))

    def _work(self, queue: Queue) -> None:
        """Answer what is waiting, as one batch."""
        if self.world.worker is not self or not self.lines[queue]:
            return
        items, self.lines[queue] = self.lines[queue], []
        fold = self._fold(queue)
        assert fold is not None
        if queue in self.halted:
            return
        if self.world.may_kill(self.world.faults.algorithm):
            self._raise_at(queue, items.pop(self.world.rng.randrange(len(items))), items)
        answers = tuple(fold.take(item) for item in items)  # type: ignore[arg-type]  # routed by queue
        generation = self.order.generation
        answered = c.QueueAnswered(
            at=self.world.now, experiment_id=EXPERIMENT, generation=generation, queue=queue, answers=answers
        )
        self.world.later(self.world.rng.random() * 0.3, lambda: self._if_alive(answered))
        if items and self.world.chance(0.3):
            self._snapshot(queue, items[-1].line)

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


class Agent:
    """Holds attempts on its disk; connected or not. Its trials run whatever happens to it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.connected = False
        self.alive = True
        self.held: dict[str, SimAttempt] = {}
        self.spent: set[str] = set()
        self.boots = 1

    def connect(self) -> None:
        world = self.world
        if world.service is None or self.connected or not self.alive:
            return
        observed = tuple(
            ObservedAttempt(
                key=a.key,
                nonce=a.nonce,
                lineage=a.lineage,
                process=self._process(a) if a.exit is None else None,
                exit=a.exit,
                spooled=len(a.spool),
            )
            for a in self.held.values()
        )
        for attempt in self.held.values():
            attempt.in_flight_since = attempt.exit_sent_at = None
        world.tell(c.AgentConnected(at=world.now, agent_id=AGENT, cpus=8, memory_bytes=2**33, attempts=observed))
        if not self.connected:
            world.later(1.0, self.connect)

    def _process(self, attempt: SimAttempt) -> ProcessRecord:
        return ProcessRecord(boot_id=f"boot{self.boots}", pid=int(attempt.nonce.rpartition("-")[2]), start_time=1)

    def welcomed(self, effect: e.WelcomeAgent) -> None:
        self.connected = True
        for nonce, sequence in effect.acknowledged.items():
            if nonce in self.held:
                self.held[nonce].acknowledged = sequence
        for attempt in list(self.held.values()):
            self.send(attempt)
        if self.world.may_kill(self.world.faults.kill_agent):
            self._die()

    def _die(self) -> None:
        self.connected = self.alive = False
        self.world.tell(c.AgentDisconnected(at=self.world.now, agent_id=AGENT))

        def back() -> None:
            self.alive = True
            self.connect()

        self.world.later(self.world.rng.random() * 3, back)

    # ── orders ──────────────────────────────────────────────────────────────────────────────────
    def take(self, effect: e.Effect) -> None:
        if not self.alive:
            return
        match effect:
            case e.LaunchAttempt():
                self._launch(effect)
            case e.StopAttempt():
                self._stop(effect)
            case e.AcknowledgeReports() if effect.nonce in self.held:
                attempt = self.held[effect.nonce]
                attempt.acknowledged = effect.sequence
                attempt.in_flight_since = attempt.exit_sent_at = None
                self.send(attempt)
            case e.RefuseReports() if effect.nonce in self.held:
                self.world.later(effect.retry_after_s, lambda: self._retry(effect.nonce))
            case e.ForgetAttempt():
                attempt = self.held.get(effect.nonce)
                assert attempt is None or attempt.exit is not None, "told to forget an attempt that lives"
                self.held.pop(effect.nonce, None)
            case _:
                pass

    def _retry(self, nonce: str) -> None:
        if nonce in self.held:
            self.held[nonce].in_flight_since = None
            self.send(self.held[nonce])

    def _launch(self, effect: e.LaunchAttempt) -> None:
        if effect.nonce in self.spent:
            if effect.nonce in self.held:
                self._say_started(self.held[effect.nonce])
            return
        self.spent.add(effect.nonce)
        self.world.launched[str(effect.key)] = self.world.launched.get(str(effect.key), 0) + 1
        attempt = SimAttempt(key=effect.key, nonce=effect.nonce, lineage=effect.lineage, spec=effect.spec)
        self.held[effect.nonce] = attempt
        first = effect.spec.checkpoints[0].step + 1 if effect.spec.checkpoints else 0
        self._say_started(attempt)
        self.world.later(self.world.rng.random() * STEP_S, lambda: self._run(attempt, first))

    def _say_started(self, attempt: SimAttempt) -> None:
        process = self._process(attempt)
        self.world.to_service(
            lambda: c.AttemptStarted(
                at=self.world.now, agent_id=AGENT, key=attempt.key, nonce=attempt.nonce, process=process
            )
        )

    def _stop(self, effect: e.StopAttempt) -> None:
        if effect.nonce not in self.spent:
            # What never started never will.
            self.spent.add(effect.nonce)
            never = SimAttempt(key=effect.key, nonce=effect.nonce, lineage=self.world.store.lineage, spec=NO_LAUNCH)
            self.held[effect.nonce] = never
            self._exit(never, ExitRecord(cause="stopped", stop_reason=effect.reason))
            return
        attempt = self.held.get(effect.nonce)
        if attempt is None or attempt.exit is not None:
            return
        attempt.stopping = True
        reason = effect.reason
        self.world.later(
            self.world.rng.random() * 2, lambda: self._exit(attempt, ExitRecord(cause="stopped", stop_reason=reason))
        )

    # ── a trial's life: its values depend on its parameters and the step alone ──────────────────
    def _run(self, attempt: SimAttempt, step: int) -> None:
        world = self.world
        if attempt.exit is not None:
            return
        if world.may_kill(world.faults.kill_trial):
            self._exit(attempt, ExitRecord(cause="signaled", signal=9))
            return
        if world.may_kill(world.faults.kill_supervisor):
            self._exit(attempt, ExitRecord(cause="supervisor_lost"))
            return
        if world.may_kill(world.faults.reboot):
            self.boots += 1
            for other in list(self.held.values()):
                self._exit(other, ExitRecord(cause="host_rebooted"))
            return
        key = str(sorted(attempt.spec.parameters.items()))
        fails_at = int(unit(key, "fails") * self.world.steps) if unit(key) < 0.1 else None
        if step == fails_at:
            self._exit(attempt, ExitRecord(cause="exited", code=1, tail="ValueError: bad luck"))
            return
        if step >= world.steps:
            attempt.spool.append(MetricRecord(step=None, values={"loss": unit(key, "end")}, at=world.now, final=True))
            self._exit(attempt, ExitRecord(cause="exited", code=0))
            return
        value = 1.0 + unit(key, "level") - 0.5 * step / world.steps + 0.05 * unit(key, step)
        attempt.spool.append(MetricRecord(step=step, values={"loss": value, "step2": step * 2.0}, at=world.now))
        if step % CHECKPOINT_EVERY == CHECKPOINT_EVERY - 1:
            digest = hashlib.sha256(f"{key}{step}".encode()).hexdigest()
            record = CheckpointRecord(step=step, name=f"step-{step}", digest=digest, size=100, at=world.now)
            attempt.spool.append(record)
            world.tell(c.BlobReceived(at=world.now, digest=digest, data=b"x"))
        self.send(attempt)
        pace = STEP_S * (0.5 + unit(key, "pace")) * (0.5 + world.rng.random())
        world.later(pace, lambda: self._run(attempt, step + 1))

    def _exit(self, attempt: SimAttempt, record: ExitRecord) -> None:
        if attempt.exit is None:
            attempt.exit = record
            self.send(attempt)

    # ── reports ─────────────────────────────────────────────────────────────────────────────────
    def send(self, attempt: SimAttempt) -> None:
        """The next batch, or the exit after the last one; said again when no answer came."""
        world = self.world
        if not self.connected or attempt.nonce not in self.held:
            return
        if attempt.in_flight_since is not None and world.now - attempt.in_flight_since < RESEND_S:
            return
        if attempt.acknowledged < len(attempt.spool):
            self._send_reports(attempt)
        elif attempt.exit is not None:
            if attempt.exit_sent_at is not None and world.now - attempt.exit_sent_at < RESEND_S:
                return
            attempt.exit_sent_at = world.now
            record, last = attempt.exit, len(attempt.spool)
            world.to_service(
                lambda: c.AttemptExited(
                    at=world.now,
                    agent_id=AGENT,
                    key=attempt.key,
                    nonce=attempt.nonce,
                    exit=record,
                    last_sequence=last,
                )
            )
        else:
            return
        world.later(RESEND_S, lambda: self._again(attempt))

    def _again(self, attempt: SimAttempt) -> None:
        attempt.in_flight_since = attempt.exit_sent_at = None
        self.send(attempt)

    def _send_reports(self, attempt: SimAttempt) -> None:
        world = self.world
        attempt.in_flight_since = world.now
        first = attempt.acknowledged + 1
        # Sometimes from an earlier place, as after a reconnect to a service that remembers more than it said.
        if first > 1 and world.chance(world.faults.double):
            first -= 1
        records = tuple(attempt.spool[first - 1 : first - 1 + world.rng.randint(1, 8)])
        world.to_service(
            lambda: c.ReportsReceived(
                at=world.now,
                agent_id=AGENT,
                key=attempt.key,
                nonce=attempt.nonce,
                first_sequence=first,
                records=records,
            )
        )


# ── what is compared ────────────────────────────────────────────────────────────────────────────
def final_rows(world: World) -> list[dict[str, Any]]:
    """What must not depend on what was killed: trials, parameters, stops, metrics that algorithms saw, finals."""
    rows = []
    for trial in world.store.queries.trials(EXPERIMENT, limit=10_000):
        metrics = world.store.queries.metrics(EXPERIMENT, trial.number)
        seen = {m.step: m.values for m in metrics if m.step is not None}
        rows.append(
            {
                "number": trial.number,
                "parameters": trial.parameters,
                "status": trial.status.value,
                "reason": trial.reason.value,
                "value": trial.value,
                "final": trial.final,
                "last": (trial.last_step, trial.last_metrics),
                "metrics": dict(sorted(seen.items())),
            }
        )
    return rows

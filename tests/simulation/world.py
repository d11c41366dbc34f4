"""Whole experiments on virtual time: one seed, one history.

A service (dispatcher and memory store), agents with their attempts (or evaluators that ask for trials), and one
algorithm worker exchange messages over a network that delays, doubles, loses and reorders them. Everything may be
killed at any step: the service between any two of its statements (recovery included), the worker, the agent,
supervisors, evaluators and trials. What each of them keeps across its death is what the real one keeps on disk.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.memory_store import MemoryStore
from tests.simulation.algorithms import EXPERIMENT, Worker
from tests.simulation.attempt import SimAttempt
from tests.simulation.evaluators import Evaluator
from tests.simulation.node import Agent
from tests.simulation.recording import Restart, Step
from trials.wire.messages import DeleteCheckpoint
from tuner_service.dispatcher import commands as c
from tuner_service.dispatcher import effects as e
from tuner_service.dispatcher import importing
from tuner_service.dispatcher.dispatcher import Dispatcher
from tuner_service.dispatcher.invariants import violations
from tuner_service.dispatcher.state import ExperimentState
from tuner_service.domain.errors import ConflictError, InputError, NotFoundError, UnavailableError
from tuner_service.domain.experiment import Experiment, ExperimentSpec, ExperimentStatus
from tuner_service.domain.trial import TrialOutcome, TrialStatus
from tuner_service.ports import LoadedExperiment

RESTART_S = 2.0
EVALUATORS = 4  # of an experiment whose trials are asked for
CHANGES_LIMIT = 12  # by a person, so that every history ends
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
    preempt: float = 0.0  # a signal that a script takes for being told to stop
    reboot: float = 0.0
    lose: float = 0.0
    double: float = 0.0
    gap: float = 0.0  # an agent sends reports before what comes before them has arrived
    person: float = 0.0  # pauses or stops the experiment, and resumes it a while later
    live: float = 0.0  # a person changes limits, adds trials, imports results, changes the search space
    device: float = 0.0  # is lost, or taken by a stranger for a while
    unready: float = 0.0  # a node cannot prepare its part of an attempt
    slow: float = 0.0  # or takes longer than it is waited for
    port_taken: float = 0.0  # between prepare and go
    cut: float = 0.0  # an agent is cut off from the service for a while
    algorithm: float = 0.0  # raises, or says that it is temporarily unable
    most_kills: int = 40  # then the world is left in peace, so that every history ends


class World:
    def __init__(  # each is a fact of the history
        self, *, seed: int, spec: ExperimentSpec, steps: int, faults: Faults, phased: bool = False, agents: int = 1
    ) -> None:
        """``phased``: some trials ask for further parameters while they run."""
        self.rng = random.Random(seed)
        self.phased = phased
        self.spec, self.steps, self.faults = spec, steps, faults
        self.now = 1_000.0
        self.store = MemoryStore()
        self.kills = 0
        self.events = 0
        self.changes = 0  # by the person
        self.most_trials = spec.budget.trials or 0  # that were ever allowed
        self.launched: dict[str, int] = {}
        self.unread = 0  # lines that were told without their reports
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self.service: Service | None = None
        names = [f"agent-{number + 1}" for number in range(agents)]
        self.agents = {name: Agent(self, name) for name in names}
        self.saved: dict[str, tuple[int, str]] = {}  # checkpoint digest → its trial, and the ancestry of its weights
        self.parts: dict[str, dict[int, SimAttempt]] = {}  # of each attempt of several nodes, by node
        self.worker: Worker | None = None
        self.lives = 0
        self.story: list[Step] = []  # what is on disk follows from it

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
        if self.spec.trial.is_asked_for:
            for number in range(EVALUATORS):
                self.later(self.rng.random(), Evaluator(self, f"evaluator{number}").begin)
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
            and not any(agent.held for agent in self.agents.values())
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
        for agent in self.agents.values():
            self.later(self.rng.random(), agent.connect)
        self.later(0.5, lambda: self.tick(service))

    def service_died(self) -> None:
        self.service = None
        self.worker = None  # its standard input closed
        for agent in self.agents.values():
            agent.connected = False
        self.later(RESTART_S * self.rng.random(), self.start_service)

    def tick(self, service: Service) -> None:
        if self.service is service:
            self.tell(c.TimePassed(at=self.now))
            self._person_looks()
            if self.may_kill(self.faults.device):
                self.an_agent().devices_fail()
            if self.may_kill(self.faults.cut):
                self.an_agent().cut_off()
            self.later(0.5, lambda: self.tick(service))

    def an_agent(self) -> Agent:
        return self.rng.choice([*self.agents.values()])

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
        if self.changes < CHANGES_LIMIT and self.chance(self.faults.live):
            self.changes += 1
            self.tell(a_live_change(self, experiment))

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
        """From the agent."""
        self.to_service_when(lambda: self.tell(command()))

    def to_service_when(self, arrives: Callable[[], None]) -> None:
        """Late, perhaps doubled, perhaps lost."""
        if self.chance(self.faults.lose):
            return
        for _ in range(2 if self.chance(self.faults.double) else 1):
            self.later(self.rng.random() * 0.4, arrives)

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
        self._live: set[str] = set()
        self.start = Restart(at=world.now, incarnation=f"life{world.lives}", first_generation=world.lives * 1000)
        self.dispatcher = Dispatcher(
            lineage=world.store.lineage,
            incarnation=self.start.incarnation,
            first_generation=self.start.first_generation,
        )

    def recover(self) -> None:
        for loaded in self.world.store.load():
            self._check_loaded(loaded)
            self.dispatcher.restore(loaded)
            self._live = {attempt.nonce for attempt in loaded.attempts}
        self._die_here()
        effects = self.dispatcher.recover(self.world.now)
        self._finish(self.start, effects)

    def _check_loaded(self, loaded: LoadedExperiment) -> None:
        assert loaded.experiment.id == EXPERIMENT

    def step(self, command: c.Command) -> None:
        try:
            effects = self.dispatcher.handle(command)
        except (ConflictError, InputError, NotFoundError, UnavailableError):
            return
        self._finish(command, effects)

    def _finish(self, told: Step, effects: list[e.Effect]) -> None:
        changes = self.dispatcher.take_changes()
        if changes or effects:  # what else a step breaks is as broken after the next one that does something
            broken = violations(self.dispatcher.state)
            assert not broken, broken
        xs = self.dispatcher.state.experiments.get(EXPERIMENT)
        if xs is not None:
            self._check_launches(xs)
            self.world.most_trials = max(self.world.most_trials, xs.experiment.spec.budget.trials or 0)
        self._die_here()
        if changes:
            self.world.store.commit(changes)
        self.world.story.append(told)
        self._die_here()
        for effect in effects:
            self.perform(effect)
            self._die_here()

    def _check_launches(self, xs: ExperimentState) -> None:
        """Nothing is launched beyond the parallelism, whatever runs still from before it was lowered."""
        live = {attempt.nonce for attempt in xs.attempts.values()}
        parallel = xs.experiment.spec.budget.parallel
        assert live <= self._live or len(live) <= parallel, "more attempts at a time than allowed"
        self._live = live

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
                world.agents[effect.agent_id].welcomed(effect)
            case e.Tell(message=DeleteCheckpoint()):
                pass  # its checkpoints have no files
            case e.Tell():
                agent, message = world.agents[effect.agent_id], effect.message
                world.to_agent(lambda: agent.take(message))
            case _:
                pass


# ── what people change ──────────────────────────────────────────────────────────────────────────
def a_live_change(world: World, experiment: Experiment) -> c.LiveChange:
    """Any of them, at any time; some are refused."""
    rng = world.rng
    names: dict[str, Any] = {"at": world.now, "experiment_id": EXPERIMENT}
    parameters = {"lr": round(rng.uniform(0.0001, 0.1), 6)}
    match rng.randrange(6):
        case 0:
            return c.TrialAdded(parameters=parameters, **names)
        case 1:
            trials = world.store.queries.trials(EXPERIMENT, statuses=[TrialStatus.FAILED.value])
            retried = rng.choice(trials) if trials else None
            given = retried.parameters if retried else parameters
            return c.TrialAdded(parameters=given, retry_of=retried.number if retried else None, **names)
        case 2:
            outcome = TrialOutcome(
                number=0, status=TrialStatus.SUCCEEDED, parameters=parameters, value=rng.random(), source="imported"
            )
            return c.OutcomesImported(lines=tuple(importing.lines_of((outcome,) * rng.randint(1, 3))), **names)
        case 3:
            space = {"lr": {"_type": "loguniform", "_value": [0.0001, rng.choice((0.01, 0.1, 1.0))]}}
            return c.SearchSpaceChanged(search_space=space, **names)
        case 4:
            return c.ExperimentChanged(budget=c.BudgetRaise(trials=rng.randint(2, 14)), **names)
        case _:
            parallel = None if experiment.spec.deterministic else rng.randint(1, 5)
            return c.ExperimentChanged(budget=c.BudgetRaise(parallel=parallel), priority=rng.randint(-1, 1), **names)


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
                "further": (trial.further_parameters, trial.further_ended, trial.reported_index),
                "source": (trial.source, trial.retry_of, trial.rungs.forked_from, trial.rungs.forked_step),
                "status": trial.status.value,
                "reason": trial.reason.value,
                "value": trial.value,
                "final": trial.final,
                "last": (trial.last_step, trial.last_metrics),
                "metrics": dict(sorted(seen.items())),
            }
        )
    return rows

"""What the agents and the algorithm workers of a large cluster tell a dispatcher, and what they do as they are told."""

from __future__ import annotations

import itertools
import random
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trials.wire.messages import Launch, Stop
from trials.wire.records import ExitCause, ExitRecord, MetricRecord, ProcessRecord
from tuner_service.clock import SystemClock
from tuner_service.dispatcher import commands as c
from tuner_service.dispatcher import effects as e
from tuner_service.dispatcher.dispatcher import Dispatcher
from tuner_service.dispatcher.invariants import violations
from tuner_service.dispatcher.items import Queue, Suggested, SuggestionRequested, Taken
from tuner_service.domain.experiment import AlgorithmSpec, Budget, ExperimentSpec, Objective, TrialTemplate
from tuner_service.domain.resources import Device
from tuner_service.service.runner import GATHER_S, TICK_S
from tuner_service.storage.engine import open_store

DEVICES = 8
GIB = 1 << 30
STEP_S = GATHER_S  # what comes in for so long is one step
STEPS_A_TICK = round(TICK_S / STEP_S)
BATCH_LIMIT = 1_000
EXITED = ExitRecord(cause=ExitCause.EXITED, code=0)


@dataclass(frozen=True, kw_only=True)
class Size:
    nodes: int
    experiments: int

    @property
    def trials(self) -> int:
        return self.nodes * DEVICES


@dataclass(kw_only=True)
class _Attempt:
    order: Launch
    agent_id: str
    sequence: int = 0
    step: int = 0


def _names(order: Launch, agent_id: str) -> dict[str, Any]:
    return {"agent_id": agent_id, "key": order.key, "nonce": order.nonce}


@dataclass
class SimulatedCluster:
    path: Path
    size: Size
    placements: list[float] = field(default_factory=list)  # of each command that started trials, its time

    def __post_init__(self) -> None:
        self.now = time.time()
        self._store = open_store(self.path, SystemClock())
        self._dispatcher = Dispatcher(lineage=self._store.lineage, incarnation="benchmark")
        self._attempts: dict[str, _Attempt] = {}
        self._waiting: deque[c.Command] = deque()  # what workers and agents say next
        self._pids = itertools.count(1)
        self._rng = random.Random(5)

    def close(self) -> None:
        self._store.close()

    @property
    def running(self) -> int:
        return len(self._attempts)

    def violations(self) -> list[str]:
        return violations(self._dispatcher.state)

    # ── steps ───────────────────────────────────────────────────────────────────────────────────
    def _step(self, commands: Iterable[c.Command]) -> None:
        """As the service makes them: all are handled, one transaction, then what follows is done."""
        effects: list[e.Effect] = []
        for command in commands:
            begun = time.thread_time()
            found = self._dispatcher.handle(command)
            took = time.thread_time() - begun
            if any(isinstance(effect, e.Tell) and isinstance(effect.message, Launch) for effect in found):
                self.placements.append(took)
            effects += found
        changes = self._dispatcher.take_changes()
        if changes:
            self._store.commit(changes)
        for effect in effects:
            self._perform(effect)

    def _settle(self) -> None:
        """Until nobody has anything to say."""
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(BATCH_LIMIT, len(self._waiting)))]
            self._step(batch)

    def _perform(self, effect: e.Effect) -> None:
        match effect:
            case e.StartWorker():
                names: dict[str, Any] = {"experiment_id": effect.experiment_id, "generation": effect.generation}
                self._waiting.append(c.WorkerReady(at=self.now, asks_ahead=True, **names))
            case e.Deliver():
                line, is_asked = effect.item.line, isinstance(effect.item, SuggestionRequested)
                answer = Suggested(line=line, parameters={"lr": 0.1}) if is_asked else Taken(line=line)
                names = {"experiment_id": effect.experiment_id, "generation": effect.generation}
                self._waiting.append(c.QueueAnswered(at=self.now, queue=Queue.TUNER, answers=(answer,), **names))
            case e.Tell(message=Launch() as order):
                self._attempts[order.nonce] = _Attempt(order=order, agent_id=effect.agent_id)
                process = ProcessRecord(boot_id="b", pid=next(self._pids), start_time=1)
                names = _names(order, effect.agent_id)
                self._waiting.append(c.AttemptStarted(at=self.now, process=process, **names))
            case e.Tell(message=Stop() as order):
                self._attempts.pop(order.nonce, None)
            case _:
                pass

    # ── what happens ────────────────────────────────────────────────────────────────────────────
    def fill(self) -> None:
        """All nodes connect, and all experiments begin, until every device has a trial."""
        for number in range(self.size.nodes):
            self._waiting.append(self._connected(f"node-{number:04d}"))
        self._settle()
        parallel = -(-self.size.trials // self.size.experiments)
        for number in range(self.size.experiments):
            spec = ExperimentSpec(
                name="benchmark",
                seed=number,
                objective=Objective(metric="loss"),
                search_space={"lr": {"type": "float", "low": 0.0001, "high": 1.0}},
                tuner=AlgorithmSpec(name="random"),
                budget=Budget(trials=100 * parallel, parallel=parallel),
                trial=TrialTemplate(command=("python", "train.py"), gpus=1.0, cpus=4.0),
            )
            self._waiting.append(c.ExperimentCreated(at=self.now, experiment_id=f"x{number:03d}", spec=spec))
        self._settle()

    def _connected(self, agent_id: str) -> c.Command:
        devices = tuple(Device(uuid=f"{agent_id}-{n}", name="A100", memory_bytes=80 * GIB) for n in range(DEVICES))
        return c.AgentConnected(
            at=self.now, agent_id=agent_id, cpus=64, memory_bytes=512 * GIB, devices=devices, attempts=()
        )

    def report(self, *, seconds: int, each_node: int) -> float:
        """Reports of all nodes, spread evenly; the seconds of a processor that they took once they were there."""
        attempts = list(self._attempts.values())
        self._rng.shuffle(attempts)
        turn = itertools.cycle(attempts)
        steps = round(seconds / STEP_S)
        took = 0.0
        for step in range(steps):
            self.now += STEP_S
            count = (step + 1) * self.size.nodes * each_node * seconds // steps
            count -= step * self.size.nodes * each_node * seconds // steps
            batch: list[c.Command] = [self._reported(next(turn)) for _ in range(count)]
            if step % STEPS_A_TICK == 0:
                batch.append(c.TimePassed(at=self.now))
            begun = time.process_time()
            self._step(batch)
            took += time.process_time() - begun
        return took

    def _reported(self, attempt: _Attempt) -> c.Command:
        attempt.sequence += 1
        attempt.step += 1
        record = MetricRecord(step=attempt.step, values={"loss": 1 / attempt.step}, at=self.now)
        names = _names(attempt.order, attempt.agent_id)
        return c.ReportsReceived(at=self.now, first_sequence=attempt.sequence, records=(record,), **names)

    def end_some(self, count: int) -> None:
        """One trial after the other comes to its end, and the next one takes its place."""
        for attempt in self._rng.sample(list(self._attempts.values()), count):
            self.now += STEP_S
            names = _names(attempt.order, attempt.agent_id)
            final = MetricRecord(step=None, values={"loss": 0.1}, at=self.now, final=True)
            first = attempt.sequence + 1
            del self._attempts[attempt.order.nonce]
            self._step([c.ReportsReceived(at=self.now, first_sequence=first, records=(final,), **names)])
            self._step([c.AttemptExited(at=self.now, exit=EXITED, last_sequence=first, **names)])
            self._settle()

    def lose_some(self, count: int) -> list[float]:
        """How long each took, as a clock on the wall says. Where a node is lost, none is free for its trials."""
        found = []
        for agent_id in self._rng.sample([f"node-{n:04d}" for n in range(self.size.nodes)], count):
            self.now += STEP_S
            self._attempts = {nonce: a for nonce, a in self._attempts.items() if a.agent_id != agent_id}
            begun = time.perf_counter()
            self._step([c.AgentLost(at=self.now, agent_id=agent_id)])
            self._settle()
            found.append(time.perf_counter() - begun)
            self._step([self._connected(agent_id)])
            self._settle()
        return found

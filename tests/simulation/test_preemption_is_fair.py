"""Many experiments of several priorities and groups on few devices, with a real dispatcher on virtual time.

Everything comes to its end; what had to leave had run for its while and had saved; nobody waits for a lower priority
for longer than that and a grace; and nothing is run twice but what came after the last checkpoint.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from tests.builders import a_spec
from trials.wire.messages import Launch, Stop
from trials.wire.records import CheckpointRecord, ExitCause, ExitRecord, MetricRecord, ProcessRecord
from tuner_service.dispatcher import commands as c
from tuner_service.dispatcher import effects as e
from tuner_service.dispatcher.dispatcher import Dispatcher
from tuner_service.dispatcher.invariants import violations
from tuner_service.dispatcher.items import Queue, Suggested, SuggestionRequested, Taken
from tuner_service.dispatcher.ledger import Ledger
from tuner_service.dispatcher.limits import PREEMPTED_AFTER_S, PREEMPTION_LOOK_S
from tuner_service.domain.resources import DEFAULT_GROUP, Device, QuotaGroup
from tuner_service.domain.trial import TrialReason, TrialStatus

NODES, DEVICES = 2, 3
STEP_S, STEPS = 20.0, 8
TICK_S = 2.0
GRACE_S = 10.0
GROUPS = (QuotaGroup(name="vision", gpus=3), QuotaGroup(name="speech", gpus=1), QuotaGroup(name="small", cpus=4.0))
WAIT_LIMIT_S = PREEMPTED_AFTER_S + PREEMPTION_LOOK_S + GRACE_S + 2 * STEP_S
EVENT_LIMIT = 40_000


@dataclass(kw_only=True)
class Life:
    """One attempt."""

    order: Launch
    agent_id: str
    began: float
    step: int = 0
    saved: int = 0  # the newest checkpoint of its own, as a step
    sequence: int = 0
    told: str = ""  # why it is to stop
    over: bool = False


@dataclass
class Cluster:
    rng: random.Random
    now: float = 1_000.0
    lives: dict[str, Life] = field(default_factory=dict)
    left: list[Life] = field(default_factory=list)  # those that were preempted
    minds_waits: bool = False
    reached: Counter[tuple[str, int]] = field(default_factory=Counter)  # the furthest saved step of each trial
    waits: dict[str, float] = field(default_factory=dict)  # of each experiment, the longest of one that goes first

    def __post_init__(self) -> None:
        self.dispatcher = Dispatcher(lineage="memory", incarnation="life1")
        self._order = itertools.count()
        self._heap: list[tuple[float, int, Callable[[], None]]] = []

    def later(self, delay: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (self.now + delay, next(self._order), event))

    def tell(self, command: c.Command) -> None:
        effects = self.dispatcher.handle(command)
        self.dispatcher.take_changes()
        for effect in effects:
            self.perform(effect)

    def run(self) -> None:
        self.later(TICK_S, self.tick)
        for _ in range(EVENT_LIMIT):
            if not self._heap:
                return
            self.now, _, event = heapq.heappop(self._heap)
            event()
        raise AssertionError("it does not come to an end")

    def tick(self) -> None:
        self.tell(c.TimePassed(at=self.now))
        assert not violations(self.dispatcher.state)
        if self.minds_waits:
            self.note_waits()
        if self.dispatcher.is_busy or self._heap:
            self.later(TICK_S, self.tick)

    # ── what the world does ─────────────────────────────────────────────────────────────────────
    def perform(self, effect: e.Effect) -> None:
        match effect:
            case e.StartWorker():
                names = {"experiment_id": effect.experiment_id, "generation": effect.generation}
                self.later(0.1, lambda: self.tell(c.WorkerReady(at=self.now, **names)))
            case e.Deliver():
                is_asked = isinstance(effect.item, SuggestionRequested)
                line, experiment_id, generation = effect.item.line, effect.experiment_id, effect.generation
                answer = Suggested(line=line, parameters={"lr": 0.1}) if is_asked else Taken(line=line)
                names = {"experiment_id": experiment_id, "generation": generation, "queue": Queue.TUNER}
                self.later(0.1, lambda: self.tell(c.QueueAnswered(at=self.now, answers=(answer,), **names)))
            case e.Tell(message=Launch() as order):
                self.launch(order, effect.agent_id)
            case e.Tell(message=Stop() as stop):
                life = self.lives.get(stop.nonce)
                if life is not None and not life.told:
                    life.told = stop.reason
                    self.later(self.rng.random() * GRACE_S, lambda: self.leave(life))

    def launch(self, order: Launch, agent_id: str) -> None:
        if order.nonce in self.lives:
            return
        restored = order.spec.checkpoints[0].step if order.spec.checkpoints else 0
        assert restored == self.reached[order.key.experiment_id, order.key.number], "it goes on where it was"
        life = self.lives[order.nonce] = Life(order=order, agent_id=agent_id, began=self.now, step=restored)
        self.later(0.5, lambda: self.begin(life))

    def begin(self, life: Life) -> None:
        life.began = self.now
        process = ProcessRecord(boot_id="b", pid=len(self.lives), start_time=1)
        self.tell(c.AttemptStarted(at=self.now, process=process, **self.names(life)))
        self.later(self.rng.uniform(0.5, 1.5) * STEP_S, lambda: self.go_on(life))

    def names(self, life: Life) -> dict[str, Any]:
        return {"agent_id": life.agent_id, "key": life.order.key, "nonce": life.order.nonce}

    def go_on(self, life: Life) -> None:
        if life.over:
            return
        life.step += 1
        self.save(life)
        if life.step >= STEPS:
            self.report(life, MetricRecord(step=None, values={"loss": 0.5}, at=self.now, final=True))
            self.end(life, ExitRecord(cause=ExitCause.EXITED, code=0))
        else:
            self.later(self.rng.uniform(0.5, 1.5) * STEP_S, lambda: self.go_on(life))

    def save(self, life: Life) -> None:
        key, life.saved = life.order.key, life.step
        digest = f"{key.number:032x}{life.step:032x}"
        self.report(life, CheckpointRecord(step=life.step, name="c", digest=digest, size=1, at=self.now))
        self.reached[key.experiment_id, key.number] = life.step

    def report(self, life: Life, record: c.Record) -> None:
        life.sequence += 1
        first = life.sequence
        self.tell(c.ReportsReceived(at=self.now, first_sequence=first, records=(record,), **self.names(life)))

    def leave(self, life: Life) -> None:
        if life.over:
            return
        if life.told == TrialReason.PREEMPTED.value:
            assert self.now - life.began >= PREEMPTED_AFTER_S, "it was let run for its while"
            assert life.saved, "it had brought its trial on"
            self.left.append(life)
        self.end(life, ExitRecord(cause=ExitCause.STOPPED, stop_reason=life.told))

    def end(self, life: Life, record: ExitRecord) -> None:
        life.over = True
        self.tell(c.AttemptExited(at=self.now, exit=record, last_sequence=life.sequence, **self.names(life)))

    def note_waits(self) -> None:
        """Where all ask for one device: how long the first waits while a lower one holds some that may leave."""
        states = list(self.dispatcher.state.experiments.values())
        waiting = [xs for xs in states if xs.trials_with(TrialStatus.WAITING) and not xs.attempts]
        first = max((xs.experiment.priority for xs in waiting), default=0)
        lower = [xs for xs in states if xs.experiment.spec.preemptible and xs.attempts]
        for xs in states:
            goes_first = xs in waiting and xs.experiment.priority == first
            is_kept = goes_first and any(other.experiment.priority < first for other in lower)
            self.waits[xs.id] = self.waits.get(xs.id, 0.0) + TICK_S if is_kept else 0.0
            assert self.waits[xs.id] <= WAIT_LIMIT_S, f"{xs.id} waits for a lower priority"


def a_cluster(seed: int, *, nodes: int, devices: int) -> Cluster:
    cluster = Cluster(random.Random(seed))
    for node in range(nodes):
        found = tuple(Device(uuid=f"n{node}-g{n}", memory_bytes=2**36) for n in range(devices))
        names = {"at": cluster.now, "agent_id": f"n{node}", "attempts": ()}
        cluster.tell(c.AgentConnected(cpus=16, memory_bytes=2**36, devices=found, **names))
    return cluster


def begin(cluster: Cluster, name: str, *, priority: int, trials: int = 1, gpus: float = 1.0, **fields: Any) -> None:
    spec = a_spec(
        budget={"trials": trials, "parallel": 4},
        trial={"gpus": gpus, "cpus": 1.0, "stop_grace_s": GRACE_S},
        **fields,
    )
    cluster.tell(c.ExperimentCreated(at=cluster.now, experiment_id=name, spec=spec))
    cluster.tell(c.ExperimentChanged(at=cluster.now, experiment_id=name, priority=priority))


@pytest.mark.parametrize("grouped", [False, True], ids=["alike", "grouped"])
@pytest.mark.parametrize("seed", range(4))
def test_everything_comes_to_its_end_and_nobody_runs_in_vain(seed: int, grouped: bool) -> None:
    cluster = a_cluster(seed, nodes=NODES, devices=DEVICES)
    cluster.minds_waits = not grouped
    rng = cluster.rng
    for group in GROUPS:
        cluster.tell(c.QuotaGroupSet(at=cluster.now, group=group))
    names = [f"x{number}" for number in range(12)]
    for number, name in enumerate(names):
        urgent = number % 4 == 3
        fields: dict[str, Any] = {
            "preemptible": not urgent and rng.random() < 0.8,
            "priority": rng.randint(1, 3) if urgent else 0,
            "gpus": rng.choice([0.5, 1.0, 2.0]) if grouped else 1.0,
            "trials": rng.randint(1, 6),
            "quota_group": rng.choice([DEFAULT_GROUP, *(group.name for group in GROUPS)]) if grouped else DEFAULT_GROUP,
        }
        cluster.later(rng.random() * 400, partial(begin, cluster, name, **fields))
    cluster.run()

    for name in names:
        experiment = cluster.dispatcher.state.experiments[name].experiment
        assert experiment.counts == {"succeeded": experiment.spec.budget.trials}
    assert cluster.left or grouped, "somebody had to leave"
    assert cluster.dispatcher.state.ledger == Ledger()


def test_one_that_may_leave_again_and_again_comes_to_its_end_between_others_that_go_first() -> None:
    cluster = a_cluster(3, nodes=1, devices=1)
    begin(cluster, "low", preemptible=True, priority=0, trials=3)
    for number in range(8):
        cluster.later(100.0 + 260.0 * number, partial(begin, cluster, f"high{number}", priority=2))
    cluster.run()

    assert len(cluster.left) >= 3
    ended = {name: xs.experiment.ended_at for name, xs in cluster.dispatcher.state.experiments.items()}
    assert all(ended.values())

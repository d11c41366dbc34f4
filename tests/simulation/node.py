"""The simulated node: an agent, and the attempts on its disk."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from trials.wire.attempt import AttemptKey
from trials.wire.launch import LaunchSpec
from trials.wire.messages import Acknowledge, Busy, Forget, FurtherParameters, Launch, ObservedAttempt, Stop
from trials.wire.records import (
    CheckpointRecord,
    ExitCause,
    ExitRecord,
    MetricRecord,
    ParametersWantedRecord,
    ProcessRecord,
    StopToldRecord,
)
from tuner_service.dispatcher import commands as c
from tuner_service.dispatcher import effects as e
from tuner_service.domain.resources import Device

if TYPE_CHECKING:
    from tests.simulation.world import World

AGENT = "agent-1"
DEVICES = 4
STEP_S = 1.0  # between two reports of a trial
CHECKPOINT_EVERY = 3  # steps
RESEND_S = 3.0
PHASE_STEPS = 3  # of a trial with several sets of parameters: after so many it asks for the next one
ANSWER_POLL_S = 0.4
ASK_AGAIN_S = 10.0
NO_LAUNCH = LaunchSpec(command=(), parameters={}, seed=0, objective="loss")  # of an attempt that never started


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
    answers: dict[int, dict[str, Any] | None] = field(default_factory=dict)  # the files with further parameters
    index: int = 0  # of the parameters it runs with
    ancestry: str = ""  # of its weights: the checkpoint of another trial that it began with
    cooperates: bool = False  # its script asks should_stop
    asks_first: bool = False  # before each step instead of after it
    reports_half_way: bool = False  # a final metric, although it was told to stop
    asked: int = 0
    asked_at: float = 0.0

    @property
    def parameters(self) -> dict[str, Any]:
        further = self.answers.get(self.index) if self.index else self.spec.parameters
        assert further is not None, "it runs with parameters that it was not given"
        return further


class Agent:
    """Holds attempts on its disk; connected or not. Its trials run whatever happens to it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.connected = False
        self.alive = True
        self.held: dict[str, SimAttempt] = {}
        self.spent: set[str] = set()
        self.saved: dict[str, tuple[int, str]] = {}  # checkpoint digest → its trial, and the ancestry of its weights
        self.boots = 1
        self.devices = [Device(uuid=f"g{n}", name="simulated", memory_bytes=2**36) for n in range(DEVICES)]

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
        world.tell(
            c.AgentConnected(
                at=world.now,
                agent_id=AGENT,
                cpus=8,
                memory_bytes=2**33,
                attempts=observed,
                devices=tuple(self.devices),
            )
        )
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

    # ── devices ─────────────────────────────────────────────────────────────────────────────────
    def devices_fail(self) -> None:
        """One is lost, while others are left; or a stranger takes one for a while."""
        world, number = self.world, self.world.rng.randrange(DEVICES)
        if self.devices[number].lost:
            return
        if world.rng.random() < 0.3 and sum(bool(device.lost) for device in self.devices) < DEVICES - 2:
            self._change(number, lost="fell off the bus")
        else:
            self._change(number, occupied=True)
            world.later(world.rng.random() * 5, lambda: self._change(number, occupied=False))

    def _change(self, number: int, **fields: Any) -> None:
        self.devices[number] = replace(self.devices[number], **fields)
        if self.connected and self.alive:
            told = tuple(self.devices)
            self.world.tell(c.DevicesChanged(at=self.world.now, agent_id=AGENT, devices=told))

    def _check_devices(self) -> None:
        """Whatever was killed: no device is shared by those that did not ask for a share."""
        used: Counter[str] = Counter()
        for attempt in self.held.values():
            if attempt.exit is None:
                used.update({device.uuid: round(device.share * 100) for device in attempt.spec.devices})
        assert all(share <= 100 for share in used.values()), f"devices are shared by mistake: {used}"

    # ── orders ──────────────────────────────────────────────────────────────────────────────────
    def take(self, message: e.ToOneAgent) -> None:
        if not self.alive:
            return
        match message:
            case Launch():
                self._launch(message)
            case Stop():
                self._stop(message)
            case FurtherParameters() if message.nonce in self.held:
                attempt = self.held[message.nonce]
                known = attempt.answers.setdefault(message.index, message.parameters)
                assert known == message.parameters, "one index, two answers"
            case Acknowledge() if message.nonce in self.held:
                attempt = self.held[message.nonce]
                attempt.acknowledged = message.sequence
                attempt.in_flight_since = attempt.exit_sent_at = None
                self.send(attempt)
            case Busy() if message.nonce in self.held:
                self.world.later(message.retry_after_s, lambda: self._retry(message.nonce))
            case Forget():
                attempt = self.held.get(message.nonce)
                assert attempt is None or attempt.exit is not None, "told to forget an attempt that lives"
                self.held.pop(message.nonce, None)
            case _:
                pass

    def _retry(self, nonce: str) -> None:
        if nonce in self.held:
            self.held[nonce].in_flight_since = None
            self.send(self.held[nonce])

    def _launch(self, order: Launch) -> None:
        if order.nonce in self.spent:
            if order.nonce in self.held:
                self._say_started(self.held[order.nonce])
            return
        self.spent.add(order.nonce)
        self.world.launched[str(order.key)] = self.world.launched.get(str(order.key), 0) + 1
        attempt = SimAttempt(key=order.key, nonce=order.nonce, lineage=order.lineage, spec=order.spec)
        self.held[order.nonce] = attempt
        known = {device.uuid: device for device in self.devices}
        if any(known[given.uuid].lost or known[given.uuid].occupied for given in order.spec.devices):
            self._exit(
                attempt, ExitRecord(cause=ExitCause.DEVICE_UNAVAILABLE, tail="device is in use by another program")
            )
            return
        self._check_devices()
        first = order.spec.checkpoints[0].step + 1 if order.spec.checkpoints else 0
        attempt.cooperates = unit(order.spec.seed, "cooperates") < 0.7
        attempt.asks_first = unit(order.spec.seed, "asks first") < 0.4
        attempt.reports_half_way = unit(order.spec.seed, "half way") < 0.6
        if order.spec.checkpoints:
            digest = order.spec.checkpoints[0].digest
            number, ancestry = self.saved[digest]
            attempt.ancestry = ancestry if number == order.key.number else digest
        attempt.answers = dict(enumerate(order.spec.further_parameters, start=1))
        if self._is_phased(attempt):
            # As a checkpoint says; fewer where the tuner had no more.
            attempt.index = min(max(0, first - 1) // PHASE_STEPS, len(attempt.answers))
        self._say_started(attempt)
        self.world.later(self.world.rng.random() * STEP_S, lambda: self._run(attempt, first))

    def _say_started(self, attempt: SimAttempt) -> None:
        process = self._process(attempt)
        self.world.to_service(
            lambda: c.AttemptStarted(
                at=self.world.now, agent_id=AGENT, key=attempt.key, nonce=attempt.nonce, process=process
            )
        )

    def _stop(self, order: Stop) -> None:
        if order.nonce not in self.spent:
            # What never started never will.
            self.spent.add(order.nonce)
            never = SimAttempt(key=order.key, nonce=order.nonce, lineage=self.world.store.lineage, spec=NO_LAUNCH)
            self.held[order.nonce] = never
            self._exit(never, ExitRecord(cause=ExitCause.STOPPED, stop_reason=order.reason))
            return
        attempt = self.held.get(order.nonce)
        if attempt is None or attempt.exit is not None:
            return
        attempt.stopping = True
        reason = order.reason
        self.world.later(
            self.world.rng.random() * 2,
            lambda: self._exit(attempt, ExitRecord(cause=ExitCause.STOPPED, stop_reason=reason)),
        )

    # ── a trial's life: its values depend on its parameters and the step alone ──────────────────
    def _run(self, attempt: SimAttempt, step: int) -> None:
        world = self.world
        if attempt.exit is not None:
            return
        if world.may_kill(world.faults.kill_trial):
            self._exit(attempt, ExitRecord(cause=ExitCause.SIGNALED, signal=9))
            return
        if world.may_kill(world.faults.kill_supervisor):
            self._exit(attempt, ExitRecord(cause=ExitCause.SUPERVISOR_LOST))
            return
        if world.may_kill(world.faults.reboot):
            self.boots += 1
            for other in list(self.held.values()):
                self._exit(other, ExitRecord(cause=ExitCause.HOST_REBOOTED))
            return
        if self._waits_for_parameters(attempt, step):
            world.later(ANSWER_POLL_S, lambda: self._run(attempt, step))
            return
        key = f"{sorted(attempt.parameters.items())}{attempt.ancestry}"
        fails_at = int(unit(key, "fails") * self.world.steps) if unit(key) < 0.1 else None
        until = attempt.spec.until_step
        rests = until is not None and step - 1 >= until and any(isinstance(r, MetricRecord) for r in attempt.spool)
        if attempt.asks_first and step < world.steps and self._is_told(attempt, rests=rests):
            self._leave(attempt, key)
            return
        if step == fails_at:
            self._exit(attempt, ExitRecord(cause=ExitCause.EXITED, code=1, tail="ValueError: bad luck"))
            return
        if step >= world.steps:
            attempt.spool.append(MetricRecord(step=None, values={"loss": unit(key, "end")}, at=world.now, final=True))
            self._exit(attempt, ExitRecord(cause=ExitCause.EXITED, code=0))
            return
        value = 1.0 + unit(key, "level") - 0.5 * step / world.steps + 0.05 * unit(key, step)
        attempt.spool.append(MetricRecord(step=step, values={"loss": value, "step2": step * 2.0}, at=world.now))
        rests = until is not None and step >= until
        leaves = not attempt.asks_first and self._is_told(attempt, rests=rests)
        saves = attempt.cooperates and (not attempt.asks_first or unit(key, "saves") < 0.5)
        if leaves or (rests and saves) or step % CHECKPOINT_EVERY == CHECKPOINT_EVERY - 1:
            self._save(attempt, key, step)
        if leaves:
            self._leave(attempt, key)
            return
        self.send(attempt)
        pace = STEP_S * (0.5 + unit(key, "pace")) * (0.5 + world.rng.random())
        world.later(pace, lambda: self._run(attempt, step + 1))

    def _is_told(self, attempt: SimAttempt, *, rests: bool) -> bool:
        """What should_stop answers: asked to stop, where it is to rest, or a signal from outside has come."""
        if not attempt.cooperates:
            return False
        return attempt.stopping or rests or self.world.may_kill(self.world.faults.preempt)

    def _leave(self, attempt: SimAttempt, key: str) -> None:
        """As scripts do that break out of their loop: what is behind the loop is done all the same."""
        now = self.world.now
        attempt.spool.append(StopToldRecord(at=now))
        if attempt.reports_half_way:
            values = {"loss": unit(key, "half way")}
            attempt.spool.append(MetricRecord(step=None, values=values, at=now, final=True))
        self._exit(attempt, ExitRecord(cause=ExitCause.STOPPED if attempt.stopping else ExitCause.EXITED, code=0))

    def _save(self, attempt: SimAttempt, key: str, step: int) -> None:
        world, number = self.world, attempt.key.number
        digest = hashlib.sha256(f"{number}{key}{step}".encode()).hexdigest()
        self.saved[digest] = number, attempt.ancestry
        record = CheckpointRecord(step=step, name=f"step-{step}", digest=digest, size=100, at=world.now)
        attempt.spool.append(record)
        world.tell(c.BlobReceived(at=world.now, digest=digest, data=b"x"))

    def _is_phased(self, attempt: SimAttempt) -> bool:
        return self.world.phased and unit(attempt.spec.seed, "phased") < 0.6

    def _waits_for_parameters(self, attempt: SimAttempt, step: int) -> bool:
        """At the beginning of a phase: ask, and wait for the answer; without one it goes on as it is."""
        wanted = step // PHASE_STEPS
        ends = step >= self.world.steps or step % PHASE_STEPS or not wanted
        if ends or not self._is_phased(attempt) or attempt.index >= wanted:
            return False
        index = attempt.index + 1
        if attempt.asked < index or self.world.now - attempt.asked_at > ASK_AGAIN_S:
            attempt.asked, attempt.asked_at = index, self.world.now
            attempt.spool.append(ParametersWantedRecord(index=index, at=self.world.now))
            self.send(attempt)
        if index not in attempt.answers:
            return True
        if attempt.answers[index] is not None:
            attempt.index = index
        return False

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
        elif world.faults.gap and world.chance(world.faults.gap):
            first = world.rng.randint(first, len(attempt.spool))
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

"""The simulated node: an agent, and the attempts, or parts of attempts, on its disk."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.simulation.attempt import SimAttempt, unit
from trials.wire.launch import LaunchSpec
from trials.wire.messages import Acknowledge, Busy, Forget, FurtherParameters, Launch, ObservedAttempt, Prepare, Stop
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

DEVICES = 4  # of each node
PREPARES_S, SLOW_S = 1.0, 70.0  # what a node takes to make a part ready; the slow one is given up meanwhile
LOOKS_S = 0.7  # a part looks so often whether the first node's has ended
ALONE_LIMIT_S = 180.0  # a part whose other has ended runs so long at most, whatever else is killed or cut off
CUT_S = 40.0  # a node is cut off from the service for so long at most
STEP_S = 1.0  # between two reports of a trial
CHECKPOINT_EVERY = 3  # steps
RESEND_S = 3.0
PHASE_STEPS = 3  # of a trial with several sets of parameters: after so many it asks for the next one
ANSWER_POLL_S = 0.4
ASK_AGAIN_S = 10.0
NO_LAUNCH = LaunchSpec(command=(), parameters={}, seed=0, objective="loss")  # of an attempt that never started


class Agent:
    """Holds attempts on its disk; connected or not. Its trials run whatever happens to it."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.connected = False
        self.cut_until = 0.0
        self.alive = True
        self.held: dict[str, SimAttempt] = {}
        self.spent: set[str] = set()
        self.boots = 1
        self.devices = [Device(uuid=f"{name}-g{n}", name="simulated", memory_bytes=2**36) for n in range(DEVICES)]

    def connect(self) -> None:
        world = self.world
        if world.service is None or self.connected or not self.alive:
            return
        if world.now < self.cut_until:
            world.later(self.cut_until - world.now, self.connect)
            return
        observed = tuple(
            ObservedAttempt(
                key=a.key,
                nonce=a.nonce,
                lineage=a.lineage,
                process=self._process(a) if a.exit is None and not a.is_prepared else None,
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
                agent_id=self.name,
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
        self.world.tell(c.AgentDisconnected(at=self.world.now, agent_id=self.name))

        def back() -> None:
            self.alive = True
            self.connect()

        self.world.later(self.world.rng.random() * 3, back)

    def cut_off(self) -> None:
        """From the service, for a while; what runs runs on."""
        if self.connected:
            self.connected = False
            self.cut_until = self.world.now + self.world.rng.random() * CUT_S
            self.world.tell(c.AgentDisconnected(at=self.world.now, agent_id=self.name))
            self.world.later(self.cut_until - self.world.now, self.connect)

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
            self.world.tell(c.DevicesChanged(at=self.world.now, agent_id=self.name, devices=told))

    def _check_devices(self) -> None:
        """Whatever was killed: no device is shared by those that did not ask for a share. A part that waits for the
        order to begin uses none, and may have been given back without its agent having heard of it yet."""
        used: Counter[str] = Counter()
        for attempt in self.held.values():
            if attempt.exit is None and not attempt.is_prepared:
                used.update({device.uuid: round(device.share * 100) for device in attempt.spec.devices})
        assert all(share <= 100 for share in used.values()), f"devices are shared by mistake: {used}"

    # ── orders ──────────────────────────────────────────────────────────────────────────────────
    def take(self, message: e.ToOneAgent) -> None:
        if not self.alive or self.world.now < self.cut_until:
            return
        match message:
            case Prepare():
                self._prepare(message)
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

    # ── parts of attempts of several nodes ──────────────────────────────────────────────────────
    def _prepare(self, order: Prepare) -> None:
        """Ready after a while; perhaps too late, perhaps never."""
        world, held = self.world, self.held.get(order.nonce)
        if order.nonce in self.spent:
            if held is not None and held.is_prepared and held.was_ready:
                self._say_ready(held, order.limit_s)
            return
        self.spent.add(order.nonce)
        part = SimAttempt(key=order.key, nonce=order.nonce, lineage=order.lineage, spec=order.spec, is_prepared=True)
        self.held[order.nonce] = part
        world.parts.setdefault(str(order.key), {})[part.node] = part
        if world.may_kill(world.faults.unready):
            self._exit(part, ExitRecord(cause=ExitCause.NOT_READY, tail="there is no room"))
            return
        takes_s = SLOW_S if world.may_kill(world.faults.slow) else PREPARES_S

        def ready() -> None:
            if part.exit is None:
                part.was_ready = True
                self._say_ready(part, order.limit_s)

        world.later(takes_s * (0.5 + world.rng.random()), ready)

    def _say_ready(self, part: SimAttempt, limit_s: float) -> None:
        world = self.world
        part.wanted_at = world.now
        world.later(limit_s, lambda: self._not_ordered(part, limit_s))
        port = 0 if part.node else 4000
        world.to_service(lambda: self._prepared(part, port))

    def _prepared(self, part: SimAttempt, port: int) -> c.PartPrepared:
        return c.PartPrepared(
            at=self.world.now,
            agent_id=self.name,
            key=part.key,
            nonce=part.nonce,
            address=self.name,
            host=self.name,
            port=port,
            world_key=f"key of {part.nonce}" if port else "",
        )

    def _not_ordered(self, part: SimAttempt, limit_s: float) -> None:
        if part.is_prepared and self.world.now - part.wanted_at > limit_s - 0.001:
            self._exit(part, ExitRecord(cause=ExitCause.NOT_READY, tail="it was ready, and heard nothing"))

    def _go(self, part: SimAttempt, order: Launch) -> None:
        """All are ready, and the rows say so, or none would have been told to begin."""
        world = self.world
        others = world.parts[str(part.key)].values()
        assert [other.was_ready for other in others] == [True] * order.spec.nodes, "one begins alone"
        told = order.spec.world
        assert told is not None
        first = world.parts[str(part.key)][0]
        assert (told.port, told.key) == (4000, f"key of {first.nonce}"), "nobody knows where the first listens"
        part.is_prepared, part.spec = False, order.spec
        world.launched[f"{part.key}/{part.node}"] = world.launched.get(f"{part.key}/{part.node}", 0) + 1
        if part.node == 0 and world.may_kill(world.faults.port_taken):
            self._exit(part, ExitRecord(cause=ExitCause.NOT_READY, tail="port 4000 is taken"))
            return
        self._begin(part)

    def _run_with_first(self, part: SimAttempt) -> None:
        """Of another node than the first: it computes what that one reports, and ends as that one does."""
        if part.exit is not None or self._is_killed(part):
            return
        first = self.world.parts[str(part.key)][0]
        if first.exit is None or not self._ends_with(part, first):
            self.world.later(LOOKS_S * (0.5 + self.world.rng.random()), lambda: self._run_with_first(part))

    def _others_stay(self, part: SimAttempt) -> bool:
        """Whether the first node's can compute a step: all have begun, and none has ended. Else it waits for them, for
        ever, or its connection breaks and it fails."""
        others = [other for other in self.world.parts[str(part.key)].values() if other is not part]
        gone = next((other for other in others if other.exit is not None), None)
        if gone is not None:
            self._ends_with(part, gone)
        return gone is None and all(not other.is_prepared for other in others)

    def _ends_with(self, part: SimAttempt, other: SimAttempt) -> bool:
        assert other.exit is not None
        if part.node and (other.exit.cause, other.exit.code) == (ExitCause.EXITED, 0):
            self._exit(part, ExitRecord(cause=ExitCause.EXITED, code=0))
        elif self.world.rng.random() < 0.3:  # else it hangs in a call that nobody answers, until it is stopped
            self._exit(part, ExitRecord(cause=ExitCause.EXITED, code=1, tail="connection reset by peer"))
        return part.exit is not None

    def _launch(self, order: Launch) -> None:
        if order.nonce in self.spent:
            held = self.held.get(order.nonce)
            if held is not None and held.is_prepared and held.was_ready and held.exit is None:
                self._go(held, order)
            elif held is not None and not held.is_prepared:
                self._say_started(held)
            return
        assert order.spec.world is None, "told to begin what it never prepared"
        self.spent.add(order.nonce)
        self.world.launched[str(order.key)] = self.world.launched.get(str(order.key), 0) + 1
        attempt = SimAttempt(key=order.key, nonce=order.nonce, lineage=order.lineage, spec=order.spec)
        self.held[order.nonce] = attempt
        self._begin(attempt)

    def _begin(self, attempt: SimAttempt) -> None:
        order = attempt
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
            number, ancestry = self.world.saved[digest]
            attempt.ancestry = ancestry if number == order.key.number else digest
        attempt.answers = dict(enumerate(order.spec.further_parameters, start=1))
        if self._is_phased(attempt):
            # As a checkpoint says; fewer where the tuner had no more.
            attempt.index = min(max(0, first - 1) // PHASE_STEPS, len(attempt.answers))
        self._say_started(attempt)
        run = partial(self._run_with_first, attempt) if attempt.node else partial(self._run, attempt, first)
        self.world.later(self.world.rng.random() * STEP_S, run)

    def _say_started(self, attempt: SimAttempt) -> None:
        process = self._process(attempt)
        self.world.to_service(
            lambda: c.AttemptStarted(
                at=self.world.now, agent_id=self.name, key=attempt.key, nonce=attempt.nonce, process=process
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
        if attempt.is_prepared:
            self._exit(attempt, ExitRecord(cause=ExitCause.STOPPED, stop_reason=order.reason))
            return
        attempt.stopping = True
        reason = order.reason
        self.world.later(
            self.world.rng.random() * 2,
            lambda: self._exit(attempt, ExitRecord(cause=ExitCause.STOPPED, stop_reason=reason)),
        )

    # ── a trial's life: its values depend on its parameters and the step alone ──────────────────
    def _is_killed(self, attempt: SimAttempt) -> bool:
        world = self.world
        if world.may_kill(world.faults.kill_trial):
            self._exit(attempt, ExitRecord(cause=ExitCause.SIGNALED, signal=9))
        elif world.may_kill(world.faults.kill_supervisor):
            self._exit(attempt, ExitRecord(cause=ExitCause.SUPERVISOR_LOST))
        elif world.may_kill(world.faults.reboot):
            self.boots += 1
            for other in list(self.held.values()):
                self._exit(other, ExitRecord(cause=ExitCause.HOST_REBOOTED))
        return attempt.exit is not None

    def _run(self, attempt: SimAttempt, step: int) -> None:
        world = self.world
        if attempt.exit is not None or self._is_killed(attempt):
            return
        if attempt.spec.nodes > 1 and not self._others_stay(attempt):
            world.later(LOOKS_S, lambda: self._run(attempt, step))
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
        self.world.saved[digest] = number, attempt.ancestry
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
            if attempt.spec.nodes > 1 and not attempt.is_prepared:
                self.world.later(ALONE_LIMIT_S, lambda: self._check_none_is_alone(attempt))
            self.send(attempt)

    def _check_none_is_alone(self, ended: SimAttempt) -> None:
        alone = [part.nonce for part in self.world.parts[str(ended.key)].values() if part.exit is None]
        assert not alone, f"{alone} of {ended.key} run on, {ALONE_LIMIT_S:g} s after another part has ended"

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
                    agent_id=self.name,
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
                agent_id=self.name,
                key=attempt.key,
                nonce=attempt.nonce,
                first_sequence=first,
                records=records,
            )
        )

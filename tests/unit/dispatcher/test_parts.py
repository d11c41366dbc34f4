"""Attempts of several nodes: launched in two phases, ended together; nothing of them is ever alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.dispatcher.harness import (
    CRASHED,
    EXITED,
    KILLED,
    STOPPED,
    Harness,
    a_final,
    an_intermediate,
)
from trials.wire.messages import Acknowledge, Busy, Forget, FurtherParameters, Launch, ObservedAttempt, Prepare, Stop
from trials.wire.records import ExitCause, ExitRecord, NoticeRecord
from tuner_service.dispatcher import commands as c
from tuner_service.dispatcher.invariants import violations
from tuner_service.dispatcher.limits import LAUNCH_REPEAT_S, NOT_READY_LIMIT, PREPARE_LIMIT_S
from tuner_service.domain.errors import InputError
from tuner_service.domain.resources import Device
from tuner_service.domain.trial import Attempt, AttemptStatus, PartState

NEAR, FAR = "agent-1", "agent-2"
GRACE_S, LOST_S = 5.0, 60.0
LOST = ExitRecord(cause=ExitCause.SUPERVISOR_LOST)


class Gang(Harness):
    """One trial of two nodes at a time."""

    def begin_on(self, *agents: str, **trial: Any) -> None:
        given = {"nodes": 2, "cpus": 1.0, "stop_grace_s": GRACE_S} | trial
        self.create(trial=given, budget={"trials": 1, "parallel": 1})
        self.ready()
        for agent in agents or (NEAR, FAR):
            self.connect(agent_id=agent)
        self.suggest()

    def part(self, node: int, number: int = 1) -> Attempt:
        """As its agent knows it."""
        part = self.attempt(number).parts[node]
        return replace(self.attempt(number), agent_id=part.agent_id, nonce=part.nonce)

    def prepared(self, node: int, *, port: int = 0, **fields: Any) -> list[Any]:
        part = self.part(node)
        given = {"agent_id": part.agent_id, "nonce": part.nonce, "address": f"10.0.0.{node}", "host": f"h{node}"}
        return self.handle(c.PartPrepared(at=self.at, key=part.key, port=port, **(given | fields)))

    def both_ready(self) -> None:
        self.prepared(1)
        self.prepared(0, port=4000)

    def until_prepared(self) -> None:
        while not self.xs.attempts:
            self.after(10)

    def run_both(self) -> None:
        self.begin_on()
        self.both_ready()
        for node in (0, 1):
            self.started_as(self.part(node))

    def states(self) -> list[str]:
        return [part.state.value for part in self.attempt(1).parts]

    def seen(self, node: int, **fields: Any) -> ObservedAttempt:
        return self.observed(1, nonce=self.part(node).nonce, **fields)


@pytest.fixture
def h() -> Gang:
    return Gang()


# ── the two phases ──────────────────────────────────────────────────────────────────────────────
def test_both_agents_prepare_and_none_is_told_to_begin_before_both_are_ready(h: Gang) -> None:
    h.begin_on()

    first, second = h.orders(Prepare)
    assert [order.spec.world.node for order in (first, second)] == [0, 1]
    assert first.nonce != second.nonce
    assert h.told_to(NEAR, Prepare) + h.told_to(FAR, Prepare) == [first, second]
    assert h.prepared(1) == []
    assert h.attempt(1).is_preparing


def test_the_last_that_is_ready_lets_all_begin_in_one_world(h: Gang) -> None:
    h.begin_on()
    h.both_ready()

    launches = h.orders(Launch)
    assert [(o.spec.world.node, o.spec.world.address, o.spec.world.port) for o in launches] == [
        (0, "10.0.0.0", 4000),
        (1, "10.0.0.0", 4000),
    ]
    assert h.states() == ["ready", "ready"]


@pytest.mark.parametrize(
    ("address", "hosts", "master"),
    [
        ("127.0.0.1", ("h0", "h0"), "127.0.0.1"),
        ("127.0.0.1", ("h0", "h1"), "h0"),
        ("localhost", ("h0", "h1"), "h0"),
        ("node-0.local", ("h0", "h1"), "node-0.local"),
    ],
)
def test_a_loopback_address_is_told_to_nodes_of_its_own_machine_only(
    h: Gang, address: str, hosts: tuple[str, str], master: str
) -> None:
    h.begin_on()
    h.prepared(1, host=hosts[1])
    h.prepared(0, port=4000, address=address, host=hosts[0])

    assert {order.spec.world.address for order in h.orders(Launch)} == {master}


def test_a_service_killed_after_both_are_ready_orders_both_to_begin(h: Gang) -> None:
    h.begin_on()
    h.both_ready()
    h.restart()

    assert [order.spec.world.port for order in _orders_at(h, NEAR, Launch)] == [4000]
    h.started_as(h.part(0))
    assert [order.spec.world.port for order in _orders_at(h, FAR, Launch)] == [4000]


def test_a_service_killed_before_prepares_again(h: Gang) -> None:
    h.begin_on()
    h.prepared(1)
    h.restart()

    assert _orders_at(h, NEAR, Prepare)
    assert _orders_at(h, FAR, Prepare)  # also of the one that was ready: it may have been given back


def _orders_at(h: Gang, agent: str, kind: type[Any]) -> list[Any]:
    h.connect(agent_id=agent)
    return h.told_to(agent, kind)


def test_what_is_said_twice_or_too_late_changes_nothing(h: Gang) -> None:
    h.run_both()
    before = h.attempt(1)

    assert h.prepared(0, port=5000) == []
    h.started_as(h.part(1))
    assert h.attempt(1).parts == before.parts


def test_a_part_of_an_old_attempt_that_says_it_is_ready_is_told_to_let_go(h: Gang) -> None:
    h.begin_on()
    old = h.part(1)
    h.prepared(1, nonce="unknown")
    assert [order.nonce for order in h.orders(Stop)] == ["unknown"]
    h.prepared(1, agent_id=NEAR)  # the nonce of another agent
    assert [order.nonce for order in h.told_to(NEAR, Stop)] == [old.nonce]
    assert h.attempt(1).is_preparing


# ── what is not ready ───────────────────────────────────────────────────────────────────────────
def test_a_node_that_prepares_too_slowly_gives_all_back_uncharged(h: Gang) -> None:
    h.begin_on()
    h.prepared(0, port=4000)
    h.after(PREPARE_LIMIT_S + 1)

    trial = h.trial(1)
    assert (trial.charged, trial.reason) == (0, "launched")  # a new attempt is prepared at once
    assert trial.attempts == 2
    first = h.store.queries.attempts(h.experiment.id, 1)[0]
    assert first.exit is not None
    assert first.exit.tail == f"node 1 ({FAR}) was not ready in 60 s"
    assert first.exit.cause is ExitCause.NOT_READY
    assert {part.state for part in first.parts} == {PartState.ENDED}


def test_what_was_not_answered_is_ordered_again_and_the_ready_one_hears_that_it_is_wanted(h: Gang) -> None:
    h.begin_on()
    h.prepared(0, port=4000)
    h.after(LAUNCH_REPEAT_S + 1)

    assert [order.spec.world.node for order in h.orders(Prepare)] == [0, 1]


@pytest.mark.parametrize("cause", [ExitCause.DEVICE_UNAVAILABLE, ExitCause.LAUNCH_FAILED, ExitCause.HOST_REBOOTED])
def test_one_that_cannot_be_prepared_gives_the_other_back_and_pauses_longer_each_time(
    h: Gang, cause: ExitCause
) -> None:
    h.begin_on()
    ready = h.part(0)
    h.prepared(0, port=4000)
    h.exit_as(h.part(1), ExitRecord(cause=cause, tail="device g7 is not there"))

    assert ready.nonce in {order.nonce for order in h.told_to(NEAR, Stop)}
    assert h.trial(1).attempts == 2
    h.exit_as(h.part(1), ExitRecord(cause=cause))
    what = cause.value.replace("_", " ")
    assert h.trial(1).message.startswith(f"node 1 ({FAR}) could not be made ready: {what}; waits 1 s")


def test_nodes_that_are_never_ready_pause_the_experiment_with_the_reason(h: Gang) -> None:
    h.begin_on()
    for _ in range(NOT_READY_LIMIT):
        h.until_prepared()
        h.exit_as(h.part(0), ExitRecord(cause=ExitCause.NOT_READY, tail="port 4000 is taken"))

    assert (h.experiment.status.value, h.experiment.reason.value) == ("paused", "nodes_not_ready")
    assert "could not begin on its nodes, 10 times in a row: port 4000 is taken" in h.experiment.message
    assert h.trial(1).charged == 0
    h.resume()
    assert h.attempt(1).is_preparing


def test_a_pause_by_a_person_stays_that(h: Gang) -> None:
    h.begin_on()
    for _ in range(NOT_READY_LIMIT - 1):
        h.exit_as(h.part(0), ExitRecord(cause=ExitCause.NOT_READY, tail="taken"))
        h.until_prepared()
    h.pause()
    h.exit_as(h.part(0), ExitRecord(cause=ExitCause.NOT_READY, tail="taken"))

    assert h.experiment.reason.value == "requested"
    assert h.statuses() == {1: "waiting"}


def test_one_that_begins_before_it_is_told_is_given_back(h: Gang) -> None:
    h.begin_on()
    early = h.part(1)
    h.started_as(early)

    assert early.nonce in {order.nonce for order in h.told_to(FAR, Stop)}
    assert h.store.queries.attempts(h.experiment.id, 1)[0].exit.tail.endswith("began before it was told to")


def test_one_that_is_seen_to_run_before_it_was_told_is_given_back(h: Gang) -> None:
    h.begin_on()
    h.connect(h.seen(1), agent_id=FAR)

    assert h.trial(1).attempts == 2


def test_a_stop_while_nodes_prepare_is_no_failure_to_begin(h: Gang) -> None:
    h.begin_on()
    h.stop_trial(1)
    assert len(h.orders(Stop)) == 2
    h.prepared(1)
    assert h.attempt(1).is_preparing
    h.exit_as(h.part(1), STOPPED)

    assert h.statuses() == {1: "canceled"}


def test_a_stop_of_nodes_that_are_away_waits_for_the_limit_alone(h: Gang) -> None:
    h.begin_on()
    h.disconnect(FAR)
    h.stop_trial(1)
    h.after(PREPARE_LIMIT_S + 1)

    assert h.statuses() == {1: "canceled"}


def test_missing_assets_pause_the_experiment_as_ever(h: Gang) -> None:
    h.begin_on()
    h.exit_as(h.part(1), ExitRecord(cause=ExitCause.ASSETS_MISSING, tail="no such asset"))

    assert h.experiment.reason.value == "assets_missing"


# ── ends ────────────────────────────────────────────────────────────────────────────────────────
def test_the_attempt_ends_when_all_parts_have(h: Gang) -> None:
    h.run_both()
    h.report(1, an_intermediate(0, 0.5), a_final(0.4))
    h.exit_as(h.part(0), EXITED, last_sequence=2)
    assert h.orders(Forget)
    assert h.statuses() == {1: "running"}
    h.exit_as(h.part(1), EXITED)

    assert h.statuses()[1] == "succeeded"


@pytest.mark.parametrize("first", [0, 1])
def test_the_first_that_fails_ends_the_other_and_is_the_reason(h: Gang, first: int) -> None:
    h.run_both()
    h.exit_as(h.part(first), CRASHED)

    (stop,) = h.orders(Stop)
    assert (stop.nonce, stop.reason, stop.grace_s) == (h.part(1 - first).nonce, "part_failed", 5.0)
    assert h.statuses() == {1: "running"}
    h.exit_as(h.part(1 - first), STOPPED)
    trial = h.trial(1)
    assert (trial.status, trial.reason, trial.charged) == ("failed", "exit_code", 1)


def test_a_part_killed_from_outside_is_the_reason_whoever_is_told_first(h: Gang) -> None:
    h.run_both()
    h.exit_as(h.part(1), CRASHED)  # as the other was gone
    h.after(1.0)
    h.exit_as(h.part(0), KILLED)

    trial = h.trial(1)
    assert (trial.charged, trial.attempts, trial.status) == (0, 2, "running")


@pytest.mark.parametrize("second", [CRASHED, STOPPED])
def test_nodes_that_were_cut_off_from_one_another_are_one_failure(h: Gang, second: ExitRecord) -> None:
    """As a task group over them raises the same on both: either program ends by that, or is stopped before it can."""
    h.begin_on(max_attempts=2)
    h.both_ready()
    for node in (0, 1):
        h.started_as(h.part(node))
    h.exit_as(h.part(1), CRASHED)
    h.after(0.1)
    h.exit_as(h.part(0), second)

    trial = h.trial(1)
    assert (trial.charged, trial.attempts, trial.status) == (1, 2, "running")


def test_a_program_that_fails_because_its_other_node_is_gone_is_no_failure(h: Gang) -> None:
    h.dispatcher.state.service_lost_s = LOST_S
    h.begin_on(max_attempts=1)
    h.both_ready()
    for node in (0, 1):
        h.started_as(h.part(node))
    h.disconnect(FAR)
    h.after(1.0)
    h.exit_as(h.part(0), CRASHED)
    assert h.trial(1).status == "running"  # nobody knows yet what became of the other
    h.after(LOST_S + GRACE_S)

    trial = h.trial(1)
    assert (trial.charged, trial.reason, trial.attempts) == (0, "attempt_lost", 1)
    assert trial.status == "waiting"


def test_a_part_stopped_on_its_machine_ends_the_other_uncharged(h: Gang) -> None:
    h.run_both()
    h.exit_as(h.part(1), STOPPED)
    h.exit_as(h.part(0), STOPPED)

    assert (h.trial(1).charged, h.trial(1).attempts) == (0, 2)


def test_a_part_that_nobody_holds_ends_the_other(h: Gang) -> None:
    h.run_both()
    h.connect(agent_id=FAR)

    assert h.told_to(NEAR, Stop)
    h.exit_as(h.part(0), STOPPED)
    assert h.trial(1).attempts == 2


def test_a_trial_of_which_all_parts_are_lost_is_lost(h: Gang) -> None:
    h.run_both()
    h.connect(agent_id=FAR)
    h.connect(agent_id=NEAR)

    assert h.store.queries.attempts(h.experiment.id, 1)[0].status is AttemptStatus.LOST
    assert h.trial(1).attempts == 2


def test_the_attempt_waits_for_a_part_that_nobody_hears_of(h: Gang) -> None:
    h.run_both()
    h.disconnect(FAR)
    h.exit_as(h.part(0), CRASHED)
    h.after(1000)
    assert h.statuses() == {1: "running"}
    assert h.told_to(FAR, Stop)  # said again until it is heard
    h.connect(h.seen(1), agent_id=FAR)

    assert h.told_to(FAR, Stop)


def test_a_part_that_never_began_when_the_other_failed_is_over_when_its_agent_comes(h: Gang) -> None:
    h.begin_on()
    h.both_ready()
    h.started_as(h.part(0))
    h.disconnect(FAR)
    h.exit_as(h.part(0), CRASHED)
    h.connect(agent_id=FAR)

    assert h.statuses() == {1: "failed"}


def test_both_are_adopted_and_their_ends_awaited(h: Gang) -> None:
    h.run_both()
    h.restart()
    h.connect(h.seen(0), agent_id=NEAR)
    h.connect(h.seen(1, exit=EXITED), agent_id=FAR)

    assert h.orders(Stop) + h.orders(Launch) == []
    assert h.states() == ["running", "running"]


def test_an_order_to_stop_reaches_what_is_adopted(h: Gang) -> None:
    h.run_both()
    h.pause()
    h.stop()
    h.connect(h.seen(1), agent_id=FAR)

    assert h.told_to(FAR, Stop)


def test_a_stop_is_told_to_all_that_have_not_ended(h: Gang) -> None:
    h.run_both()
    h.exit_as(h.part(1), EXITED)
    h.stop_trial(1)

    assert [order.nonce for order in h.orders(Stop)] == [h.part(0).nonce]
    h.exit_as(h.part(0), STOPPED)
    assert h.statuses() == {1: "canceled"}


def test_silence_of_the_first_part_is_the_trials(h: Gang) -> None:
    h.begin_on(heartbeat_s=30.0)
    h.both_ready()
    for node in (0, 1):
        h.started_as(h.part(node))
    h.after(31)

    assert len(h.orders(Stop)) == 2
    h.after(100)
    assert len(h.orders(Stop)) == 2  # and again


def test_a_lost_device_of_any_node_stops_the_trial(h: Gang) -> None:
    h.create(trial={"nodes": 2, "gpus": 1.0})
    h.ready()
    device = Device(uuid="g0", memory_bytes=1)
    for agent in (NEAR, FAR):
        h.connect(agent_id=agent, devices=(device,))
    h.suggest()
    h.both_ready()
    peaks = {h.part(1).nonce: 7}
    h.handle(c.DevicesChanged(at=h.at, agent_id=FAR, devices=(replace(device, lost="fell off the bus"),), peaks=peaks))

    assert h.trial(1).reason == "device_lost"
    assert h.attempt(1).peak_gpu_bytes == 7
    assert len(h.orders(Stop)) == 2


# ── what parts report ───────────────────────────────────────────────────────────────────────────
def test_reports_of_another_node_are_taken_and_dropped_but_for_notices(h: Gang) -> None:
    h.run_both()
    part, notice = h.part(1), NoticeRecord(code="parent_stopped", message="it was continued", at=h.at)
    h.report_as(part, an_intermediate(0, 0.1), notice)
    assert h.orders(Acknowledge) == [Acknowledge(nonce=part.nonce, sequence=2)]
    h.report_as(part, an_intermediate(0, 0.1), notice, first=1)

    assert h.attempt(1).message == "parent_stopped: it was continued"
    assert h.store.queries.metrics(h.experiment.id, 1) == []
    assert h.orders(Busy) == []
    h.exit_as(part, EXITED, last_sequence=3)
    assert h.orders(Acknowledge) == [Acknowledge(nonce=part.nonce, sequence=2)]


def test_further_parameters_are_told_to_every_node(h: Gang) -> None:
    h.run_both()
    h.want(1, 1)
    h.suggest(lr=0.3)

    assert [order.nonce for order in h.orders(FurtherParameters)] == [h.part(0).nonce, h.part(1).nonce]


def test_a_welcome_says_how_far_the_spool_of_each_part_was_taken(h: Gang) -> None:
    h.run_both()
    h.report(1, an_intermediate(0, 0.5))
    h.report_as(h.part(1), an_intermediate(0, 0.5), an_intermediate(1, 0.5))

    (welcome,) = [effect for effect in h.connect(h.seen(1), agent_id=FAR) if hasattr(effect, "acknowledged")]
    assert welcome.acknowledged == {h.part(1).nonce: 2}


def test_what_another_node_leaves_is_not_the_trials_output(h: Gang) -> None:
    from tuner_service.domain.trial import TrialOutput

    h.run_both()
    for node, asset in ((1, "b" * 64), (0, "a" * 64)):
        part = h.part(node)
        output = TrialOutput(attempt=1, asset=asset)
        h.handle(c.OutputCollected(at=h.at, agent_id=part.agent_id, key=part.key, nonce=part.nonce, output=output))

    assert h.trial(1).output == TrialOutput(attempt=1, asset="a" * 64)


# ── what is asked for ───────────────────────────────────────────────────────────────────────────
def test_more_nodes_than_there_are_is_refused_by_the_number(h: Gang) -> None:
    h.connect(agent_id=NEAR)
    with pytest.raises(InputError) as raised:
        h.create(trial={"nodes": 2})

    (fault,) = raised.value.faults
    assert fault.pointer == "/trial/nodes"
    assert "on each of 2 nodes; there are not that many" in fault.message


def test_a_trial_that_asks_for_nothing_waits_for_its_second_node(h: Gang) -> None:
    h.begin_on(NEAR, cpus=0.0)
    assert h.orders(Prepare) == []
    h.connect(agent_id=FAR)

    assert len(h.orders(Prepare)) == 2


# ── what must be true ───────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda parts: parts[::-1], "is not that of its first part"),
        (lambda parts: (parts[0], replace(parts[1], agent_id=NEAR)), "two parts on one node"),
        (lambda parts: (parts[0], replace(parts[1], state=PartState.RUNNING)), "a part of it is still prepared"),
        (
            lambda parts: tuple(replace(part, state=PartState.ENDED, exit=EXITED) for part in parts),
            "every part of attempt 8f3k2/1/1 has ended",
        ),
        (lambda parts: (parts[0], replace(parts[1], exit=EXITED)), "has ended without an exit, or has one and lives"),
        (lambda parts: (parts[0], replace(parts[1], nonce=parts[0].nonce)), "names 8f3k2/1/1 and 8f3k2/1/1"),
    ],
)
def test_the_invariants_see_parts_that_cannot_be(h: Gang, spoil: Any, sentence: str) -> None:
    h.begin_on()
    h.xs.attempts[1] = replace(h.attempt(1), parts=spoil(h.attempt(1).parts))

    assert any(sentence in found for found in violations(h.dispatcher.state))

"""What becomes of a trial of several nodes reaches all of them: stop, pause, preemption, drain, promotion, fork."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.dispatcher.advised import ADVISOR, Advised
from tests.unit.dispatcher.harness import EXITED, STOPPED, a_checkpoint_record, an_intermediate
from tests.unit.dispatcher.test_parts import FAR, NEAR, Gang
from tests.unit.dispatcher.test_quota_groups import begin_other, other
from trials.wire.messages import Launch, Prepare, Stop
from tuner_service.dispatcher import commands as c
from tuner_service.dispatcher.limits import PREEMPTED_AFTER_S
from tuner_service.domain.resources import Device
from tuner_service.domain.trial import DecisionKind


class Life(Advised, Gang):
    """Trials of two nodes, with an advisor where a test wants one."""

    def begin_two(self, *, advised: bool = False, **changed: Any) -> None:
        given: dict[str, Any] = {"advisor": ADVISOR} if advised else {}
        trial = {"nodes": 2, "cpus": 1.0, "stop_grace_s": 5.0} | changed.pop("trial", {})
        self.create(trial=trial, budget={"trials": 3, "parallel": 1}, **(given | changed))
        self.ready()
        for agent in (NEAR, FAR):
            self.connect(agent_id=agent, devices=(Device(uuid=f"gpu of {agent}", memory_bytes=1),))

    def go(self, number: int = 1) -> list[Launch]:
        """From prepare to running, on both nodes; what they were told to begin with."""
        for node in (1, 0):
            part = self.part(node, number)
            told = c.PartPrepared(
                at=self.at, agent_id=part.agent_id, key=part.key, nonce=part.nonce, address="10.0.0.1", host=f"h{node}",
                port=0 if node else 4000, world_key="" if node else "secret",
            )  # fmt: skip
            self.handle(told)
        launches = self.orders(Launch)
        for node in (0, 1):
            self.started_as(self.part(node, number))
        return launches

    def end_both(self, record: Any, number: int = 1, *, last_sequence: int = 0) -> None:
        self.exit_as(self.part(1, number), record)
        self.exit_as(self.part(0, number), record, last_sequence=last_sequence)

    def stops(self) -> list[tuple[str, str]]:
        return [(order.nonce, order.reason) for order in self.orders(Stop)]

    def to_both(self, reason: str, number: int = 1) -> list[tuple[str, str]]:
        return [(self.part(node, number).nonce, reason) for node in (0, 1)]


@pytest.fixture
def h() -> Life:
    return Life()


def test_all_nodes_are_told_where_the_first_listens_and_the_secret_it_made_up(h: Life) -> None:
    h.begin_two()
    h.suggest()
    launches = h.go()

    worlds = [launch.spec.world for launch in launches]
    assert [(w.node, w.address, w.port, w.key) for w in worlds if w] == [
        (n, "10.0.0.1", 4000, "secret") for n in (0, 1)
    ]


def test_a_stop_of_the_experiment_reaches_both_and_the_trial_is_over_when_both_are(h: Life) -> None:
    h.begin_two()
    h.suggest()
    h.go()
    h.stop()

    assert [nonce for nonce, _ in h.stops()] == [h.part(0).nonce, h.part(1).nonce]
    h.exit_as(h.part(0), STOPPED)
    assert h.statuses() == {1: "stopping"}
    h.exit_as(h.part(1), STOPPED)
    assert h.statuses() == {1: "paused"}


def test_a_pause_lets_both_run_to_their_end(h: Life) -> None:
    h.begin_two()
    h.suggest()
    h.go()
    h.pause()

    assert h.stops() == []
    h.end_both(EXITED)
    assert not h.xs.attempts
    assert h.orders(Prepare) == []  # nothing new begins


def test_a_trial_of_two_nodes_makes_room_on_both_and_goes_on_from_its_checkpoint_on_both(h: Life) -> None:
    h.begin_two(preemptible=True, trial={"gpus": 1.0})
    h.suggest()
    h.go()
    h.report(1, an_intermediate(1, 0.5), a_checkpoint_record(1))
    h.after(PREEMPTED_AFTER_S)
    begin_other(h, "default", trials=1)
    h.handle(c.ExperimentChanged(at=h.at, experiment_id="other", priority=5))

    assert h.stops() == h.to_both("preempted")
    h.exit_as(h.part(1), STOPPED)
    assert not other(h).attempts  # the other half is held still
    h.exit_as(h.part(0), STOPPED, last_sequence=2)
    assert (h.trial(1).status.value, h.trial(1).charged) == ("waiting", 0)
    urgent = other(h).attempts[1]
    h.exit_as(urgent, EXITED)
    h.handle(c.ExperimentStopped(at=h.at, experiment_id="other"))

    assert {order.key.attempt for order in h.orders(Prepare)} <= {2}
    assert h.attempt(1).restored_step == 1
    assert [launch.spec.checkpoints[0].step for launch in h.go()] == [1, 1]


def test_a_trial_of_two_nodes_makes_no_room_while_one_of_them_is_away(h: Life) -> None:
    h.begin_two(preemptible=True, trial={"gpus": 1.0})
    h.suggest()
    h.go()
    h.report(1, an_intermediate(1, 0.5), a_checkpoint_record(1))
    h.after(PREEMPTED_AFTER_S)
    h.disconnect(FAR)
    begin_other(h, "default", trials=1)
    h.handle(c.ExperimentChanged(at=h.at, experiment_id="other", priority=5))

    assert h.stops() == []


def test_a_drained_node_moves_the_trial_from_both(h: Life) -> None:
    h.begin_two()
    h.suggest()
    h.go()
    h.handle(c.NodeChanged(at=h.at, agent_id=FAR, trouble="", drained=True))

    assert h.stops() == h.to_both("preempted")
    h.end_both(STOPPED)
    assert h.statuses() == {1: "waiting"}  # until there are two nodes again
    assert h.trial(1).charged == 0


def test_a_promoted_trial_goes_on_on_both_nodes_to_the_next_rung(h: Life) -> None:
    h.begin_two(advised=True)
    h.decide(until_step=1)
    assert [launch.spec.until_step for launch in h.go()] == [1, 1]
    h.report(1, an_intermediate(1, 0.5), a_checkpoint_record(1))
    assert h.stops() == h.to_both("rung_reached")
    h.end_both(STOPPED, last_sequence=2)
    assert h.statuses() == {1: "paused"}
    h.promote(1, until_step=3)

    launches = h.go()
    assert [(launch.key.attempt, launch.spec.until_step) for launch in launches] == [(2, 3)] * 2
    assert [launch.spec.checkpoints[0].step for launch in launches] == [1, 1]


def test_a_fork_begins_with_the_checkpoint_of_its_source_on_both_nodes(h: Life) -> None:
    h.begin_two(advised=True)
    h.decide(until_step=1)
    h.go()
    h.report(1, an_intermediate(1, 0.5), a_checkpoint_record(1))
    h.end_both(STOPPED, last_sequence=2)
    h.decide(DecisionKind.FORK, forked_from=1, parameters={"lr": 0.3}, until_step=2, dropped=(1,))

    launches = h.go(2)
    assert [(launch.key.number, launch.spec.parameters) for launch in launches] == [(2, {"lr": 0.3})] * 2
    assert len({launch.spec.checkpoints[0].digest for launch in launches}) == 1
    assert [len(launch.spec.checkpoints) for launch in launches] == [1, 1]

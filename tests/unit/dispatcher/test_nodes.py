"""Nodes in trouble, drained and given up: nothing is started there, and what runs goes on elsewhere, uncharged."""

from __future__ import annotations

import pytest

from tests.unit.dispatcher.harness import AGENT, KILLED, Harness
from trials.wire.messages import Stop
from tuner_service.dispatcher import commands as c
from tuner_service.domain.errors import ConflictError
from tuner_service.domain.trial import TrialReason, TrialStatus

OTHER = "agent-2"


def change(h: Harness, *, agent_id: str = AGENT, trouble: str = "", drained: bool = False) -> None:
    h.handle(c.NodeChanged(at=h.at, agent_id=agent_id, trouble=trouble, drained=drained))


def remove(h: Harness, *, force: bool = False) -> None:
    h.handle(c.NodeRemoved(at=h.at, agent_id=AGENT, force=force))


def begin(h: Harness) -> None:
    h.connect()
    h.create()
    h.ready()


def test_nothing_is_started_on_a_node_in_trouble_until_it_has_passed(h: Harness) -> None:
    begin(h)
    change(h, trouble="the disk is full")
    h.suggest()
    assert h.trial(1).status is TrialStatus.WAITING

    change(h)

    assert h.trial(1).status is TrialStatus.RUNNING


def test_what_runs_on_a_node_in_trouble_runs_on(h: Harness) -> None:
    begin(h)
    h.suggest()
    h.started(1)

    change(h, trouble="the disk is full")

    assert h.trial(1).status is TrialStatus.RUNNING


def test_a_drained_nodes_trials_are_told_to_leave_and_go_on_elsewhere_uncharged(h: Harness) -> None:
    begin(h)
    h.suggest()
    h.started(1)
    h.connect(agent_id=OTHER)

    change(h, drained=True)
    assert [order.reason for order in h.orders(Stop)] == [TrialReason.PREEMPTED.value]
    change(h, drained=True)  # said again: it was told already
    h.exit(1, KILLED)

    assert (h.attempt(1).agent_id, h.trial(1).charged) == (OTHER, 0)


def test_a_node_that_comes_back_drained_gives_its_trials_up(h: Harness) -> None:
    begin(h)
    h.suggest()
    h.started(1)
    observed = h.observed(1)
    h.disconnect()

    h.handle(c.AgentConnected(at=h.at, agent_id=AGENT, cpus=8, memory_bytes=2**33, attempts=(observed,), drained=True))

    assert h.trial(1).status is TrialStatus.STOPPING


def test_a_node_with_trials_is_given_up_by_force_alone(h: Harness) -> None:
    begin(h)
    h.suggest()
    h.started(1)
    h.connect(agent_id=OTHER)

    with pytest.raises(ConflictError, match="1 trial runs on agent"):
        remove(h)
    remove(h, force=True)

    assert (h.attempt(1).agent_id, h.trial(1).charged) == (OTHER, 0)


def test_what_a_node_says_that_is_not_connected_changes_nothing(h: Harness) -> None:
    begin(h)

    change(h, agent_id="nobody", drained=True)

    assert h.xs.attempts == {}


def test_a_trial_with_labels_waits_for_a_node_that_has_them(h: Harness) -> None:
    h.create(trial={"labels": {"zone": "b"}})
    h.connect()
    h.ready()
    h.suggest()
    assert h.trial(1).status is TrialStatus.WAITING

    h.handle(
        c.AgentConnected(at=h.at, agent_id=OTHER, cpus=1, memory_bytes=1, attempts=(), labels={"zone": "b", "x": "y"})
    )

    assert h.attempt(1).agent_id == OTHER


def test_what_asks_for_nothing_waits_where_every_node_is_in_trouble(h: Harness) -> None:
    h.create()
    h.handle(c.AgentConnected(at=h.at, agent_id=AGENT, cpus=8, memory_bytes=2**33, attempts=(), trouble="full"))
    h.ready()
    h.suggest()

    assert h.trial(1).status is TrialStatus.WAITING


def test_of_nodes_that_have_gone_nothing_is_remembered(h: Harness) -> None:
    """Those of a cluster have a new name each."""
    h.begin(trial={"cpus": 1.0})
    h.connect(agent_id=OTHER)
    h.suggest()
    known = h.dispatcher.state.ledger._left
    assert OTHER in known

    h.disconnect(OTHER)

    assert OTHER not in known

"""Nodes that an executor brings: how many would be of use, when one is given back, and when one is gone."""

from __future__ import annotations

import pytest

from tests.unit.dispatcher.harness import AGENT, Harness
from trials.wire.messages import Launch, Stop
from tuner_service.dispatcher import commands as c
from tuner_service.dispatcher.limits import CLAIMS_FOR_NODES, RETIRED_LIMIT
from tuner_service.dispatcher.room import Room
from tuner_service.domain.errors import ConflictError, InputError
from tuner_service.domain.node_kinds import ExecutorRequest, NodeKind, NodeShape
from tuner_service.domain.resources import QuotaGroup
from tuner_service.domain.trial import TrialReason, TrialStatus

SHAPE = NodeShape(cpus=2, memory_bytes=1 << 33)
GPU_SHAPE = NodeShape(cpus=8, gpus=1, memory_bytes=1 << 33)
ONE = NodeKind(shape=SHAPE)


def begin(
    h: Harness, *, waiting: int, parallel: int = 9, trials: int | None = 20, shape: NodeShape = SHAPE, **asks: object
) -> None:
    """So many trials were suggested, and no node is there that could run them."""
    h.dispatcher.state.promised = shape
    h.create(budget={"trials": trials, "parallel": parallel}, trial=asks or {"cpus": 1.0})
    h.ready()
    for _ in range(waiting):
        h.suggest()


def room(h: Harness, *, coming: int = 0, most: int = 10, kind: NodeKind = ONE) -> Room:
    found = h.dispatcher.room(coming={kind: coming}, most=most)
    assert found is not None
    return found


def lacking(h: Harness, *, coming: int = 0, most: int = 10) -> int:
    """Single nodes."""
    return room(h, coming=coming, most=most).lacking.get(ONE, 0)


# ── how many would be of use ────────────────────────────────────────────────────────────────────
def test_nothing_is_said_where_no_node_can_be_had(h: Harness) -> None:
    h.create()

    assert h.dispatcher.room(coming={}, most=10) is None


def test_as_many_nodes_are_lacking_as_the_parallel_trials_of_the_budget_fill(h: Harness) -> None:
    begin(h, waiting=1, parallel=5)

    assert room(h) == Room(lacking={ONE: 3}, waits=True, busy=frozenset(), connected=frozenset())


def test_no_more_nodes_are_lacking_than_may_be_asked_for(h: Harness) -> None:
    begin(h, waiting=1, parallel=9)

    assert lacking(h, most=2) == 2


def test_nodes_on_their_way_are_not_asked_for_again(h: Harness) -> None:
    begin(h, waiting=1, parallel=5)

    assert lacking(h, coming=2) == 1
    assert lacking(h, coming=3) == 0


def test_what_connected_nodes_have_free_is_used_first(h: Harness) -> None:
    begin(h, waiting=3, parallel=5)
    h.connect(cpus=2)

    found = room(h)
    assert found.lacking == {ONE: 2}
    assert (found.busy, found.connected) == ({AGENT}, {AGENT})


def test_the_rest_of_the_budget_bounds_what_is_lacking(h: Harness) -> None:
    begin(h, waiting=1, parallel=9, trials=3)

    assert lacking(h) == 2


def test_a_budget_without_a_number_of_trials_is_bounded_by_its_parallelism(h: Harness) -> None:
    h.dispatcher.state.promised = SHAPE
    h.create(budget={"trials": None, "duration_s": 60.0, "parallel": 4}, trial={"cpus": 1.0})
    h.ready()
    h.suggest()

    assert lacking(h) == 2


def test_trials_that_ask_for_nothing_need_one_node_and_no_more(h: Harness) -> None:
    begin(h, waiting=1, cpus=0.0)
    assert lacking(h) == 1

    h.connect()
    h.suggest()
    assert lacking(h) == 0


def test_an_experiment_whose_trials_do_not_wait_needs_no_node(h: Harness) -> None:
    begin(h, waiting=0)
    assert room(h) == Room(lacking={}, waits=False, busy=frozenset(), connected=frozenset())

    h.suggest()
    h.pause()
    assert not room(h).waits


def test_a_demand_that_no_such_node_can_meet_brings_none(h: Harness) -> None:
    begin(h, waiting=1, shape=GPU_SHAPE, gpus=1.0)
    h.dispatcher.state.promised = SHAPE

    assert lacking(h) == 0


def test_a_device_is_counted_once_for_each_trial_that_holds_it(h: Harness) -> None:
    begin(h, waiting=1, parallel=3, shape=GPU_SHAPE, gpus=1.0)
    assert lacking(h) == 3

    assert lacking(h, most=1) == 1


def test_a_group_without_quota_left_brings_no_node(h: Harness) -> None:
    begin(h, waiting=1, parallel=3, shape=GPU_SHAPE, gpus=1.0)
    h.dispatcher.state.groups["default"] = QuotaGroup(name="default", gpus=2, borrows=False)
    assert lacking(h) == 2

    h.dispatcher.state.groups["default"] = QuotaGroup(name="default", gpus=2, borrows=True)
    assert lacking(h) == 3
    assert CLAIMS_FOR_NODES > 3


def test_an_experiment_may_ask_for_what_only_a_promised_node_has(h: Harness) -> None:
    h.connect(cpus=1)
    with pytest.raises(InputError):
        h.create(trial={"cpus": 2.0})

    h.dispatcher.state.promised = SHAPE
    h.create(trial={"cpus": 2.0})


# ── several at once, and of kinds of their own ──────────────────────────────────────────────────
def test_a_trial_of_several_nodes_wants_as_many_that_come_together(h: Harness) -> None:
    begin(h, waiting=1, parallel=2, cpus=1.0, nodes=2)
    two = NodeKind(size=2, shape=SHAPE)

    assert room(h).lacking == {two: 1}  # two such trials fit onto two nodes of two cores
    assert room(h, kind=two, coming=1).lacking == {}
    assert room(h, coming=2).lacking == {two: 1}  # perhaps both of them come to one machine
    assert room(h, most=1).lacking == {}


def test_the_parts_of_a_trial_are_on_different_machines(h: Harness) -> None:
    begin(h, waiting=1, parallel=1, cpus=1.0, nodes=2)
    h.connect(agent_id="ray-1", cpus=2, labels={"machine": "a"})
    h.connect(agent_id="ray-2", cpus=2, labels={"machine": "a"})
    assert not h.xs.attempts

    h.connect(agent_id="ray-3", cpus=2, labels={"machine": "b"})
    assert "ray-3" in {part.agent_id for part in h.attempt(1).parts}
    assert room(h).busy == {part.agent_id for part in h.attempt(1).parts}


def test_an_experiment_that_describes_its_nodes_has_some_of_its_own(h: Harness) -> None:
    own = ExecutorRequest(names=("ray",), agents=NodeShape(cpus=4), runtime_env={"pip": ["a"]})
    h.dispatcher.state.promised = SHAPE
    h.create(budget={"trials": 20, "parallel": 8}, trial={"cpus": 1.0}, executor=own)
    h.ready()
    h.suggest()

    (found,) = room(h).lacking.items()
    assert (found[0].pool, found[0].runtime_env, found[1]) == (own.pool, {"pip": ["a"]}, 2)
    h.connect(agent_id="ray-1", cpus=4)
    assert not h.xs.attempts
    h.connect(agent_id="ray-2", cpus=4, labels={"ray-pool": own.pool})
    assert h.attempt(1).agent_id == "ray-2"


def test_trials_run_on_nodes_of_the_executors_that_their_experiment_names(h: Harness) -> None:
    h.dispatcher.state.promised = SHAPE
    h.create(budget={"trials": 20, "parallel": 8}, executor=ExecutorRequest(names=("local", "joined")))
    h.ready()
    h.suggest()
    h.connect(agent_id="ray-1")
    assert not h.xs.attempts
    assert not room(h).waits

    h.connect(agent_id="by-hand")
    assert h.attempt(1).agent_id == "by-hand"


def test_an_experiment_that_wants_nodes_of_ray_is_refused_where_there_are_none(h: Harness) -> None:
    with pytest.raises(InputError, match="no nodes of Ray"):
        h.create(executor=ExecutorRequest(names=("ray",)))


def test_a_trial_of_more_nodes_than_may_be_asked_for_is_refused(h: Harness) -> None:
    h.dispatcher.state.promised, h.dispatcher.state.promised_most = SHAPE, 2
    with pytest.raises(InputError, match="there are not that many"):
        h.create(trial={"cpus": 1.0, "nodes": 3})

    h.create(trial={"cpus": 1.0, "nodes": 2})


def test_nodes_are_the_same_for_experiments_that_say_the_same() -> None:
    one, same = (ExecutorRequest(names=("ray",), runtime_env={"pip": ["a"], "env_vars": {"B": "c"}}) for _ in "ab")

    assert one.pool == same.pool != ExecutorRequest(names=("ray",), agents=NodeShape()).pool
    assert ExecutorRequest(names=("ray",)).pool == ""


# ── giving one back ─────────────────────────────────────────────────────────────────────────────
def retire(h: Harness, *, only_idle: bool = False, agent_id: str = AGENT) -> None:
    h.handle(c.AgentRetired(at=h.at, agent_id=agent_id, only_idle=only_idle))


def test_nothing_is_started_on_a_node_that_is_given_back_even_if_it_connects_again(h: Harness) -> None:
    begin(h, waiting=0)
    h.connect()
    retire(h, only_idle=True)
    h.suggest()
    h.disconnect()
    h.connect()

    assert h.orders(Launch) == []
    assert h.trial(1).status is TrialStatus.WAITING


def test_an_idle_node_is_not_given_back_while_trials_run_there(h: Harness) -> None:
    begin(h, waiting=1)
    h.connect()

    with pytest.raises(ConflictError, match=r"trials? runs? on agent"):
        retire(h, only_idle=True)
    h.suggest()
    assert {attempt.agent_id for attempt in h.xs.attempts.values()} == {AGENT}
    assert len(h.xs.attempts) == 2


def test_trials_of_a_drained_node_are_believed_to_their_end(h: Harness) -> None:
    begin(h, waiting=1)
    h.connect()
    h.started(1)
    retire(h)
    h.succeed(1)

    assert h.trial(1).status is TrialStatus.SUCCEEDED


def test_only_so_many_retired_nodes_are_remembered(h: Harness) -> None:
    for number in range(RETIRED_LIMIT + 1):
        retire(h, agent_id=f"ray-{number}")

    assert len(h.dispatcher.state.retired) == RETIRED_LIMIT
    assert "ray-0" not in h.dispatcher.state.retired


# ── one that is gone ────────────────────────────────────────────────────────────────────────────
def lose(h: Harness) -> None:
    h.handle(c.AgentLost(at=h.at, agent_id=AGENT))


def test_trials_of_a_lost_node_go_on_elsewhere_uncharged(h: Harness) -> None:
    begin(h, waiting=1)
    h.connect()
    h.started(1)
    lose(h)

    assert h.trial(1).status is TrialStatus.WAITING
    assert (h.trial(1).reason, h.trial(1).charged) == (TrialReason.ATTEMPT_LOST, 0)
    h.connect(agent_id="ray-2")
    assert h.attempt(1).agent_id == "ray-2"
    assert h.attempt(1).key.attempt == 2


def test_a_lost_node_that_comes_back_has_what_it_runs_stopped(h: Harness) -> None:
    begin(h, waiting=1)
    h.connect()
    h.started(1)
    before = h.observed(1)
    lose(h)
    h.connect(agent_id="ray-2")
    h.connect(before)

    assert [order.nonce for order in h.told_to(AGENT, Stop)] == [before.nonce]


def test_losing_a_node_that_nobody_knows_changes_nothing(h: Harness) -> None:
    begin(h, waiting=1)
    lose(h)

    assert h.statuses() == {1: "waiting"}

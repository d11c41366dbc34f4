"""How many nodes of Ray are wanted, which are given back, and which are gone."""

from __future__ import annotations

from collections.abc import Collection

from tuner_service.dispatcher.room import Room
from tuner_service.domain.node_kinds import NodeKind, NodeShape
from tuner_service.executor_options import RayNodes
from tuner_service.executors.ray.names import agents_of, group_of, name_in, new_agent_id
from tuner_service.executors.ray.wanting import MISSING_S, UNUSED_S, Observed, Wanting

ONE, TWO = NodeKind(runtime_env={}), NodeKind(size=2, runtime_env={})


def a_wanting(*, least: int = 0, most: int = 4, idle_s: float = 60.0) -> Wanting:
    return Wanting(nodes=RayNodes(least=least, most=most, idle_s=idle_s))


def a_room(*, lacking: int = 0, waits: bool = False, busy: Collection[str] = ()) -> Room:
    found = {ONE: lacking} if lacking else {}
    return Room(lacking=found, waits=waits or bool(found), busy=frozenset(busy), connected=frozenset(busy))


def lacking(kind: NodeKind) -> Room:
    """One of that kind."""
    return Room(lacking={kind: 1}, waits=True, busy=frozenset(), connected=frozenset())


def running(*names: str, draining_s: float = 0.0) -> list[Observed]:
    return [Observed(agent_id=name, phase="running", draining_s=draining_s) for name in names]


def test_there_should_be_those_that_stay_and_what_is_lacking_within_the_bounds() -> None:
    wanting = a_wanting(least=1, most=4)

    assert wanting.wanted([], a_room()) == {ONE: 1}
    assert wanting.wanted(running("ray-a"), a_room(lacking=2)) == {ONE: 3}
    assert wanting.wanted(running("ray-a", "ray-b"), a_room(lacking=9)) == {ONE: 4}


def test_a_node_that_ends_or_is_drained_is_replaced() -> None:
    wanting = a_wanting()
    wanting.ending["ray-a"] = 0.0
    observed = [*running("ray-a", "ray-b"), *running("ray-c", draining_s=30.0)]

    assert [one.agent_id for one in wanting.staying(observed)] == ["ray-b"]
    assert wanting.wanted(observed, a_room(lacking=1)) == {ONE: 2}
    assert wanting.drained(observed) == {"ray-c": 30.0}


def test_a_node_that_runs_nothing_is_not_counted_where_nothing_waits_so_that_none_comes_in_its_place() -> None:
    observed = running("ray-a", "ray-b")

    assert a_wanting().wanted(observed, a_room(busy=["ray-a"])) == {ONE: 1}
    assert a_wanting().wanted(observed, a_room()) == {ONE: 0}
    assert a_wanting().wanted(observed, a_room(waits=True)) == {ONE: 2}
    assert a_wanting(least=2).wanted(observed, a_room(busy=["ray-a"])) == {ONE: 2}
    assert a_wanting(least=3).wanted(pair("ray-g-0", "ray-g-1"), a_room()) == {ONE: 1}


def test_a_drained_node_is_told_once() -> None:
    wanting = a_wanting()
    wanting.ending["ray-a"] = 30.0

    assert wanting.drained(running("ray-a", draining_s=12.0)) == {}


def test_a_node_is_idle_from_the_end_of_its_last_trial_on() -> None:
    wanting, observed = a_wanting(idle_s=60.0), running("ray-a", "ray-b")

    assert wanting.idle(observed, a_room(), now=0.0) == []
    assert wanting.idle(observed, a_room(busy=["ray-b"]), now=50.0) == []
    assert wanting.idle(observed, a_room(), now=61.0) == ["ray-a"]
    assert wanting.idle(observed, a_room(), now=122.0) == ["ray-a", "ray-b"]


def test_as_many_idle_nodes_stay_as_are_wanted_at_least() -> None:
    wanting, observed = a_wanting(least=1, idle_s=1.0), running("ray-a", "ray-b")
    wanting.idle(observed, a_room(), now=0.0)

    assert wanting.idle(observed, a_room(), now=9.0) == ["ray-a"]


def test_no_node_is_given_back_while_something_waits() -> None:
    wanting, observed = a_wanting(idle_s=1.0), running("ray-a")
    wanting.idle(observed, a_room(), now=0.0)

    assert wanting.idle(observed, a_room(waits=True), now=9.0) == []
    assert wanting.idle(observed, a_room(lacking=1), now=9.0) == []
    assert wanting.idle(observed, a_room(), now=9.0) == ["ray-a"]


def test_a_node_that_has_not_come_is_not_waited_for_when_nothing_waits_any_more() -> None:
    wanting, observed = a_wanting(idle_s=600.0), [Observed(agent_id="ray-a", phase="pending")]
    wanting.idle(observed, a_room(waits=True), now=0.0)

    assert wanting.idle(observed, a_room(), now=UNUSED_S) == ["ray-a"]


def test_an_agent_of_ray_that_is_told_of_no_more_is_lost_after_a_while() -> None:
    wanting = a_wanting()

    assert wanting.lost(running("ray-a"), ["ray-a", "ray-b", "local"], now=0.0) == []
    assert wanting.lost(running("ray-a"), ["ray-a", "ray-b", "local"], now=MISSING_S) == ["ray-b"]


def test_an_agent_that_was_only_newer_than_what_was_told_is_not_lost() -> None:
    wanting = a_wanting()
    wanting.lost([], ["ray-a"], now=0.0)
    wanting.lost(running("ray-a"), ["ray-a"], now=1.0)

    assert wanting.lost([], ["ray-a"], now=MISSING_S) == []


def test_an_ended_node_is_forgotten_when_it_is_gone() -> None:
    wanting = a_wanting()
    wanting.ending["ray-a"] = 0.0
    wanting.lost([], [], now=0.0)

    assert wanting.ending == {}


def test_what_the_bridge_tells_is_read() -> None:
    shape = {"cpus": 2, "gpus": 0, "memory_bytes": 0}
    item = {
        "agent": "ray-a",
        "group": "ray-a",
        "pool": "p",
        "size": 1,
        "shape": shape,
        "phase": "pending",
        "reason": "no room",
        "draining": 0,
        "host": "",
        "ray_node": "n",
    }

    kind = NodeKind(pool="p", shape=NodeShape(cpus=2))
    seen = Observed(agent_id="ray-a", group="ray-a", kind=kind, phase="pending", reason="no room", ray_node="n")
    assert Observed.of(item) == seen


def test_a_placement_group_tells_whose_it_is_and_those_of_others_are_left_alone() -> None:
    agent_id = new_agent_id()

    assert name_in("l1", group_of("l1", agent_id)) == (agent_id, "")
    assert name_in("l1", group_of("l1", agent_id, "pool")) == (agent_id, "pool")
    assert name_in("l2", group_of("l1", agent_id)) is None
    assert name_in("l1", "tuner-l1-of-somebody") is None
    assert name_in("l1", agent_id) is None  # a group of somebody else, who calls it like one of our agents
    assert name_in("l1", "") is None
    assert agents_of("ray-a", 1) == ["ray-a"]
    assert agents_of("ray-a", 2) == ["ray-a-0", "ray-a-1"]


def pair(*names: str, phase: str = "running") -> list[Observed]:
    return [Observed(agent_id=name, group="ray-g", kind=TWO, phase=phase) for name in names]


def test_nodes_that_came_together_are_counted_as_one_and_go_together() -> None:
    wanting, observed = a_wanting(idle_s=60.0), pair("ray-g-0", "ray-g-1")

    assert wanting.wanted(observed, lacking(TWO)) == {ONE: 0, TWO: 2}
    assert wanting.coming(observed, ["ray-g-0"]) == {TWO: 1}
    assert wanting.coming(observed, ["ray-g-0", "ray-g-1"]) == {}
    wanting.idle(observed, a_room(busy=["ray-g-1"]), now=0.0)
    assert wanting.idle(observed, a_room(), now=61.0) == []
    assert wanting.idle(observed, a_room(), now=122.0) == ["ray-g-0", "ray-g-1"]


def test_what_is_left_of_nodes_that_came_together_has_to_go() -> None:
    wanting = a_wanting()
    assert wanting.broken(pair("ray-g-0", "ray-g-1")) == []

    assert wanting.broken(pair("ray-g-1")) == ["ray-g-1"]
    assert wanting.broken([*pair("ray-g-0"), *pair("ray-g-1", phase="ended")]) == ["ray-g-0"]
    wanting.ending["ray-g-0"] = 30.0
    assert wanting.broken(pair("ray-g-0", "ray-g-1")) == ["ray-g-1"]
    assert wanting.wanted(pair("ray-g-0", "ray-g-1"), a_room()) == {ONE: 0}


def test_a_kind_is_made_as_whoever_lacks_it_says() -> None:
    known = NodeKind(pool="p", shape=NodeShape(cpus=3))
    asked = NodeKind(pool="p", shape=NodeShape(cpus=3), runtime_env={"pip": ["a"]})
    found = a_wanting().wanted([Observed(agent_id="ray-a", kind=known)], lacking(asked))

    assert {kind.pool: (kind.runtime_env, count) for kind, count in found.items()} == {
        "": ({}, 0),
        "p": ({"pip": ["a"]}, 2),
    }

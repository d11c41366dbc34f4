"""Which placement groups there are after whatever has died, and who has removed the others.

===========================================  =====================================================================
what dies                                    who removes the placement group that nobody will use
===========================================  =====================================================================
the bridge, at any call                      the next bridge: it finds every group by its name, and removes one without
                                             an actor at once, and one that is wanted no more as the service orders it
bridge and service, before the first order   the actor itself, UNORDERED_S later
bridge and service, later                    the actor itself, when its agent has been without a service for so long
bridge and service, between a group and its  nobody but the next service on that database (the page says so)
actor; or later, and then node or actor too
the service alone                            what has no place, or no actor any more: its bridge, before it ends; the
                                             rest: the actor itself
a node of the cluster, or an actor           the bridge; another is made only where somebody needs one
the actor, while the bridge orders its end   the bridge: it sees an actor that is gone
the order to end, on its way                 the bridge: it repeats the order until it has come
===========================================  =====================================================================

What the actor does by itself is tested in ``tests/unit/trials/test_ray_node.py``.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.executors.ray.fake_ray import Actor, BridgeKilled, FakeRay
from tuner_service.dispatcher.room import Room
from tuner_service.domain.node_kinds import NodeKind
from tuner_service.executor_options import RayNodes
from tuner_service.executors.ray import reconciler
from tuner_service.executors.ray.names import group_of
from tuner_service.executors.ray.reconciler import BACKOFF_S, Reconciler
from tuner_service.executors.ray.wanting import Observed, Wanting

LINEAGE = "l"
STEPS = 6  # of a bridge, after which nothing more changes
GRACE_S = 60.0
ORDER = {"url": "http://h:1", "pid": 1, "machine": "m", "service_lost_s": 60.0}


class Scene:
    """A cluster, the bridge that is there, and what the service has told it last."""

    def __init__(self, **machines: int) -> None:
        self.at = 0.0
        self.ray = FakeRay(machines=machines)
        self.frame: dict[str, Any] = {}
        self.told: dict[str, Any] = {}
        self.begin_bridge()

    def begin_bridge(self) -> None:
        """Of the one before, only what is on the cluster is there still."""
        self.ray.calls_left = None
        self.bridge = Reconciler(self.ray, LINEAGE, now=lambda: self.at)
        self.told = self.bridge.step(None)

    def want(self, *counts: tuple[int, int], end: dict[str, float] | None = None) -> None:
        """So many groups of that size each."""
        shape = {"cpus": 1, "gpus": 0, "memory_bytes": 0}
        asked = [
            {"pool": "", "size": size, "shape": shape, "runtime_env": {}, "count": count} for count, size in counts
        ]
        self.frame = {"wanted": asked, "end": end or {}, "order": ORDER, "key": "k"}

    def step(self, count: int = STEPS) -> None:
        for _ in range(count):
            self.at += 0.25
            self.told = self.bridge.step(self.frame or None)

    def step_until_killed(self, calls: int) -> bool:
        """Whether it was, in place of the call after so many."""
        self.ray.calls_left = calls
        try:
            self.step()
        except BridgeKilled:
            return True
        self.ray.calls_left = None
        return False

    def end_what_was_told_to(self) -> None:
        for actor in self.ray.living:
            if actor.phase == "ending":
                actor.give_back()

    def only(self) -> Actor:
        (actor,) = self.ray.living
        return actor

    def phases(self) -> dict[str, str]:
        return {item["agent"]: item["phase"] for item in self.told["items"]}

    def lost(self) -> list[str]:
        return [item["reason"] for item in self.told["lost"]]

    def holds_only_what_runs(self) -> None:
        """No group without its actors, no actor without its group."""
        for name in self.ray.left:
            table = self.ray.tables[name]
            assert [actor.phase for actor in self.ray.of(name) if not actor.is_dead] == ["running"] * len(table.bundles)
        assert {actor.new.group for actor in self.ray.living} == set(self.ray.left)


@pytest.mark.parametrize("size", [1, 2])
def test_wherever_a_bridge_is_killed_while_it_makes_nodes_the_next_one_comes_to_what_is_wanted(size: int) -> None:
    for calls in range(1_000):
        scene = Scene(a=2, b=2)
        scene.want((2, size))
        was_killed = scene.step_until_killed(calls)
        scene.begin_bridge()
        scene.step()
        broken = Wanting(nodes=RayNodes()).broken([Observed.of(item) for item in scene.told["items"]])
        scene.want((2, size), end=dict.fromkeys(broken, GRACE_S))  # as the service says of a group that is not whole
        scene.step()
        scene.end_what_was_told_to()
        scene.step()

        assert len(scene.ray.left) == 2
        scene.holds_only_what_runs()
        if not was_killed:
            break
    assert calls > STEPS


@pytest.mark.parametrize("size", [1, 2])
def test_wherever_a_bridge_is_killed_while_it_gives_nodes_back_nothing_is_left(size: int) -> None:
    for calls in range(1_000):
        scene = Scene(a=1, b=1)
        scene.want((1, size))
        scene.step()
        names = [actor.new.agent_id for actor in scene.ray.living]
        scene.want((0, size), end=dict.fromkeys(names, GRACE_S))
        was_killed = scene.step_until_killed(calls)
        scene.begin_bridge()
        scene.step()

        assert [set(actor.graces) for actor in scene.ray.living] == [{GRACE_S}] * size
        scene.end_what_was_told_to()
        scene.step()
        assert (scene.ray.left, scene.ray.living, scene.lost()) == ([], [], [])
        if not was_killed:
            break
    assert calls > STEPS


@pytest.mark.parametrize("size", [1, 2])
def test_wherever_a_bridge_is_killed_while_it_minds_a_machine_that_died_the_next_one_does(size: int) -> None:
    for calls in range(1_000):
        scene = Scene(a=1, b=1, c=1)
        scene.want((1, size))
        scene.step()
        scene.ray.lose("a")
        scene.want((0, size))
        was_killed = scene.step_until_killed(calls)
        scene.begin_bridge()
        scene.step()
        broken = Wanting(nodes=RayNodes()).broken([Observed.of(item) for item in scene.told["items"]])
        scene.want((0, size), end=dict.fromkeys(broken, GRACE_S))
        scene.step()
        scene.end_what_was_told_to()
        scene.step()

        assert (scene.ray.left, scene.ray.living) == ([], [])
        if not was_killed:
            break
    assert calls > STEPS


@pytest.mark.parametrize("is_moved", [True, False])
@pytest.mark.parametrize("count", [0, 1])
def test_a_node_whose_machine_died_is_removed_and_another_is_made_only_where_one_is_wanted(
    count: int, is_moved: bool
) -> None:
    scene = Scene(a=1)
    scene.want((1, 1))
    scene.step()
    before = scene.only()
    scene.ray.machines["b"] = int(is_moved)
    scene.ray.lose("a")
    scene.want((count, 1))
    scene.step()

    assert scene.ray.tables[before.new.group].state == "REMOVED"
    assert scene.lost() == ["the actor is dead" if is_moved else "its node of the cluster died"]
    assert len(scene.ray.left) == count
    if count:
        assert set(scene.phases().values()) == {"running" if is_moved else "pending"}


def test_an_actor_that_was_killed_takes_its_group_along() -> None:
    scene = Scene(a=1)
    scene.want((1, 1))
    scene.step()
    scene.only().is_dead = True
    scene.want((0, 1))
    scene.step()

    assert (scene.ray.left, scene.phases(), scene.lost()) == ([], {}, ["the actor is dead"])


def test_a_group_that_somebody_removed_is_lost() -> None:
    scene = Scene(a=1)
    scene.want((1, 1))
    scene.step()
    scene.ray.take_away(scene.only().new.group)
    scene.want((0, 1))
    scene.step()

    assert (scene.phases(), scene.lost()) == ({}, ["its placement group is gone"])


def test_what_an_earlier_bridge_made_is_told_to_end_and_has_its_grace_though_it_was_not_heard_yet() -> None:
    """Its trials run: to remove its group would leave them the grace of an orphan."""
    scene = Scene(a=1)
    scene.want((1, 1))
    scene.step()
    scene.want((0, 1), end={scene.only().new.agent_id: GRACE_S})
    scene.ray.is_slow = True
    scene.begin_bridge()
    scene.step()

    assert scene.only().graces == [GRACE_S]
    assert len(scene.ray.left) == 1


def test_what_has_never_run_is_taken_back_at_once_whoever_made_it() -> None:
    scene = Scene()
    scene.want((1, 1))
    scene.step()
    (agent_id,) = scene.phases()
    scene.want((0, 1), end={agent_id: 0.0})
    scene.begin_bridge()
    scene.step()

    assert (scene.ray.left, scene.phases(), scene.lost()) == ([], {}, [])


@pytest.mark.parametrize("what", ["serve", "end"])
def test_an_order_that_did_not_come_is_given_again_after_a_pause(what: str) -> None:
    scene = Scene(a=1)
    scene.want((1, 1))
    if what == "end":
        scene.step()
        scene.want((0, 1), end={scene.only().new.agent_id: GRACE_S})
    scene.ray.loses = what
    scene.step(3)
    actor, question = scene.only(), f"ask {what}"
    assert scene.ray.calls.count(question) == 1
    scene.at += BACKOFF_S
    scene.step(2)
    assert scene.ray.calls.count(question) == 2
    scene.ray.loses = ""
    scene.at += BACKOFF_S
    scene.step()

    assert len(actor.orders) == 1
    assert actor.graces == ([GRACE_S] if what == "end" else [])
    assert scene.ray.calls.count(question) == 3


def test_when_the_service_is_gone_what_has_no_place_or_no_actor_goes_and_the_rest_stays() -> None:
    scene = Scene(a=2, b=1)
    scene.want((4, 1))
    scene.step()
    machines = {name: table.machines for name, table in scene.ray.tables.items()}
    scene.ray.lose("b", is_moved=False)
    scene.bridge.let_go()

    assert sorted(scene.ray.left) == sorted(name for name, at in machines.items() if at == ["a"])
    assert [actor.phase for actor in scene.ray.living] == ["running", "running"]


@pytest.mark.parametrize(("count", "size"), [(1, 1), (1, 2), (3, 1), (3, 2)])
def test_nodes_that_fail_together_double_the_pause_before_the_next_ones_once(count: int, size: int) -> None:
    scene = Scene(a=9, b=9)
    scene.want((count, size))
    made: dict[float, int] = {}
    for _ in range(40):
        before = len(scene.ray.tables)
        scene.step(1)
        if len(scene.ray.tables) > before:
            made[scene.at] = len(scene.ray.tables) - before
        for actor in scene.ray.living:
            actor.is_dead = True

    assert made == {0.25: count, 0.5 + BACKOFF_S: count, 0.75 + 3 * BACKOFF_S: count, 1.0 + 7 * BACKOFF_S: count}


def test_groups_of_others_are_left_alone() -> None:
    scene = Scene(a=3)
    for name in ("theirs", "ray-0", group_of("m", "ray-0"), f"tuner-{LINEAGE}-of-a-driver"):
        scene.ray.make_group(name, [{"CPU": 1.0}], is_apart=False)
    before = scene.ray.left
    scene.step()
    scene.bridge.let_go()

    assert scene.ray.left == before
    assert scene.told["items"] == []


def test_of_nodes_that_nobody_needs_a_lost_one_is_not_made_again() -> None:
    """As at the end of a search: the newest count that the bridge was told is older than the loss."""
    scene, wanting = Scene(a=1, b=1), Wanting(nodes=RayNodes(idle_s=3600.0))
    own = NodeKind(runtime_env={})
    searching = Room(lacking={own: 2}, waits=True, busy=frozenset(), connected=frozenset())
    ended = Room(lacking={}, waits=False, busy=frozenset(), connected=frozenset())

    def look(room: Room) -> None:
        observed = [Observed.of(item) for item in scene.told["items"]]
        ((_, count),) = wanting.wanted(observed, room).items()
        scene.want((count, 1))

    look(searching)
    scene.step()
    look(ended)
    assert len(scene.ray.left) == 2
    scene.ray.machines["c"] = 2  # there would be room
    scene.ray.lose("a")
    scene.step()

    assert len(scene.ray.left) == 1
    scene.holds_only_what_runs()


def test_of_the_pools_that_cannot_be_made_the_newest_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciler, "BACKOFFS_KEPT", 2)
    bridge: Any = Scene().bridge
    for number in range(4):
        bridge._back_off(SimpleNamespace(group=SimpleNamespace(pool=f"p{number}"), at=0.0))
    assert list(bridge._backoffs) == ["p2", "p3"]

"""Which running trials leave for claims that go before them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.dispatcher.test_placement import GIB, a_claim, a_node
from tuner_service.dispatcher.ledger import Held, Ledger
from tuner_service.dispatcher.placement import Decision, decide
from tuner_service.dispatcher.preemption import Running
from tuner_service.dispatcher.quotas import Claim
from tuner_service.domain.resources import Demand, Device, GpuRequest, Holding, Node, QuotaGroup


def a_running(experiment: str, number: int, *uuids: str, share: float = 1.0, **changed: Any) -> Running:
    """One that may leave, on these devices of one node each."""
    nodes = dict.fromkeys(uuid.split("-", maxsplit=1)[0] for uuid in uuids)
    holdings = tuple(
        Holding(agent_id=node, shares={uuid: share for uuid in uuids if uuid.startswith(node)}) for node in nodes
    )
    fields: dict[str, Any] = {"group": "default", "priority": 0, "holdings": holdings, "may_leave": True}
    return Running(experiment_id=experiment, number=number, **(fields | changed))


def on_cores(experiment: str, number: int, cpus: float, node: str = "n0", **changed: Any) -> Running:
    return a_running(experiment, number, holdings=(Holding(agent_id=node, cpus=cpus),), **changed)


def decided(
    *claims: Claim, running: list[Running], nodes: list[Node] | None = None, groups: tuple[QuotaGroup, ...] = ()
) -> Decision:
    """All that ``running`` holds is held, whether it may leave or not."""
    held = Ledger.of(Held(experiment_id=r.experiment_id, group=r.group, holdings=r.holdings) for r in running)
    found = {node.agent_id: node for node in nodes or [a_node(gpus=2)]}
    named = {group.name: group for group in groups}
    return decide(claims, nodes=found, held=held, groups=named, running=lambda: running)


def leaving(decision: Decision) -> list[str]:
    return [f"{one.running.experiment_id}{one.running.number}" for one in decision.preempted]


def two(**changed: Any) -> list[Running]:
    return [a_running("low", 1, "n0-g0", **changed), a_running("low", 2, "n0-g1", **changed)]


# ── before whom ─────────────────────────────────────────────────────────────────────────────────
def test_a_higher_priority_has_as_few_leave_as_it_needs() -> None:
    assert leaving(decided(a_claim("high", priority=1), running=two())) == ["low1"]
    assert leaving(decided(a_claim("high", priority=1, asks={"gpus": 2.0}), running=two())) == ["low1", "low2"]
    assert leaving(decided(*(a_claim("high", n, priority=1) for n in range(9)), running=two())) == ["low1", "low2"]


@pytest.mark.parametrize("priority", [0, -1])
def test_the_same_priority_has_nobody_leave(priority: int) -> None:
    decision = decided(a_claim("other", priority=priority), running=two())

    assert (decision.placed, decision.preempted, decision.is_short) == ([], [], True)


def test_nobody_leaves_who_may_not() -> None:
    claims = [a_claim("high", priority=1), a_claim("also", priority=1)]

    assert leaving(decided(*claims, running=two(may_leave=False))) == []


def test_nobody_leaves_in_vain() -> None:
    stays = [a_running("low", 1, "n0-g0"), a_running("fixed", 1, "n0-g1", may_leave=False)]

    decision = decided(a_claim("high", priority=1, asks={"gpus": 2.0}), running=stays)

    assert (leaving(decision), decision.is_short) == ([], True)


def test_who_leaves_by_now_is_waited_for() -> None:
    running = [a_running("low", 1, "n0-g0", may_leave=False, leaves=True), a_running("low", 2, "n0-g1")]
    high = [a_claim("high", n, priority=1) for n in (1, 2)]

    assert leaving(decided(high[0], running=running)) == []
    assert leaving(decided(*high, running=running)) == ["low2"]


def test_what_is_left_for_a_claim_goes_to_nobody_else() -> None:
    nodes = [a_node("n0", gpus=2)]
    running = [a_running("low", 1, "n0-g0", may_leave=False, leaves=True)]
    claims = [a_claim("high", priority=1, asks={"gpus": 2.0}), a_claim("low", 2)]

    decision = decided(*claims, running=running, nodes=nodes)

    assert (decision.placed, decision.preempted) == ([], []), "the free device is kept for the larger one"


def test_the_lowest_priority_leaves_first_then_who_holds_most_then_who_saved_last() -> None:
    nodes = [a_node(gpus=5)]
    running = [
        a_running("middle", 1, "n0-g0", priority=1),
        a_running("rich", 1, "n0-g1", saved_at=5.0),
        a_running("rich", 2, "n0-g2", saved_at=9.0),
        a_running("poor", 1, "n0-g3", saved_at=99.0),
        a_running("high", 9, "n0-g4", priority=5),
    ]

    decision = decided(*(a_claim("high", n, priority=5) for n in range(9)), running=running, nodes=nodes)

    assert leaving(decision) == ["rich2", "rich1", "poor1", "middle1"]


def test_the_node_is_taken_where_those_leave_who_come_last() -> None:
    nodes = [a_node("n0", gpus=1), a_node("n1", gpus=1)]
    running = [a_running("middle", 1, "n0-g0", priority=1), a_running("low", 1, "n1-g0")]

    assert leaving(decided(a_claim("high", priority=2), running=running, nodes=nodes)) == ["low1"]


def test_who_shares_a_device_leaves_where_all_of_it_is_wanted_and_nobody_else() -> None:
    running = [a_running("low", n, f"n0-g{n % 2}", share=0.5) for n in (1, 2, 3)]

    assert leaving(decided(a_claim("high", priority=1), running=running)) == ["low2"]
    running.append(a_running("low", 4, "n0-g0", share=0.5))
    assert leaving(decided(a_claim("high", priority=1), running=running)) == ["low1", "low3"]


def test_cores_and_memory_are_left_as_devices_are() -> None:
    running = [on_cores("low", n, 6.0) for n in (1, 2)]
    nodes = [a_node(gpus=0, cpus=12)]

    decision = decided(
        a_claim("high", priority=1, asks={"gpus": 0.0, "cpus": 4.0}),
        a_claim("late", asks={"gpus": 0.0, "cpus": 0.5}),
        running=running,
        nodes=nodes,
    )

    assert (leaving(decision), decision.placed) == (["low1"], [])


def test_a_node_is_kept_where_cores_are_waited_for_beside_a_device() -> None:
    nodes = [a_node(gpus=2, cpus=8)]
    running = [a_running("low", 1, holdings=(Holding(agent_id="n0", cpus=8.0, shares={"n0-g0": 1.0}),))]
    claims = [a_claim("high", priority=1, asks={"gpus": 1.0, "cpus": 2.0}), a_claim("other")]

    decision = decided(*claims, running=running, nodes=nodes)

    assert (leaving(decision), decision.placed) == (["low1"], [])


@pytest.mark.parametrize("asks", [{"cpus": 2.0}, {"memory_bytes": 20 * GIB}, {"cpus": 2.0, "memory_bytes": 20 * GIB}])
def test_only_the_device_is_kept_where_just_the_cores_and_the_memory_are_there(asks: dict[str, Any]) -> None:
    nodes = [a_node(gpus=2, cpus=8)]
    held = Holding(agent_id="n0", cpus=6.0, memory_bytes=44 * GIB, shares={"n0-g0": 1.0})
    running = [a_running("low", 1, holdings=(held,)), a_running("half", 1, "n0-g1", share=0.5, may_leave=False)]
    claims = [a_claim("high", priority=1, asks={"gpus": 1.0} | asks), a_claim("late", asks={"gpus": 0.5})]

    decision = decided(*claims, running=running, nodes=nodes)

    assert leaving(decision) == ["low1"]
    assert [(one.claim.experiment_id, *one.holdings[0].shares) for one in decision.placed] == [("late", "n0-g1")]


def test_a_trial_of_several_nodes_has_those_leave_that_it_needs_on_each() -> None:
    nodes = [a_node(f"n{n}", gpus=1) for n in range(3)]
    running = [a_running("low", n, f"n{n}-g0") for n in range(2)]

    pair = a_claim("high", priority=1, asks={"gpus": 1.0, "nodes": 2})
    assert leaving(decided(pair, running=running, nodes=nodes)) == ["low0"], "the third node is free"
    three = a_claim("high", priority=1, asks={"gpus": 1.0, "nodes": 3})
    assert leaving(decided(three, running=running, nodes=nodes)) == ["low0", "low1"]
    assert leaving(decided(a_claim("high", priority=1, asks={"nodes": 4}), running=running, nodes=nodes)) == []


def test_one_of_several_nodes_leaves_all_of_them_at_once() -> None:
    nodes = [a_node("n0", gpus=1), a_node("n1", gpus=1)]
    gang = a_running("low", 1, "n0-g0", "n1-g0")

    decision = decided(*(a_claim("high", n, priority=1) for n in (1, 2)), running=[gang], nodes=nodes)
    assert leaving(decision) == ["low1"]
    pair = a_claim("high", priority=1, asks={"gpus": 1.0, "nodes": 2})
    assert leaving(decided(pair, running=[gang], nodes=nodes)) == ["low1"]


# ── quota groups ────────────────────────────────────────────────────────────────────────────────
THREE, ONE = QuotaGroup(name="three", gpus=3), QuotaGroup(name="one", gpus=1)


def borrowing(priority: int = 9) -> list[Running]:
    return [a_running("b", n, f"n0-g{n}", group="one", priority=priority) for n in range(4)]


def test_what_was_borrowed_is_given_back_at_once_where_that_is_allowed_and_no_more() -> None:
    claims = [a_claim("a", n, group="three") for n in range(9)]

    decision = decided(*claims, running=borrowing(), nodes=[a_node()], groups=(THREE, ONE))

    assert leaving(decision) == ["b0", "b1", "b2"], "the fourth is within its quota, and of a higher priority"


def test_a_group_that_holds_its_quota_to_the_last_part_of_a_device_has_borrowed_nothing() -> None:
    exact = QuotaGroup(name="exact", gpus=2.01)  # times the parts of a device that are counted: a little less than it
    running = [a_running("b", n, f"n0-g{n}", group="exact", priority=9) for n in range(2)]
    running.append(a_running("b", 2, "n0-g2", share=0.01, group="exact", priority=9))

    def left(*groups: QuotaGroup) -> list[str]:
        return leaving(decided(a_claim("a", group="three"), running=running, nodes=[a_node(gpus=3)], groups=groups))

    assert left(THREE, exact) == []
    assert left(THREE, QuotaGroup(name="exact", gpus=2.0)) == ["b0"]


def test_who_would_borrow_has_nobody_leave_who_is_within_the_quota() -> None:
    claims = [a_claim("b", n, group="one", priority=9) for n in range(9)]
    running = [a_running("a", n, f"n0-g{n}", group="three") for n in range(3)]
    running.append(a_running("b", 99, "n0-g3", group="one", priority=9))

    assert leaving(decided(*claims, running=running, nodes=[a_node()], groups=(THREE, ONE))) == []


def test_within_a_group_the_priority_alone_decides() -> None:
    running = borrowing(priority=0)
    claim = a_claim("c", group="one", priority=1)

    assert leaving(decided(claim, running=running, nodes=[a_node()], groups=(THREE, ONE))) == ["b0"]


def test_a_group_that_may_not_borrow_makes_room_within_its_quota() -> None:
    own = QuotaGroup(name="own", gpus=1, borrows=False)
    running = [a_running("low", 1, "n0-g0", group="own"), a_running("other", 1, "n0-g1", priority=-5)]
    high = [a_claim("high", n, group="own", priority=1) for n in (1, 2)]

    decision = decided(*high, running=running, nodes=[a_node(gpus=3)], groups=(own,))

    assert leaving(decision) == ["low1"], "it has the room, and not the quota"
    assert decided(*high, running=running[1:], nodes=[a_node(gpus=3)], groups=(own,)).placed


def test_a_group_whose_own_trials_may_not_leave_waits() -> None:
    own = QuotaGroup(name="own", gpus=1, borrows=False)
    running = [a_running("low", 1, "n0-g0", group="own", may_leave=False)]

    decision = decided(a_claim("high", group="own", priority=1), running=running, groups=(own,))

    assert (leaving(decision), decision.placed) == ([], [])


def test_on_several_nodes_a_quota_is_looked_at_for_all_of_them() -> None:
    own = QuotaGroup(name="own", gpus=2, borrows=False)
    nodes = [a_node("n0", gpus=1), a_node("n1", gpus=1), a_node("n2", gpus=1)]
    running = [a_running("low", 1, "n0-g0", group="own"), a_running("low", 2, "n1-g0", group="own")]
    pair = a_claim("high", group="own", priority=1, asks={"gpus": 1.0, "nodes": 2})

    assert leaving(decided(pair, running=running, nodes=nodes, groups=(own,))) == ["low1", "low2"]


def test_the_memory_of_a_claim_that_shares_devices_counts() -> None:
    packed = Demand(request=GpuRequest.AUTO, peak_gpu_bytes=40 * GIB)
    running = [a_running("low", 1, "n0-g0", share=0.9), a_running("fixed", 1, "n0-g1", may_leave=False)]

    assert leaving(decided(a_claim("high", priority=1, demand=packed), running=running)) == ["low1"]


def test_nobody_leaves_for_what_its_quota_forbids_where_that_shows_only_on_the_device() -> None:
    own = QuotaGroup(name="own", gpus=0.1, borrows=False)
    packed = Demand(request=GpuRequest.AUTO, peak_gpu_bytes=40 * GIB)

    assert leaving(decided(a_claim("high", priority=1, group="own", demand=packed), running=two(), groups=(own,))) == []


def test_what_is_left_of_a_device_that_was_lost_is_not_given_on() -> None:
    lost = Device(uuid="n0-g0", memory_bytes=80 * GIB, lost="fell off the bus")
    running = [a_running("low", 1, holdings=(Holding(agent_id="n0", cpus=4.0, shares={"n0-g0": 1.0}),))]
    nodes = [a_node(devices=(lost,), cpus=4)]

    decision = decided(a_claim("cores", priority=1, asks={"gpus": 0.0, "cpus": 4.0}), running=running, nodes=nodes)
    assert leaving(decision) == ["low1"]
    assert leaving(decided(a_claim("device", priority=1), running=running, nodes=nodes)) == []


def test_nothing_is_asked_of_who_runs_while_all_find_room() -> None:
    def never() -> list[Running]:
        raise AssertionError("asked")

    found = decide([a_claim()], nodes={"n0": a_node()}, held=Ledger(), groups={}, running=never)

    assert len(found.placed) == 1

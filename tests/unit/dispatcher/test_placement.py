"""Which waiting trials start, and on what."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from tuner_service.dispatcher.ledger import Held, Ledger
from tuner_service.dispatcher.placement import Placed, could_ever_fit, place
from tuner_service.dispatcher.quotas import Claim
from tuner_service.domain.resources import Demand, Device, GpuRequest, Holding, Node, QuotaGroup, describe

GIB = 1 << 30


def a_node(name: str = "n0", *, gpus: int = 4, cpus: float = 16, **changed: Any) -> Node:
    devices = tuple(Device(uuid=f"{name}-g{i}", name="A100", memory_bytes=80 * GIB) for i in range(gpus))
    return Node(**{"agent_id": name, "cpus": cpus, "memory_bytes": 64 * GIB, "devices": devices} | changed)


def a_claim(experiment: str = "e", number: int = 1, **changed: Any) -> Claim:
    demand = changed.pop("demand", None) or Demand(**{"gpus": 1.0} | changed.pop("asks", {}))
    return Claim(experiment_id=experiment, number=number, demand=demand, **changed)


def decide(
    *claims: Claim, nodes: list[Node] | None = None, held: tuple[Held, ...] = (), groups: tuple[QuotaGroup, ...] = ()
) -> list[Placed]:
    found = [a_node()] if nodes is None else nodes
    return place(claims, nodes={n.agent_id: n for n in found}, held=Ledger.of(held), groups={g.name: g for g in groups})


def shares(placed: list[Placed]) -> list[dict[str, float]]:
    return [dict(holding.shares) for one in placed for holding in one.holdings]


def names(placed: list[Placed]) -> list[str]:
    return [f"{one.claim.experiment_id}{one.claim.number}" for one in placed]


def holding(experiment: str, uuid: str, share: float = 1.0, *, group: str = "default") -> Held:
    node = uuid.split("-", maxsplit=1)[0]
    return Held(experiment_id=experiment, group=group, holdings=(Holding(agent_id=node, shares={uuid: share}),))


# ── what fits ───────────────────────────────────────────────────────────────────────────────────
def test_whole_devices_are_never_shared() -> None:
    placed = decide(*(a_claim(number=n) for n in range(1, 7)))

    assert shares(placed) == [{f"n0-g{i}": 1.0} for i in range(4)]


def test_fractions_fill_the_fullest_device_that_has_room() -> None:
    asked = [0.5, 0.25, 0.5, 0.25, 0.25]

    placed = decide(*(a_claim(number=n, asks={"gpus": g}) for n, g in enumerate(asked)))

    assert [next(iter(s)) for s in shares(placed)] == ["n0-g0", "n0-g0", "n0-g1", "n0-g0", "n0-g1"]


def test_a_whole_device_is_not_given_where_a_fraction_is_in_use() -> None:
    placed = decide(a_claim(), nodes=[a_node(gpus=1)], held=(holding("x", "n0-g0", 0.1),))

    assert placed == []


@pytest.mark.parametrize("device", [{"occupied": True}, {"lost": "fell off the bus"}])
def test_a_device_that_strangers_use_or_that_was_lost_is_left_alone(device: dict[str, Any]) -> None:
    bad = Device(uuid="n0-g0", memory_bytes=80 * GIB, **device)
    good = Device(uuid="n0-g1", memory_bytes=80 * GIB)

    placed = decide(a_claim(number=1), a_claim(number=2), nodes=[a_node(devices=(bad, good))])

    assert shares(placed) == [{"n0-g1": 1.0}]


def test_a_device_needs_the_memory_that_is_asked_for() -> None:
    small, large = Device(uuid="n0-g0", memory_bytes=8 * GIB), Device(uuid="n0-g1", memory_bytes=80 * GIB)
    asks = {"gpus": 0.1, "gpu_memory_bytes": 30 * GIB}

    placed = decide(*(a_claim(number=n, asks=asks) for n in range(1, 5)), nodes=[a_node(devices=(small, large))])

    assert shares(placed) == [{"n0-g1": 0.1}, {"n0-g1": 0.1}], "a third would need 90 GiB of it"


def test_the_smallest_devices_that_do_are_taken_whole() -> None:
    devices = tuple(Device(uuid=f"n0-g{i}", memory_bytes=m * GIB) for i, m in enumerate([80, 24, 48]))

    placed = decide(a_claim(asks={"gpus": 1.0, "gpu_memory_bytes": 40 * GIB}), nodes=[a_node(devices=devices)])

    assert shares(placed) == [{"n0-g2": 1.0}]


def test_all_devices_of_a_node_are_all_of_them_or_none() -> None:
    asks = {"request": GpuRequest.ALL}

    assert shares(decide(a_claim(asks=asks))) == [{f"n0-g{i}": 1.0 for i in range(4)}]
    assert decide(a_claim(asks=asks), held=(holding("x", "n0-g3", 0.5),)) == []
    assert decide(a_claim(asks=asks), nodes=[a_node(gpus=0)]) == []


def test_cores_and_memory_are_placed_the_same_way_without_any_gpu() -> None:
    node = a_node(gpus=0, cpus=4)
    asks = {"gpus": 0.0, "cpus": 1.5, "memory_bytes": 20 * GIB}

    placed = decide(*(a_claim(number=n, asks=asks) for n in range(1, 5)), nodes=[node])

    assert names(placed) == ["e1", "e2"]


def test_a_trial_without_devices_stays_away_from_nodes_that_have_some() -> None:
    placed = decide(a_claim(asks={"gpus": 0.0, "cpus": 1.0}), nodes=[a_node("gpu"), a_node("cpu", gpus=0, cpus=2)])

    assert placed[0].holdings[0].agent_id == "cpu"


def test_what_a_node_that_is_away_holds_changes_nothing_elsewhere() -> None:
    assert len(decide(a_claim(), held=(holding("x", "gone-g0"),))) == 1


def test_what_is_held_of_a_device_that_was_lost_since_changes_nothing() -> None:
    lost = Device(uuid="n0-g0", memory_bytes=GIB, lost="fell off the bus")

    assert decide(a_claim(), nodes=[a_node(devices=(lost,))], held=(holding("x", "n0-g0"),)) == []


def test_a_part_of_a_device_is_looked_for_where_the_labels_are() -> None:
    nodes = [a_node("n0", gpus=1), a_node("n1", gpus=1, labels={"zone": "b"})]
    asks = {"gpus": 0.5, "labels": (("zone", "b"),)}

    assert shares(decide(a_claim(asks=asks), nodes=nodes)) == [{"n1-g0": 0.5}]


# ── measured, then packed ───────────────────────────────────────────────────────────────────────
def test_auto_gives_one_device_a_trial_until_its_memory_is_known() -> None:
    asks = {"request": GpuRequest.AUTO}

    assert shares(decide(*(a_claim(number=n, asks=asks) for n in range(1, 7)))) == [{f"n0-g{i}": 1.0} for i in range(4)]


def test_auto_packs_as_many_as_fit_once_it_is_known() -> None:
    asks = {"request": GpuRequest.AUTO, "peak_gpu_bytes": 14 * GIB}

    placed = decide(*(a_claim(number=n, asks=asks) for n in range(1, 30)))

    assert Counter(next(iter(s)) for s in shares(placed)) == {f"n0-g{i}": 5 for i in range(4)}


def test_auto_does_not_start_what_is_larger_than_a_device() -> None:
    assert decide(a_claim(asks={"request": GpuRequest.AUTO, "peak_gpu_bytes": 81 * GIB})) == []


def test_packing_comes_within_a_tenth_of_an_exact_solver() -> None:
    rng = random.Random(3)
    ours = exact = 0
    for _ in range(40):
        peak = rng.randint(6, 40)
        asks = {"request": GpuRequest.AUTO, "peak_gpu_bytes": peak * GIB}
        running = [round(rng.choice([0.0, 0.2, 0.35, 0.5]), 2) for _ in range(4)]
        held = tuple(holding("x", f"n0-g{i}", share) for i, share in enumerate(running) if share)
        ours += len(decide(*(a_claim(number=n, asks=asks) for n in range(60)), held=held))
        exact += sum(int((1 - used + 1e-9) / (peak * 1.1 / 80)) for used in running)

    assert ours >= 0.9 * exact


# ── who goes first ──────────────────────────────────────────────────────────────────────────────
def test_a_higher_priority_goes_first_then_who_holds_less_then_who_waited_longer() -> None:
    claims = [
        a_claim("rich", 1, since=1.0),
        a_claim("late", 1, since=9.0),
        a_claim("early", 1, since=2.0),
        a_claim("urgent", 1, since=10.0, priority=5),
    ]

    placed = decide(*claims, nodes=[a_node(), a_node("n1", gpus=1)], held=(holding("rich", "n1-g0"),))

    assert names(placed) == ["urgent1", "early1", "late1", "rich1"]


def test_a_group_within_its_quota_goes_before_one_that_borrows_whatever_the_priority() -> None:
    claims = [a_claim("urgent", priority=5, group="small"), a_claim("patient")]
    small = QuotaGroup(name="small", gpus=1)

    placed = decide(*claims, nodes=[a_node(gpus=2)], held=(holding("x", "n0-g0", group="small"),), groups=(small,))

    assert names(placed) == ["patient1"]


def test_two_experiments_that_want_more_than_there_is_share_alike() -> None:
    claims = [a_claim(e, n, since=float(n)) for e in ("a", "b") for n in range(1, 9)]

    assert Counter(one.claim.experiment_id for one in decide(*claims)) == {"a": 2, "b": 2}


def test_who_holds_less_is_told_by_the_scarcest_of_devices_and_cores() -> None:
    half_of_the_devices = holding("devices", "n0-g0")
    quarter_of_the_cores = Held(experiment_id="cores", group="default", holdings=(Holding(agent_id="n0", cpus=4.0),))
    claims = [a_claim(e, demand=Demand(cpus=1.0), since=float(n)) for n, e in enumerate(("devices", "cores"))]

    placed = decide(*claims, nodes=[a_node(gpus=2)], held=(half_of_the_devices, quarter_of_the_cores))

    assert names(placed) == ["cores1", "devices1"]


def test_a_few_of_many_devices_are_less_than_most_of_the_cores() -> None:
    most_of_the_cores = Held(experiment_id="cores", group="default", holdings=(Holding(agent_id="n0", cpus=12.0),))
    claims = [a_claim(e, demand=Demand(cpus=1.0), since=float(n)) for n, e in enumerate(("cores", "devices"))]

    placed = decide(*claims, held=(holding("devices", "n0-g0"), most_of_the_cores))

    assert names(placed) == ["devices1", "cores1"]


def test_twice_the_weight_is_twice_the_share() -> None:
    claims = [a_claim("a", n, weight=2.0) for n in range(9)] + [a_claim("b", n) for n in range(9)]

    placed = decide(*claims, nodes=[a_node(gpus=6)])

    assert Counter(one.claim.experiment_id for one in placed) == {"a": 4, "b": 2}


def test_many_small_trials_do_not_starve_a_large_one() -> None:
    running = [holding("small", f"n0-g{i}") for i in range(4)]
    claims = [a_claim("large", asks={"gpus": 4.0}), *(a_claim("small", n, since=1.0) for n in range(5, 50))]
    for _ in range(4):
        running.pop()
        started = decide(*claims, held=tuple(running))
        if running:
            assert started == [], "the node is kept for the large one"

    assert names(started) == ["large1"]


def test_other_nodes_are_used_while_one_is_kept() -> None:
    nodes = [a_node("n0"), a_node("n1", gpus=2)]
    held = (holding("x", "n0-g0"),)

    placed = decide(a_claim("large", asks={"gpus": 4.0}), *(a_claim("s", n) for n in range(5)), nodes=nodes, held=held)

    assert shares(placed) == [{"n1-g0": 1.0}, {"n1-g1": 1.0}]


def test_other_devices_are_used_while_one_is_kept_for_a_fraction() -> None:
    held = tuple(holding("x", f"n0-g{i}", 0.5) for i in range(4))

    placed = decide(
        a_claim("half", asks={"gpus": 0.75}), *(a_claim("s", n, asks={"gpus": 0.5}) for n in range(9)), held=held
    )

    assert len(placed) == 3


def test_a_node_is_kept_for_a_claim_that_waits_for_cores() -> None:
    busy = Held(experiment_id="x", group="default", holdings=(Holding(agent_id="n0", cpus=10.0),))
    many = a_claim("many", asks={"gpus": 1.0, "cpus": 16.0})

    assert decide(many, *(a_claim("s", n, asks={"gpus": 1.0, "cpus": 1.0}) for n in range(9)), held=(busy,)) == []


def test_only_a_device_is_kept_for_a_claim_that_has_just_the_cores_it_asks_for() -> None:
    held = (holding("x", "n0-g0", 0.25), holding("x", "n0-g1", 0.5))
    whole = a_claim("whole", asks={"gpus": 1.0, "cpus": 16.0})
    half = a_claim("half", asks={"gpus": 0.5}, since=1.0)

    placed = decide(whole, half, nodes=[a_node(gpus=2, cpus=16)], held=held)

    assert shares(placed) == [{"n0-g1": 0.5}]


def test_a_claim_that_could_never_fit_keeps_nothing() -> None:
    placed = decide(a_claim("huge", asks={"gpus": 9.0}), a_claim("s", 1))

    assert names(placed) == ["s1"]


def test_a_trial_of_several_nodes_starts_on_all_of_them_or_on_none() -> None:
    nodes = [a_node("n0"), a_node("n1")]
    asks = {"gpus": 4.0, "nodes": 2}

    assert [h.agent_id for h in decide(a_claim(asks=asks), nodes=nodes)[0].holdings] == ["n0", "n1"]
    assert decide(a_claim(asks=asks), nodes=nodes, held=(holding("x", "n1-g0"),)) == []
    assert decide(a_claim(asks=asks | {"nodes": 3}), a_claim("s", asks={"gpus": 4.0}), nodes=nodes) != []


# ── quotas ──────────────────────────────────────────────────────────────────────────────────────
THREE = QuotaGroup(name="three", gpus=3)
ONE = QuotaGroup(name="one", gpus=1)


def wanting(experiment: str, group: str, count: int = 9) -> list[Claim]:
    return [a_claim(experiment, n, group=group) for n in range(1, count + 1)]


def test_each_group_gets_its_quota_where_all_want_more() -> None:
    placed = decide(*wanting("a", "three"), *wanting("b", "one"), groups=(THREE, ONE))

    assert Counter(one.claim.group for one in placed) == {"three": 3, "one": 1}


def test_what_one_experiment_is_given_of_a_quota_counts_for_the_others_of_its_group() -> None:
    claims = [a_claim("a", group="one"), a_claim("b", group="one"), a_claim("c", group="three", since=9.0)]

    assert names(decide(*claims, nodes=[a_node(gpus=2)], groups=(THREE, ONE))) == ["a1", "c1"]


def test_idle_devices_of_a_quota_are_lent() -> None:
    placed = decide(*wanting("b", "one"), groups=(THREE, ONE))

    assert len(placed) == 4


def test_a_group_that_may_not_borrow_stays_within_its_quota() -> None:
    placed = decide(*wanting("b", "one"), groups=(THREE, QuotaGroup(name="one", gpus=1, borrows=False)))

    assert len(placed) == 1


def test_a_group_that_may_not_borrow_stays_within_it_also_where_a_trial_takes_more_than_one_could_tell_before() -> None:
    groups = (QuotaGroup(name="a", gpus=1, borrows=False),)
    everything = a_claim(group="a", demand=Demand(request=GpuRequest.ALL))
    packed = Demand(request=GpuRequest.AUTO, peak_gpu_bytes=24 * GIB)  # a third of a device, with the margin

    assert decide(everything, groups=groups) == []
    assert shares(decide(everything, nodes=[a_node(), a_node("n1", gpus=1)], groups=groups)) == [{"n1-g0": 1.0}]
    assert len(decide(*(a_claim(number=n, group="a", demand=packed) for n in range(9)), groups=groups)) == 3


def test_what_was_lent_is_given_back_with_the_next_trial_that_ends() -> None:
    held = tuple(holding("b", f"n0-g{i}", group="one") for i in range(3))

    placed = decide(*wanting("b", "one"), *wanting("a", "three"), held=held, groups=(THREE, ONE))

    assert names(placed) == ["a1"]


def test_quotas_are_about_devices_only() -> None:
    no_gpu = {"gpus": 0.0, "cpus": 1.0}
    claims = [a_claim("b", n, group="one", asks=no_gpu) for n in range(1, 9)]

    assert len(decide(*claims, groups=(QuotaGroup(name="one", gpus=0, borrows=False),))) == 8


def test_an_unmeasured_or_whole_node_trial_counts_as_a_device_before_it_is_placed() -> None:
    none = QuotaGroup(name="none", gpus=0, borrows=False)
    asks = [{"request": GpuRequest.ALL}, {"request": GpuRequest.AUTO}]

    assert decide(*(a_claim("b", n, group="none", asks=a) for n, a in enumerate(asks)), groups=(none,)) == []
    packed = {"request": GpuRequest.AUTO, "peak_gpu_bytes": GIB}
    assert decide(a_claim("b", group="none", asks=packed), groups=(none,)) == []


def test_over_a_long_time_shares_are_honoured_and_nobody_starves() -> None:
    """Two groups of 3 and 1 devices that always want more; trials of random length; then one falls silent."""
    rng = random.Random(8)
    running: list[tuple[float, Held]] = []
    used: Counter[str] = Counter()
    now, number = 0.0, 0
    for round_ in range(4_000):
        claims = [c for e, g in (("a", "three"), ("b", "one")) for c in wanting(e, g, 4)]
        if round_ > 3_000:
            claims = [c for c in claims if c.group == "one"]
        for one in decide(*claims, held=tuple(h for _, h in running), groups=(THREE, ONE)):
            number += 1
            running.append((now + rng.uniform(0.5, 1.5), Held(
                experiment_id=one.claim.experiment_id, group=one.claim.group, holdings=one.holdings)))  # fmt: skip
        assert sum(one.gpus for _, h in running for one in h.holdings) == 4, "no device is idle while somebody wants it"
        ends, ended = min(running, key=lambda entry: entry[0])
        if round_ <= 3_000:
            for _, h in running:
                used[h.group] += round((ends - now) * 1_000)
        now = ends
        running.remove((ends, ended))

    assert used["three"] / used.total() == pytest.approx(0.75, abs=0.05)
    assert {h.group for _, h in running} == {"one"}, "what is idle is lent"


# ── refusing at the start ───────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("asks", "fits_"),
    [({"gpus": 4.0}, True), ({"gpus": 5.0}, False), ({"request": GpuRequest.ALL}, True), ({"cpus": 17.0}, False)],
)
def test_whether_a_trial_could_run_at_all_is_known_before(asks: dict[str, Any], fits_: bool) -> None:
    nodes = {"n0": a_node()}

    assert could_ever_fit(Demand(**{"gpus": 0.0} | asks), nodes) is fits_


def test_what_exists_can_be_told_to_a_person() -> None:
    nodes = {"n0": a_node(gpus=2), "n1": a_node("n1", gpus=0, cpus=2)}

    assert describe(nodes) == "n0 (16 cores, 64 GiB, 2 × A100); n1 (2 cores, 64 GiB, no GPU)"
    assert describe({}) == "no node"


def test_a_thousand_trials_that_find_no_room_cost_no_more_than_a_look() -> None:
    claims = [a_claim(f"e{n % 7}", n, since=float(n)) for n in range(1_000)]
    held = tuple(holding("x", f"n0-g{i}") for i in range(4))

    assert decide(*claims, held=held) == []

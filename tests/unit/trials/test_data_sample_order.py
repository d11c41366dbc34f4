"""Which index stands where: permutations that need no list."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trials.data.core.sample_order import BlockOrder, KeyedOrder, SequentialOrder, TorchOrder, shuffle_named

LENGTHS = st.integers(min_value=0, max_value=5000)
KEPT = [8, 1, 2, 0, 9, 7, 3, 5, 4, 6]
SEEDS = st.integers(min_value=-(2**63), max_value=2**63)


def whole(order: KeyedOrder | BlockOrder | TorchOrder | SequentialOrder) -> list[int]:
    return order.indices(np.arange(order.length, dtype=np.int64)).tolist()


@settings(deadline=None)  # the cores are shared
@given(length=LENGTHS, seed=SEEDS, epoch=st.integers(min_value=0, max_value=100))
def test_every_index_stands_at_exactly_one_position(length: int, seed: int, epoch: int) -> None:
    order = KeyedOrder(length=length, seed=seed, epoch=epoch)

    assert sorted(whole(order)) == list(range(length))


@settings(deadline=None)  # the cores are shared
@given(length=st.integers(min_value=1, max_value=5000), data=st.data())
def test_a_position_is_found_without_those_before_it(length: int, data: st.DataObject) -> None:
    order = KeyedOrder(length=length, seed=3, epoch=1)
    chosen = data.draw(st.lists(st.integers(min_value=0, max_value=length - 1), min_size=1, max_size=20))

    found = order.indices(np.array(chosen, dtype=np.int64)).tolist()

    assert found == [whole(order)[position] for position in chosen]


def test_a_position_among_ten_to_the_twelve_is_found_at_once() -> None:
    order = KeyedOrder(length=10**12, seed=1, epoch=0)

    found = order.indices(np.array([0, 10**12 - 1, 123456789012], dtype=np.int64))

    assert all(0 <= index < 10**12 for index in found)
    assert len(set(found.tolist())) == 3


def test_seeds_and_epochs_shuffle_differently_and_always_the_same() -> None:
    orders = [KeyedOrder(length=50, seed=seed, epoch=epoch) for seed in (0, 1, -1) for epoch in (0, 1)]

    assert len({tuple(whole(order)) for order in orders}) == len(orders)
    assert whole(KeyedOrder(length=8, seed=7, epoch=0)) == whole(KeyedOrder(length=8, seed=7, epoch=0))


def test_the_shuffle_is_the_same_on_every_machine_and_in_every_version() -> None:
    assert whole(KeyedOrder(length=10, seed=7, epoch=2)) == KEPT


def test_all_orders_of_four_come_up_about_equally_often() -> None:
    counts = Counter(tuple(whole(KeyedOrder(length=4, seed=seed, epoch=0))) for seed in range(4800))

    assert len(counts) == 24
    assert min(counts.values()) > 140
    assert max(counts.values()) < 270


def test_neighbours_do_not_stay_neighbours() -> None:
    found = np.array(whole(KeyedOrder(length=10_000, seed=1, epoch=0)))

    assert abs(np.corrcoef(np.arange(10_000), found)[0, 1]) < 0.04
    assert (np.abs(np.diff(found)) == 1).sum() < 20


def test_torchs_order_is_torchs() -> None:
    generator = torch.Generator().manual_seed(5 + 2)

    expected = list(torch.utils.data.RandomSampler(range(100), generator=generator))

    assert whole(TorchOrder(length=100, seed=5, epoch=2)) == expected


def test_an_order_of_another_name_is_refused_with_those_there_are() -> None:
    assert shuffle_named("torch") is TorchOrder
    with pytest.raises(ValueError, match="'keyed' or 'torch', not 'random'"):
        shuffle_named("random")


def test_without_a_shuffle_positions_are_indices() -> None:
    assert whole(SequentialOrder(length=4)) == [0, 1, 2, 3]


def a_block_order(length: int = 100, block: int = 16, seed: int = 1, epoch: int = 0) -> BlockOrder:
    return BlockOrder(length=length, block=block, dataset="d", group_seed=9, seed=seed, epoch=epoch)


@settings(deadline=None)  # the cores are shared
@given(length=st.integers(min_value=0, max_value=2000), block=st.integers(min_value=1, max_value=100))
def test_every_index_stands_in_one_block_order_position(length: int, block: int) -> None:
    order = a_block_order(length, block)

    assert sorted(whole(order)) == list(range(length))


@settings(deadline=None)  # the cores are shared
@given(length=st.integers(min_value=1, max_value=500), block=st.integers(min_value=1, max_value=60))
def test_a_block_is_a_run_of_the_groups_order(length: int, block: int) -> None:
    order = a_block_order(length, block)
    group = order.indices_of_places(np.arange(length, dtype=np.int64)).tolist()
    indices = whole(order)

    for begin in range(0, length, block):
        assert sorted(indices[begin : begin + block]) == sorted(group[begin : begin + block])


def test_trials_of_a_group_walk_the_same_blocks_each_in_its_own_order() -> None:
    one, other = a_block_order(seed=1), a_block_order(seed=2)

    for rank in range(7):
        here = slice(rank * 16, (rank + 1) * 16)
        assert set(whole(one)[here]) == set(whole(other)[here])
    assert whole(one) != whole(other)


def test_blocks_inside_are_shuffled_independently_of_each_other() -> None:
    places = a_block_order(length=64, block=16).places(np.arange(64, dtype=np.int64))
    inside = {tuple((places[begin : begin + 16] - begin).tolist()) for begin in range(0, 64, 16)}

    assert len(inside) == 4


def test_the_short_block_is_another_one_in_each_epoch() -> None:
    short = {frozenset(whole(a_block_order(epoch=epoch))[96:]) for epoch in range(6)}

    assert all(len(members) == 4 for members in short)
    assert len(short) > 3

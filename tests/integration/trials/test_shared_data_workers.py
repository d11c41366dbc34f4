"""SharedDataLoader without a producer, whose own worker processes decode: ranks and samplers keep their promises."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from trials.data import SharedDataLoader
from trials.data.sharing.producer_main import SharedOrder
from trials.data.sharing.shared_data_loader import Sharing


class Numbers:
    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        return index


def with_a_worker(length: int, batch_size: int, **options: Any) -> SharedDataLoader:
    sharing = Sharing(order=SharedOrder(block_size=8))
    return SharedDataLoader(
        Numbers(length), batch_size, seed=3, sharing=sharing, num_workers=1, collate_fn=list, **options
    )


@pytest.mark.parametrize(("world", "batch_size"), [(1, 4), (3, 2)])
def test_the_rest_of_an_epoch_comes_once_with_another_number_of_ranks(world: int, batch_size: int) -> None:
    seen: list[int] = []
    states = []
    for rank in range(2):
        with with_a_worker(41, 5, rank=rank, world_size=2) as loader:
            seen.extend(itertools.chain(*itertools.islice(loader, 2)))
            states.append(loader.state_dict())

    for rank in range(world):
        with with_a_worker(41, batch_size, rank=rank, world_size=world) as loader:
            loader.load_state_dict(states[0])
            seen.extend(itertools.chain(*loader))

    assert states[0] == states[1]
    assert sorted(seen) == list(range(41))


def test_a_sampler_chooses_the_samples_and_is_resumed() -> None:
    drawn = [5, 0, 5, 39, -1, 7, 7, 1, 2]
    with with_a_worker(41, 7, sampler=drawn) as loader:
        whole = list(itertools.chain(*loader))
    with with_a_worker(41, 7, sampler=drawn) as loader:
        first = list(next(loader))
        state = loader.state_dict()
    with with_a_worker(41, 7, sampler=drawn) as loader:
        loader.load_state_dict(state)
        assert [*first, *itertools.chain(*loader)] == whole == [5, 0, 5, 39, 40, 7, 7, 1, 2]

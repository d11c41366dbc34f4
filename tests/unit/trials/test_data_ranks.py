"""Data-parallel loading: the epoch is split among the ranks, once, and goes on with another number of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DistributedSampler

from trials.data import AsyncDataLoader, SharedDataLoader
from trials.data.core.ranks import ALONE, Ranks, Share, given_ranks, known_ranks
from trials.data.sharing.producer_main import SharedOrder
from trials.data.sharing.shared_data_loader import Sharing


class Numbers:
    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        if not 0 <= index < self.length:
            raise IndexError(index)
        return index


def own(length: int, batch_size: int, rank: int | None, world_size: int | None, **options: Any) -> AsyncDataLoader:
    return AsyncDataLoader(
        Numbers(length), batch_size, shuffle=True, seed=3, rank=rank, world_size=world_size, **options
    )


def in_common(length: int, batch_size: int, rank: int | None, world_size: int | None, **options: Any) -> Any:
    sharing = Sharing(order=SharedOrder(block_size=8))
    return SharedDataLoader(
        Numbers(length), batch_size, seed=3, sharing=sharing, rank=rank, world_size=world_size, **options
    )


LOADERS = pytest.mark.parametrize("make", [own, in_common])
WORLDS = list(itertools.product((1, 2, 7, 8, 9, 23, 100), (1, 2, 3, 5), (1, 2, 3, 4)))


def lists(loader: Any) -> list[list[int]]:
    return [batch.tolist() for batch in loader]


def flat(batches: Sequence[Sequence[int]]) -> list[int]:
    return [value for batch in batches for value in batch]


@pytest.mark.parametrize(("length", "batch_size", "world"), WORLDS)
def test_every_position_belongs_to_one_rank_and_ranks_have_equally_many_batches(
    length: int, batch_size: int, world: int
) -> None:
    options: dict[str, Any] = {"length": length, "batch_size": batch_size, "drop_last": False}
    found = [list(Ranks(rank, world).shares(0, **options)) for rank in range(world)]

    positions = [position for shares in found for share in shares for position in range(share.begin, share.end)]
    assert sorted(positions) == list(range(length))
    assert [len(shares) for shares in found] == [Ranks(rank, world).batches(**options) for rank in range(world)]
    assert all(share.end - share.begin <= batch_size for shares in found for share in shares)
    if batch_size > 1 and length >= world * batch_size:
        assert len({len(shares) for shares in found}) == 1


@pytest.mark.parametrize(("length", "batch_size", "world"), WORLDS)
def test_batches_that_are_all_full_are_what_drop_last_leaves(length: int, batch_size: int, world: int) -> None:
    options: dict[str, Any] = {"length": length, "batch_size": batch_size, "drop_last": True}
    found = [list(Ranks(rank, world).shares(0, **options)) for rank in range(world)]

    assert {len(shares) for shares in found} == {length // (batch_size * world)} == {Ranks(0, world).batches(**options)}
    assert all(share.end - share.begin == batch_size for shares in found for share in shares)


def test_what_is_left_for_the_last_global_batch_is_a_sample_for_each_rank_at_least() -> None:
    shares = [list(Ranks(rank, 4).shares(0, length=17, batch_size=4, drop_last=False)) for rank in range(4)]

    assert shares[0] == [Share(0, 4, 13), Share(13, 14, 17)]
    assert shares[3] == [Share(10, 13, 13), Share(16, 17, 17)]


@LOADERS
def test_ranks_together_have_the_batches_of_one_process_with_the_global_batch_size(make: Any) -> None:
    with make(24, 12, 0, 1) as whole:
        expected = lists(whole)
    ranks = [make(24, 4, rank, 3) for rank in range(3)]

    found = [lists(loader) for loader in ranks]

    assert [flat([batches[n] for batches in found]) for n in range(2)] == expected
    assert [len(loader) for loader in ranks] == [2, 2, 2]
    for loader in ranks:
        loader.close()


@LOADERS
@pytest.mark.parametrize("after", [(1, 4), (3, 2), (5, 3)])
def test_the_rest_of_an_epoch_comes_once_with_another_number_of_ranks(make: Any, after: tuple[int, int]) -> None:
    before = [make(41, 5, rank, 2) for rank in range(2)]
    taken = [list(itertools.islice(iter(loader), 2)) for loader in before]
    states = [loader.state_dict() for loader in before]
    world, batch_size = after
    then = [make(41, batch_size, rank, world) for rank in range(world)]
    rest = []
    for loader in then:
        loader.load_state_dict(states[0])
        rest.append(lists(loader))

    assert states[0] == states[1]
    assert len(str(states[0])) < 300
    seen = flat([batch.tolist() for batches in taken for batch in batches]) + flat(flat(rest))  # type: ignore[arg-type]
    assert sorted(seen) == list(range(41))
    for loader in (*before, *then):
        loader.close()


@LOADERS
def test_the_same_ranks_go_on_with_the_batches_they_would_have_had(make: Any) -> None:
    for rank, taken in itertools.product(range(3), range(4)):
        with make(29, 4, rank, 3) as loader:
            expected = lists(loader)
        with make(29, 4, rank, 3) as loader:
            begun = iter(loader)
            first = [next(begun).tolist() for _ in range(min(taken, len(expected)))]
            state = loader.state_dict()
        with make(29, 4, rank, 3) as loader:
            loader.load_state_dict(state)
            assert [*first, *lists(loader)] == expected, (rank, taken)


@LOADERS
def test_a_world_of_the_environment_splits_the_epoch_and_world_size_1_does_not(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with make(10, 5, None, None) as loader:
        whole = lists(loader)
        loader.set_epoch(0)
        monkeypatch.setenv("RANK", "1")
        monkeypatch.setenv("WORLD_SIZE", "2")
        assert len(loader) == 1
        assert lists(loader) == whole[1:]  # a script may make its loader before it joins its world
    with make(10, 5, None, 1) as loader:
        assert lists(loader) == whole


@LOADERS
def test_a_world_of_torch_distributed_splits_the_epoch(make: Any, tmp_path: Path) -> None:
    world = tmp_path / "world"
    torch.distributed.init_process_group("gloo", init_method=f"file://{world}", rank=0, world_size=1)
    try:
        assert known_ranks({"RANK": "1", "WORLD_SIZE": "2"}) == ALONE  # what is initialised goes before variables
        with make(10, 5, None, None) as loader:
            assert len(loader) == 2
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize(
    "variables",
    [{"RANK": "two", "WORLD_SIZE": "4"}, {"RANK": "4", "WORLD_SIZE": "4"}, {"RANK": "0", "WORLD_SIZE": "-1"}],
)
def test_variables_that_name_no_rank_are_refused_by_their_names(variables: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"the variables RANK and WORLD_SIZE are whole numbers"):
        known_ranks(variables)


def test_half_a_world_in_the_environment_is_none() -> None:
    assert known_ranks({"WORLD_SIZE": "4"}) == known_ranks({"RANK": "1"}) == ALONE


@pytest.mark.parametrize(
    ("rank", "world_size", "why"),
    [
        (1, None, "goes with world_size"),
        (2, 2, "0 <= rank < world"),
        (None, 2, "not None and 2"),
        (True, 2, "not True"),
    ],
)
def test_arguments_that_name_no_rank_are_refused(rank: Any, world_size: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        given_ranks(rank, world_size)


def two_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")


@LOADERS
def test_a_distributed_sampler_is_not_split_again(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    two_ranks(monkeypatch)
    sampler: Any = DistributedSampler(Numbers(20), num_replicas=2, rank=1, shuffle=False)  # type: ignore[arg-type]
    if make is own:
        loader: Any = AsyncDataLoader(Numbers(20), 5, sampler=sampler)
    else:
        loader = in_common(20, 5, None, None, sampler=sampler)

    with loader:
        assert len(loader) == 2
        assert sorted(flat(lists(loader))) == list(range(1, 20, 2))


def test_batches_of_a_distributed_sampler_are_not_split_again(monkeypatch: pytest.MonkeyPatch) -> None:
    two_ranks(monkeypatch)
    sampler: Any = DistributedSampler(Numbers(20), num_replicas=2, rank=1, shuffle=False)  # type: ignore[arg-type]

    with AsyncDataLoader(Numbers(20), batch_sampler=BatchSampler(sampler, 5, drop_last=False)) as loader:
        assert sorted(flat(lists(loader))) == list(range(1, 20, 2))


def test_what_has_no_index_says_itself_what_a_rank_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    two_ranks(monkeypatch)

    class Stream:
        def __iter__(self) -> Iterator[int]:
            return iter(range(6))

    with AsyncDataLoader(Stream(), 3) as loader:
        assert flat(lists(loader)) == list(range(6))
    with pytest.raises(ValueError, match="says itself what each rank gets"):
        AsyncDataLoader(Stream(), 3, rank=0, world_size=2)


def test_a_sampler_beside_rank_and_world_size_is_refused() -> None:
    with pytest.raises(ValueError, match="leave one or the other out"):
        AsyncDataLoader(Numbers(4), sampler=[1, 2], rank=0, world_size=2)
    with pytest.raises(ValueError, match="leave rank, world_size and zero_copy out"):
        in_common(4, 1, 0, 2, sampler=[1, 2])

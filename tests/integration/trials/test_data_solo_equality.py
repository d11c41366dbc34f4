"""Solo equality: the bytes of a batch depend on the dataset, seed, epoch, batch size and number of the batch alone."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, Subset, WeightedRandomSampler

from tests.data_samples import (
    Augmented,
    AugmentedTogether,
    Numbers,
    OddSizes,
    Texts,
    Together,
    indices_of,
    jittered,
    reversed_batch,
    same,
)
from trials.data import AsyncDataLoader

LENGTH, BATCH = 43, 8
WAYS = [
    {"num_workers": 0},
    *(
        {"num_workers": workers, "worker_type": kind, "chunk_size": chunk}
        for workers, kind, chunk in itertools.product((1, 2, 4), ("process", "thread"), (1, 5, 30))
    ),
]
WAYS_EACH = 3  # every so manyth way is tried with a dataset: starting workers is what takes the time
DATASETS: dict[str, dict[str, Any]] = {
    "plain": {"dataset": Numbers(LENGTH)},
    "augmented by torch, NumPy and random": {"dataset": Augmented(LENGTH)},
    "transformed": {"dataset": Numbers(LENGTH), "transform": jittered},
    "augmented and transformed": {"dataset": Augmented(LENGTH), "transform": jittered},
    "collated otherwise": {"dataset": Numbers(LENGTH), "collate_fn": reversed_batch},
    "texts": {"dataset": Texts()},
    "loaded together": {"dataset": Together(LENGTH)},
    "loaded together and transformed": {"dataset": Subset(Together(100), range(LENGTH)), "transform": jittered},
    "loaded together and augmented": {"dataset": AugmentedTogether(LENGTH)},
}


def a_loader(options: dict[str, Any], **way: Any) -> AsyncDataLoader:
    return AsyncDataLoader(**{"batch_size": BATCH, "shuffle": True, "seed": 11, **options, **way})


def epochs(options: dict[str, Any], way: dict[str, Any], count: int = 2) -> list[Any]:
    with a_loader(options, **way) as loader:
        return [batch for _ in range(count) for batch in loader]


@pytest.fixture(scope="module")
def expected() -> dict[str, list[Any]]:
    return {name: epochs(options, {"num_workers": 0}) for name, options in DATASETS.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", DATASETS)
def test_no_way_of_loading_changes_a_byte(name: str, expected: dict[str, list[Any]]) -> None:
    """Each way with two of the datasets; any with any is what ``make campaigns`` draws (``tests.data_campaign``)."""
    for way in WAYS[list(DATASETS).index(name) % WAYS_EACH :: WAYS_EACH]:
        assert same(epochs(DATASETS[name], way), expected[name]), f"{name} differs with {way}"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["augmented and transformed", "collated otherwise"])
def test_a_loader_resumed_at_any_batch_goes_on_with_the_same_bytes(name: str, expected: dict[str, list[Any]]) -> None:
    whole, options = expected[name], DATASETS[name]
    way_before, way_after = itertools.cycle(WAYS), itertools.cycle(reversed(WAYS))
    for taken in range(len(whole) + 1):
        with a_loader(options, **next(way_before)) as loader:
            stream = itertools.chain.from_iterable(loader for _ in range(2))
            first = list(itertools.islice(stream, taken))
            state = loader.state_dict()
        with a_loader({**options, "seed": 0}, **next(way_after)) as loader:
            loader.load_state_dict(state)
            rest = [batch for _ in range(2 - loader.epoch) for batch in loader]

        assert same([*first, *rest], whole), f"resumed after {taken} batches"


def test_the_loaders_own_state_does_not_move_the_trials_generators() -> None:
    options = DATASETS["augmented and transformed"]
    for way in (WAYS[0], WAYS[1], WAYS[4]):
        torch.manual_seed(3)
        before = torch.get_rng_state()

        epochs(options, way)

        assert torch.equal(torch.get_rng_state(), before)


def test_with_torchs_order_the_batches_are_those_of_torchs_loader() -> None:
    generator = torch.Generator().manual_seed(5)
    sampler = RandomSampler(range(LENGTH), generator=generator)
    torchs = list(DataLoader(Numbers(LENGTH), BATCH, sampler=sampler))  # type: ignore[arg-type]  # it has what is needed

    assert same(epochs({"dataset": Numbers(LENGTH), "order": "torch", "seed": 5}, {"num_workers": 2}, 1), torchs)


@pytest.mark.parametrize("way", [WAYS[0], WAYS[5]], ids=str)
def test_a_sampler_that_draws_is_exact_too(way: dict[str, Any]) -> None:
    def sampler() -> WeightedRandomSampler:
        return WeightedRandomSampler([1.0, 2.0, 3.0, 4.0] * 10, 30)

    torch.manual_seed(1)
    first = epochs({"dataset": Numbers(40), "sampler": sampler(), "shuffle": False}, way)
    torch.manual_seed(2)
    with a_loader({"dataset": Numbers(40), "sampler": sampler(), "shuffle": False}, **way) as loader:
        start = list(itertools.islice(iter(loader), 2))
        state = loader.state_dict()
    with a_loader({"dataset": Numbers(40), "sampler": sampler(), "shuffle": False}, **way) as loader:
        loader.load_state_dict(state)
        rest = [batch for _ in range(2) for batch in loader]

    assert same([*start, *rest], first)


def batched(generator_seed: int) -> BatchSampler:
    """As it is written for torch."""
    return BatchSampler(RandomSampler(range(40), generator=torch.Generator().manual_seed(generator_seed)), 6, False)


def test_the_generator_of_a_sampler_in_a_batch_sampler_is_seeded_too() -> None:
    options: dict[str, Any] = {"dataset": Numbers(40), "shuffle": False, "batch_size": 1}
    found = [epochs({**options, "batch_sampler": batched(0)}, {"num_workers": workers}) for workers in range(3)]
    assert same(found[1], found[0])
    assert same(found[2], found[0])
    with a_loader({**options, "batch_sampler": batched(0)}) as loader:
        list(loader)
        first = list(itertools.islice(iter(loader), 2))
        state = loader.state_dict()
    with a_loader({**options, "batch_sampler": batched(0)}) as loader:
        loader.load_state_dict(state)
        resumed = [*first, *loader]

    assert sorted(indices_of(resumed)) == list(range(40)), "each once"
    assert same([*found[0][:7], *resumed], found[0])


class Lengthless:
    """A batch sampler without a length. Nobody may ask for an epoch of it at once: it might have no end."""

    def __iter__(self) -> Iterator[list[int]]:
        yield from ([number, number + 1] for number in range(30))
        raise AssertionError("it was asked to its end")


class Learning(Lengthless):
    def __len__(self) -> int:
        return 30

    def update_priorities(self, indices: Any, priorities: Any) -> None: ...


class Redrawn:
    """A batch sampler with random numbers of its own, which go on with each asking."""

    def __init__(self) -> None:
        self.random = random.Random(0)

    def __len__(self) -> int:
        return 5

    def __iter__(self) -> Iterator[Iterator[int]]:
        return iter([iter(self.random.sample(range(40), 4)) for _ in range(5)])


class Growing:
    """Its batches have no room where those of its first epoch have."""

    def __init__(self) -> None:
        self.epoch = 0

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[list[int]]:
        return iter([list(range(2 if self.epoch == 0 else 300))])

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch


def sampled(batch_sampler: Any, **way: Any) -> AsyncDataLoader:
    return AsyncDataLoader(Numbers(400), batch_sampler=batch_sampler, **way)


@pytest.mark.parametrize("make", [Lengthless, Lengthless().__iter__, Learning])
def test_with_workers_too_such_a_batch_sampler_is_asked_batch_by_batch(make: Any) -> None:
    with sampled(make(), num_workers=1) as loader:
        found = [indices.tolist() for _, indices in itertools.islice(iter(loader), 3)]

    assert found == [[0, 1], [1, 2], [2, 3]]


@pytest.mark.parametrize("make", [Redrawn, Growing])
def test_workers_ask_a_batch_sampler_as_often_as_the_calling_process_does(make: Any) -> None:
    found = []
    for workers in (0, 2):
        with sampled(make(), num_workers=workers) as loader:
            found.append([batch for _ in range(3) for batch in loader])

    assert same(found[1], found[0])


def test_a_batch_sampler_says_what_is_in_a_batch_and_is_resumed_by_batches() -> None:
    batches = [[1, 2, 3], [4], [5, 6, 7, 8], [9, 9]]
    options: dict[str, Any] = {"batch_sampler": batches, "batch_size": 1, "shuffle": False, "dataset": Numbers(40)}
    with a_loader(options, num_workers=2) as loader:
        iterator = iter(loader)
        first = [next(iterator), next(iterator)]
        state = loader.state_dict()
    with a_loader(options) as loader:
        loader.load_state_dict(state)
        rest = list(loader)

    assert [b[1].tolist() for b in [*first, *rest]] == batches
    assert state["delivered"] == 2


@pytest.mark.parametrize("way", WAYS[:8:3], ids=str)
def test_samples_of_odd_sizes_fail_or_collate_exactly_as_with_torch(way: dict[str, Any]) -> None:
    options: dict[str, Any] = {"dataset": OddSizes(), "shuffle": False, "batch_size": 2}
    torchs = DataLoader(OddSizes(), 2)  # type: ignore[arg-type]  # likewise
    found: list[Any] = []
    for batches in (iter(torchs), iter(a_loader(options, **way))):
        outcome: list[Any] = []
        for _ in range(3):
            try:
                outcome.append(next(batches))
            except RuntimeError as error:
                outcome.append("stack expects each tensor to be equal size" in str(error))
        found.append(outcome)

    assert same(found[0], found[1])


@pytest.mark.parametrize("way", WAYS[:8:3], ids=str)
def test_without_a_batch_size_samples_come_one_by_one(way: dict[str, Any]) -> None:
    options: dict[str, Any] = {"dataset": Numbers(10), "batch_size": None, "shuffle": False}

    assert same(epochs(options, way, 1), list(DataLoader(Numbers(10), batch_size=None)))  # type: ignore[arg-type]


@pytest.mark.parametrize("way", WAYS[:8:3], ids=str)
def test_a_short_last_batch_is_dropped_only_where_that_is_asked_for(way: dict[str, Any]) -> None:
    options = {"dataset": Numbers(LENGTH)}

    assert sorted(indices_of(epochs(options, way, 1))) == list(range(LENGTH))
    assert len(indices_of(epochs({**options, "drop_last": True}, way, 1))) == LENGTH // BATCH * BATCH


def test_batches_the_trial_keeps_stay_as_they_were() -> None:
    with a_loader({"dataset": Numbers(400)}, num_workers=2, chunk_size=3) as loader:
        kept = list(loader)
        copies = loader.stats()["held_copies"]

    assert copies > 30
    assert sorted(indices_of(kept)) == list(range(400))
    assert all(torch.equal(rows, Numbers(400).rows[indices]) for rows, indices in kept)


def test_another_batch_size_after_a_resume_cuts_the_rest_of_the_same_epoch() -> None:
    with a_loader({"dataset": Numbers(LENGTH)}) as loader:
        iterator = iter(loader)
        first = [next(iterator), next(iterator)]
        state = loader.state_dict()
    with a_loader({"dataset": Numbers(LENGTH), "batch_size": 5}, num_workers=1) as loader:
        loader.load_state_dict(state)
        rest = list(loader)

    assert indices_of([*first, *rest]) == indices_of(epochs({"dataset": Numbers(LENGTH)}, WAYS[0], 1))

"""Datasets that load many samples with one call (``__getitems__``), in the calling process."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, StackDataset, Subset

from tests.data_samples import (
    Augmented,
    AugmentedTogether,
    NothingSingle,
    Numbers,
    OtherAnswer,
    RaisingTogether,
    Together,
    jittered,
    same,
)
from trials.data import AsyncDataLoader, SampleError
from trials.data.workers.inline import InlineBatches
from trials.data.workers.together import loads_together


def test_a_batch_is_one_call_and_has_torchs_bytes() -> None:
    dataset = Together(10)

    batches = list(AsyncDataLoader(dataset, 4))

    assert dataset.calls == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert same(batches, list(DataLoader(Together(10), 4)))  # type: ignore[arg-type]  # it has what is needed


def test_a_batch_sampler_and_keys_of_a_sampler_are_asked_for_together_too() -> None:
    dataset = Together(10)

    list(AsyncDataLoader(dataset, batch_sampler=[[3, 1], [], [2]]))
    list(AsyncDataLoader(dataset, 2, sampler=[np.int64(5), np.int64(4)]))

    assert dataset.calls == [[3, 1], [2], [5, 4]]


def test_without_batches_nothing_is_asked_for_together() -> None:
    dataset = Together(4)

    assert [sample[2] for sample in AsyncDataLoader(dataset, None)] == [1, 1, 1, 1]
    assert dataset.calls == []


def test_a_subset_passes_it_on_where_its_dataset_has_it() -> None:
    numbers: Any = Numbers(10)
    together: Any = Together(10)

    assert loads_together(Subset(Subset(together, range(8)), [1, 2]))
    assert loads_together(StackDataset(numbers, together))
    assert loads_together(StackDataset(a=together))
    assert not loads_together(Subset(Subset(numbers, range(8)), [1, 2]))
    assert not loads_together(StackDataset(numbers, numbers))
    list(AsyncDataLoader(Subset(together, [7, 8, 9]), 2))
    assert together.calls == [[7, 8], [9]]


def test_a_dataset_that_can_only_be_asked_for_many_works_as_with_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = InlineBatches.time_of
    # What it took on a busy machine would ask for workers, which are no matter of this tier.
    monkeypatch.setattr(InlineBatches, "time_of", lambda self, items: 0.0 * measured(self, items))
    with pytest.raises(NotImplementedError):
        NothingSingle()[0]

    torchs = list(DataLoader(NothingSingle(), 8))

    assert same(list(AsyncDataLoader(NothingSingle(), 8)), torchs)
    assert same(list(AsyncDataLoader(NothingSingle(), 8, num_workers="auto")), torchs)


def test_each_sample_is_transformed_with_its_own_randomness() -> None:
    def drawn(batch_size: int) -> list[float]:
        batches = AsyncDataLoader(Together(12), batch_size, transform=jittered, seed=4)
        return [float(number) for _, numbers, _ in batches for number in numbers]

    assert drawn(4) == drawn(3)
    assert len(set(drawn(4))) == 12


def test_samples_that_draw_are_made_one_by_one_each_from_its_own_stream() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    plain = list(AsyncDataLoader(Augmented(12), 4, shuffle=True, seed=3))

    together = list(AsyncDataLoader(AugmentedTogether(12), 4, shuffle=True, seed=3))

    assert same(together, plain)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_bad_one_of_a_batch_is_named() -> None:
    loader = AsyncDataLoader(RaisingTogether(5), 4)
    next(loader)

    with pytest.raises(SampleError, match=r"sample 5 could not be loaded .*row 5 is damaged") as told:
        next(loader)
    assert told.value.index == 5
    assert next(loader)[1].tolist() == [8, 9, 10, 11]


def test_the_bad_ones_of_a_batch_are_left_out_where_that_is_asked_for() -> None:
    loader = AsyncDataLoader(RaisingTogether(5, 6), 4, on_error="skip")

    assert [batch[1].tolist() for batch in islice(loader, 3)] == [[0, 1, 2, 3], [4, 7], [8, 9, 10, 11]]
    assert loader.stats()["skipped"] == 2


def test_a_call_that_raises_though_each_sample_can_be_had_is_an_error_unless_errors_are_skipped() -> None:
    loader = AsyncDataLoader(RaisingTogether(spoilt=5), 4)
    next(loader)
    with pytest.raises(SampleError, match=r"sample 4 to 7 \(asking for them together\) .*the rows are damaged"):
        next(loader)

    skipping = AsyncDataLoader(RaisingTogether(spoilt=5), 4, on_error="skip")
    assert [batch[1].tolist() for batch in islice(skipping, 2)] == [[0, 1, 2, 3], [4, 5, 6, 7]]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "a NoneType"),
        ({"row": [1, 2]}, "a dict"),
        ("ab", "a str"),
        (iter([1, 2]), "a list_iterator"),
        ([1], "1"),
        ([1, 2, 3], "3"),
    ],
    ids=["none", "dict", "text", "iterator", "too few", "too many"],
)
@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_a_wrong_answer_is_told_whatever_is_done_with_bad_samples(answer: Any, said: str, on_error: str) -> None:
    loader = AsyncDataLoader(OtherAnswer(answer), 2, on_error=on_error)

    with pytest.raises(
        SampleError, match=rf"OtherAnswer.__getitems__ was asked for 2 samples and gave {said}: it gives a list"
    ):
        next(loader)


@pytest.mark.parametrize("answer", [(1, 2), np.array([1, 2])], ids=str)
def test_an_answer_may_be_any_sequence_of_samples(answer: Any) -> None:
    assert next(AsyncDataLoader(OtherAnswer(answer), 2)).tolist() == [1, 2]


def test_a_loader_that_has_given_nothing_yet_has_counted_nothing() -> None:
    with AsyncDataLoader(list(range(4)), 2) as loader:
        assert {name: value for name, value in loader.stats().items() if value} == {}

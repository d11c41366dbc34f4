"""The quicker way to a batch: what torch's default_collate makes, errors included."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import default_collate
from torch.utils.data._utils.collate import default_collate_fn_map as known

from tests.data_samples import same
from trials.data.core.collating import collated

Pair = namedtuple("Pair", "a b")


class Celsius:
    def __init__(self, degrees: float) -> None:
        self.degrees = degrees


BATCHES: dict[str, list[Any]] = {
    "tensors and ints": [(torch.arange(3) + row, row) for row in range(4)],
    "floats": [(0.1 * row, torch.ones(2, 2)) for row in range(4)],
    "ints and floats in a column": [(1, 2.0), (1.5, 3)],
    "ints and bools in a column": [(1,), (True,)],
    "a first bool": [(True, 1), (2, 3)],
    "ints of 64 bits": [(2**63 - 1,), (-(2**63),)],
    "NumPy's numbers": [(1, 1.0), (np.int64(2), np.float32(2.5))],
    "tensors of one number among numbers": [(1, 1.0), (torch.tensor(2), torch.tensor(2.5))],
    "arrays, strings and bytes": [(np.arange(3), "a", b"b"), (np.ones(3, dtype=np.int64), "c", b"d")],
    "tensors inside": [((torch.ones(2), 1), {"x": 2}), ((torch.zeros(2), 3), {"x": 4})],
    "named tuples": [Pair(1, 2.0), Pair(3, 4.0)],
    "lists": [[1, 2.0], [3, 4.0]],
    "dicts": [{"a": 1, "b": torch.ones(2)}, {"a": 2, "b": torch.zeros(2)}],
    "a tuple, then a list": [(1, 2.0), [3, 4.0]],
    "empty tuples": [(), ()],
    "no tuples": [torch.ones(2), torch.zeros(2)],
    "one sample": [(torch.ones(2), 1)],
}
REFUSED: dict[str, list[Any]] = {
    "several lengths": [(1, 2), (1,)],
    "no length": [(1, 2), 3],
    "too large": [(2**63,), (1,)],
    "nothing known": [(object(),), (object(),)],
    "a string among numbers": [(1,), ("a",)],
    "None among numbers": [(1.0,), (None,)],
    "tensors of several shapes": [(torch.ones(2),), (torch.ones(3),)],
    "a number among tensors": [(torch.ones(2),), (3,)],
    "no samples": [],
}


@pytest.mark.parametrize("name", BATCHES)
def test_batches_are_what_default_collate_makes(name: str) -> None:
    made, expected = collated(BATCHES[name]), default_collate(BATCHES[name])
    assert type(made) is type(expected)
    assert same(made, expected)


@pytest.mark.parametrize("name", REFUSED)
def test_what_default_collate_refuses_is_refused_in_its_words(name: str) -> None:
    with pytest.raises(Exception) as expected:  # noqa: PT011  # whatever torch raises
        default_collate(REFUSED[name])
    with pytest.raises(expected.type) as found:
        collated(REFUSED[name])
    assert str(found.value) == str(expected.value)


def test_a_batch_is_not_the_samples_memory() -> None:
    sample = (torch.ones(2), 1)
    batch = collated([sample, sample])
    batch[0].zero_()
    batch[1].zero_()
    assert sample[0].tolist() == [1, 1]
    assert batch[1].tolist() == [0, 0]


def test_types_that_a_program_added_are_collated_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def degrees(batch: Any, *, collate_fn_map: Any = None) -> Any:
        return torch.tensor([each.degrees for each in batch])

    monkeypatch.setitem(known, Celsius, degrees)
    assert same(collated([(Celsius(1.0), 2), (Celsius(3.0), 4)])[0], torch.tensor([1.0, 3.0]))


def test_a_program_that_collates_tuples_and_numbers_its_own_way_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(known, int, lambda batch, *, collate_fn_map=None: min(batch) + sum(batch[1:]))
    assert collated([(1, 2), (3, 4)]) == [4, 6]
    monkeypatch.setitem(known, tuple, lambda batch, *, collate_fn_map=None: "mine")
    assert collated([(1, 2), (3, 4)]) == "mine"

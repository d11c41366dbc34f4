"""Samples in memory: batches made of rows are what torch's default_collate makes."""

from __future__ import annotations

import pickle
from collections import OrderedDict, defaultdict, namedtuple
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import default_collate

from tests.data_samples import same
from trials.data.core.sample_layout import Layout, as_value, copied
from trials.data.workers.pickling import decode, encode
from trials.data.workers.shared_memory import SharedMemory

Pair = namedtuple("Pair", "left right")

SAMPLES: list[Any] = [
    torch.arange(6.0).reshape(2, 3),
    torch.tensor(3),
    torch.ones(2, dtype=torch.bfloat16),
    torch.tensor([True, False]),
    torch.arange(8).reshape(2, 4).t(),
    torch.zeros(0, 3),
    np.arange(4, dtype=np.int32),
    np.ones((2, 2), dtype=np.float16),
    np.float32(2.5),
    np.int16(3),
    7,
    2.5,
    True,
    (torch.ones(2), 3),
    [1, [2.0, np.zeros(2)]],
    {"x": torch.ones(3), "y": {"z": 1}},
    OrderedDict(b=1, a=2.0),
    Pair(torch.zeros(2), 1),
]


def rows_of(layout: Layout, samples: list[Any]) -> Any:
    memory = np.zeros(layout.offsets(len(samples))[1], dtype=np.uint8)
    columns = layout.columns(memory, len(samples))
    for row, sample in enumerate(samples):
        values = layout.values(sample)
        assert values is not None
        for column, value in zip(columns, values, strict=True):
            column[row] = value
    return layout.batch(columns)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: type(s).__name__)
def test_rows_are_what_default_collate_makes(sample: Any) -> None:
    layout = Layout.of(sample)
    assert layout is not None

    assert same(rows_of(layout, [sample, sample, sample]), default_collate([sample, sample, sample]))


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: type(s).__name__)
def test_small_samples_are_written_at_once_with_the_same_bytes(sample: Any) -> None:
    layout = Layout.of(sample)
    assert layout is not None
    memory = np.zeros(layout.offsets(4)[1], dtype=np.uint8)
    columns = layout.columns(memory, 4)

    assert layout.write_rows([sample], columns, 0)
    assert layout.write_rows([sample, sample, sample], columns, 1)

    assert same(layout.batch(columns), default_collate([sample] * 4))


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: type(s).__name__)
def test_a_sample_is_made_again_of_its_row(sample: Any) -> None:
    layout = Layout.of(sample)
    assert layout is not None
    memory = np.zeros(layout.offsets(1)[1], dtype=np.uint8)
    columns = layout.columns(memory, 1)
    assert layout.write_rows([sample], columns, 0)

    again = layout.rebuilt([as_value(column[0], leaf) for column, leaf in zip(columns, layout.leaves, strict=True)])

    assert same(default_collate([again]), default_collate([sample]))


@pytest.mark.parametrize(
    "sample",
    [
        "text",
        b"bytes",
        None,
        {"x": "text"},
        torch.ones(2, requires_grad=True),
        torch.ones(2).to_sparse(),
        np.array(["a"]),
        np.array([object()]),
        defaultdict(int, a=1),
        np.datetime64("2020-01-01"),
        np.arange(3, dtype=">i4"),
    ],
    ids=lambda s: type(s).__name__,
)
def test_what_fits_no_layout_has_none(sample: Any) -> None:
    assert Layout.of(sample) is None


@pytest.mark.parametrize(
    ("first", "other"),
    [
        (torch.ones(3), torch.ones(2)),
        (torch.ones(3), torch.ones(3, dtype=torch.float64)),
        (torch.ones(3), np.ones(3, dtype=np.float32)),
        (torch.ones(3), torch.ones(3, requires_grad=True)),
        (np.ones(3), np.ones(3, dtype=np.int64)),
        (np.ones(3), np.ones((3, 1))),
        (1, 1.0),
        (1, True),
        ((1, 2), (1, 2, 3)),
        ((1, 2), [1, 2]),
        ({"a": 1}, {"b": 1}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"a": (1, 2)}, {"a": (1,)}),
    ],
    ids=str,
)
def test_a_sample_of_another_look_does_not_fit(first: Any, other: Any) -> None:
    layout = Layout.of(first)
    assert layout is not None
    columns = layout.columns(np.zeros(layout.offsets(2)[1], dtype=np.uint8), 2)

    assert layout.values(other) is None
    assert not layout.write_rows([first, other], columns, 0)


def test_a_number_too_large_for_its_column_does_not_fit() -> None:
    layout = Layout.of(1)
    assert layout is not None
    columns = layout.columns(np.zeros(64, dtype=np.uint8), 1)

    assert not layout.write_rows([1 << 70], columns, 0)


def test_a_batch_is_a_view_and_its_copy_is_not() -> None:
    layout = Layout.of((torch.ones(2), 1))
    assert layout is not None
    columns = layout.columns(np.zeros(layout.offsets(2)[1], dtype=np.uint8), 2)
    batch = layout.batch(columns)
    kept = copied(batch)

    columns[0][:] = 9.0

    assert batch[0].tolist() == [[9.0, 9.0], [9.0, 9.0]]
    assert kept[0].tolist() == [[0.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize("value", [*SAMPLES, "text", {"mixed": [torch.ones(3), "x", None, np.arange(3)]}], ids=str)
def test_any_value_comes_back_from_its_encoding(value: Any) -> None:
    encoded = encode(value)
    memory = np.zeros(encoded.size, dtype=np.uint8)

    assert same(decode(memory, encoded.place(memory)), value)


def test_large_arrays_stay_outside_the_pickle() -> None:
    encoded = encode({"a": torch.zeros(10_000), "b": np.zeros(10_000)})

    assert len(encoded.head) < 1000
    assert len(encoded.buffers) == 2


def test_what_cannot_be_pickled_says_so() -> None:
    with pytest.raises((pickle.PicklingError, AttributeError, TypeError)):
        encode(lambda: None)


def test_shared_memory_has_no_name_and_can_be_attached() -> None:
    memory = SharedMemory.create(10)
    memory.bytes()[:3] = 7
    other = SharedMemory.attach(memory.descriptor)

    other.bytes()[3] = 8

    assert memory.bytes(0, 5).tolist() == [7, 7, 7, 8, 0]
    memory.close()


def test_private_memory_keeps_its_writes_to_itself() -> None:
    memory = SharedMemory.create(10)
    private = SharedMemory.attach(memory.descriptor, private=True)

    private.bytes()[0] = 9

    assert memory.bytes()[0] == 0
    memory.close()

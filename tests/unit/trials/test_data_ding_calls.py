"""Calls as scripts for DI-engine write them: they work, or the error says what to write."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from trials.data import AsyncDataLoader
from trials.data.errors import LoaderClosed


class Source:
    def __init__(self, batches: int = 2) -> None:
        self.left = batches

    def __call__(self, batch_size: int) -> list[Any] | None:
        self.left -= 1
        return None if self.left < 0 else [lambda row=row: row for row in range(batch_size)]


def collated(samples: list[Any]) -> list[Any]:
    return [*samples, "collated"]


@pytest.mark.parametrize("device", ["cpu", torch.device("cpu")])
def test_a_call_by_position_has_its_device_chunk_size_and_collate_fn(device: Any) -> None:
    with AsyncDataLoader(Source(), 4, device, 2, collated, 0) as loader:
        assert list(loader) == [[0, 1, 2, 3, "collated"]] * 2


def test_a_call_by_name_has_its_data_source() -> None:
    with AsyncDataLoader(data_source=Source(), batch_size=2, device="cpu", chunk_size=1) as loader:
        assert [batch.tolist() for batch in loader] == [[0, 1], [0, 1]]


def test_next_of_the_loader_gives_batch_after_batch_and_stops_once_at_the_end_of_an_epoch() -> None:
    with AsyncDataLoader([1, 2, 3], 2) as loader:
        found = [next(loader).tolist(), next(loader).tolist()]
        with pytest.raises(StopIteration):
            next(loader)
        assert [*found, next(loader).tolist()] == [[1, 2], [3], [1, 2]]
        assert loader.epoch == 1


def test_next_of_the_loader_goes_on_with_the_iteration_under_way() -> None:
    with AsyncDataLoader([1, 2, 3]) as loader:
        iterator = iter(loader)
        assert [int(next(iterator)), int(next(loader)), int(next(iterator))] == [1, 2, 3]


def test_next_goes_on_after_a_restored_position() -> None:
    with AsyncDataLoader([1, 2, 3]) as loader:
        next(loader)
        state = loader.state_dict()
    with AsyncDataLoader([1, 2, 3]) as loader:
        loader.load_state_dict(state)
        assert int(next(loader)) == 2
    with pytest.raises(LoaderClosed):
        next(loader)


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (dict, r"AsyncDataLoader needs dataset=…, or data_source=…"),
        (lambda: {"dataset": [1], "data_source": [1]}, "two names of one thing"),
        (lambda: {"data_source": {"obs": 1}}, "a dict is no data source: write a function"),
    ],
)
def test_a_call_without_one_source_says_what_to_write(call: Any, why: str) -> None:
    with pytest.raises(TypeError, match=why):
        AsyncDataLoader(**call())


@pytest.mark.parametrize(
    ("placed", "named", "why"),
    [
        (("cpu", [1, 2]), {}, r"write torch's arguments by name: AsyncDataLoader\(dataset, batch_size, sampler=…"),
        (("cpu", None, [1]), {}, "DI-engine's collate_fn, a function"),
        (("cpu", 2), {"chunk_size": 2}, "chunk_size is given twice"),
        (("cpu",), {"device": "cpu"}, "device is given twice"),
    ],
)
def test_a_device_in_third_place_is_followed_by_what_DI_engine_has_there(  # noqa: N802  # its name
    placed: tuple[Any, ...], named: dict[str, Any], why: str
) -> None:
    with pytest.raises(TypeError, match=why):
        AsyncDataLoader([1, 2], 1, *placed, **named)


def test_a_word_in_third_place_that_is_no_device_is_refused() -> None:
    with pytest.raises(ValueError, match="device is 'cpu' or a CUDA device, not 'yes'"):
        AsyncDataLoader([1, 2], 1, "yes")


def test_a_dict_with_an_index_is_a_dataset_as_torch_has_it() -> None:
    with AsyncDataLoader({0: 5, 1: 6}) as loader:
        assert [int(batch) for batch in loader] == [5, 6]

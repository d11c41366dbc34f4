"""Positions, fingerprints, and what goes with what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Subset, TensorDataset

from tests.data_samples import Coordinator, Numbers, PlainStream, Stream
from trials.data.core.fingerprint import SAMPLED, fingerprint
from trials.data.errors import DatasetMismatch, LoaderTimeout, SampleError, StateError, WorkerDied
from trials.data.loader_options import LoaderOptions
from trials.data.loader_state import Position


def a_position(**fields: Any) -> Position:
    return Position(
        **({"dataset": "d", "seed": 1, "epoch": 2, "delivered": 3, "batch_size": 4, "order": "keyed"} | fields)
    )


def test_a_position_comes_back_from_its_state() -> None:
    position = a_position(seed=-5)

    assert Position.of_state(position.to_state(), dataset="d", order="keyed") == position


def test_a_state_of_another_dataset_names_both() -> None:
    with pytest.raises(DatasetMismatch, match="dataset d, and the loader has e"):
        Position.of_state(a_position().to_state(), dataset="e", order="keyed")


def test_a_state_of_another_order_is_refused() -> None:
    with pytest.raises(StateError, match="'keyed', and the loader has 'torch'"):
        Position.of_state(a_position().to_state(), dataset="d", order="torch")


@pytest.mark.parametrize(
    "change", [{"version": 9}, {"epoch": -1}, {"epoch": True}, {"delivered": None}, {"iteration": 0.5}], ids=str
)
def test_a_damaged_state_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(StateError):
        Position.of_state({**a_position().to_state(), **change}, dataset="d", order="keyed")


class Files:
    def __init__(self, *paths: Path) -> None:
        self.paths = list(paths)

    def __len__(self) -> int:
        return len(self.paths)


def test_a_dataset_is_told_from_others_by_class_length_and_content() -> None:
    datasets = [
        Numbers(40),
        Numbers(41),
        [1, 2, 3],
        [1, 2, 4],
        np.arange(3),
        torch.arange(3),
        TensorDataset(torch.zeros(3)),
        TensorDataset(torch.ones(3)),
        Subset(TensorDataset(torch.ones(3)), [0, 1]),
        Subset(TensorDataset(torch.ones(3)), [0, 2]),
        Files(Path("/data/a"), Path("/data/b")),
        Files(Path("/data/a"), Path("/data/c")),
    ]

    assert len({fingerprint(dataset) for dataset in datasets}) == len(datasets)


def test_a_dataset_that_moved_is_the_same() -> None:
    assert fingerprint(Files(Path("/here/a"))) == fingerprint(Files(Path("/there/a")))


def test_a_dataset_may_say_itself_which_it_is() -> None:
    class Named(Numbers):
        fingerprint = "photos of 2026"

    class Asked(Numbers):
        def fingerprint(self) -> str:
            return "photos of 2026"

    assert fingerprint(Named(4)) == fingerprint(Asked(5))


@pytest.mark.parametrize(
    ("dataset", "kind"),
    [
        (Numbers(4), "index"),
        ([1, 2], "index"),
        (Stream(), "iterable"),
        (PlainStream(), "iterable"),
        (Coordinator(1, functions=True), "source"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_a_dataset_is_follows_from_what_it_can(dataset: Any, kind: str) -> None:
    assert LoaderOptions(dataset=dataset).kind == kind


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"num_workers": -1}, "num_workers is 'auto' or a number"),
        ({"num_workers": True}, "num_workers is 'auto' or a number"),
        ({"batch_sampler": [[1]], "batch_size": 4}, "batch_sampler goes alone"),
        ({"sampler": [1], "shuffle": True}, "sampler goes without shuffle"),
        ({"batch_size": 0}, "batch_size is at least 1"),
        ({"batch_size": None, "drop_last": True}, "drop_last has no meaning"),
        ({"timeout": -1}, "timeout is at least 0"),
        ({"timeout": 1}, "timeout needs workers"),
        ({"prefetch_factor": 2}, "prefetch_factor needs workers"),
        ({"prefetch_factor": 0, "num_workers": 1}, "prefetch_factor is at least 1"),
        ({"chunk_size": 0}, "chunk_size is at least 1"),
        ({"worker_type": "fiber"}, "worker_type is one of auto, process, thread"),
        ({"on_error": "ignore"}, "on_error is 'raise' or 'skip'"),
        ({"order": "sorted"}, "order"),
        ({"dataset": PlainStream(), "shuffle": True}, "has no index"),
        ({"dataset": Coordinator(1, functions=True), "batch_size": None}, "needs a batch_size"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_does_not_go_together_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        LoaderOptions(**{"dataset": Numbers(4), **options})


def test_errors_say_which_sample_which_worker_and_how() -> None:
    sample = SampleError(index=7, worker=2, cause="ValueError: bad")
    died = WorkerDied(signal_number=11, exit_code=None, indices=range(12), tries=3)
    late = LoaderTimeout(timeout_s=2, index=None, worker=None, stack="")

    assert "sample 7 could not be loaded by worker 2: ValueError: bad" in str(sample)
    assert "SIGSEGV" in str(died)
    assert "and 4 more" in str(died)
    assert "no worker had taken it up" in str(late)
    among = LoaderTimeout(timeout_s=2, index=None, worker=1, stack="", items=(4, 5))
    assert "worker 1 is at one of the samples 4, 5." in str(among)
    assert "signal 63" in str(WorkerDied(signal_number=63, exit_code=None, indices=(1,), tries=3))


@pytest.mark.parametrize("place", [0, 1, SAMPLED - 1])
def test_a_small_array_is_looked_at_item_by_item(place: int) -> None:
    one, other = np.zeros(SAMPLED, dtype=np.uint8), np.zeros(SAMPLED, dtype=np.uint8)
    other[place] = 1

    assert fingerprint(Holding(one)) != fingerprint(Holding(other))
    assert fingerprint(Holding(one)) == fingerprint(Holding(one.copy()))
    assert fingerprint(Holding(one.tolist())) != fingerprint(Holding(other.tolist()))


class Holding:
    """A dataset that holds its samples."""

    def __init__(self, samples: Any) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        return self.samples[index]

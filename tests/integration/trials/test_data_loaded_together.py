"""Datasets that load many samples with one call (``__getitems__``), by workers of both kinds."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

from tests.data_samples import (
    DeadlyTogether,
    NothingSingle,
    OtherAnswer,
    RaisingTogether,
    StuckTogether,
    Together,
    indices_of,
    same,
)
from trials.data import AsyncDataLoader, LoaderTimeout, SampleError, WorkerDied

WIDTHS = [5, 2000]  # small samples are written together, large ones row by row
WORKERS = [{"num_workers": 2, "worker_type": "process"}, {"num_workers": 2, "worker_type": "thread"}]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("way", [*WORKERS, {"num_workers": 2, "chunk_size": 3}], ids=str)
def test_each_batch_is_one_call_of_a_worker_and_has_torchs_bytes(way: dict[str, Any], width: int) -> None:
    torchs = list(DataLoader(Together(30, width), 8))  # type: ignore[arg-type]  # it has what is needed

    with AsyncDataLoader(Together(30, width), 8, **way) as loader:
        batches = list(loader)

    assert same(batches, torchs)
    assert [batch[2].tolist() for batch in batches] == [[8] * 8, [8] * 8, [8] * 8, [6] * 6]


@pytest.mark.parametrize("way", WORKERS, ids=str)
def test_a_dataset_that_can_only_be_asked_for_many_is_loaded_by_workers(way: dict[str, Any]) -> None:
    with AsyncDataLoader(NothingSingle(), 8, **way) as loader:
        assert same(list(loader), list(DataLoader(NothingSingle(), 8)))


@pytest.mark.parametrize("way", WORKERS, ids=str)
def test_the_bad_one_of_a_batch_is_named_or_left_out(way: dict[str, Any]) -> None:
    with AsyncDataLoader(RaisingTogether(5), 4, **way) as loader:
        next(loader)
        with pytest.raises(SampleError, match="row 5 is damaged") as told:
            next(loader)
        assert told.value.index == 5
        assert next(loader)[1].tolist() == [8, 9, 10, 11]
    with AsyncDataLoader(RaisingTogether(5), 4, on_error="skip", **way) as loader:
        assert [int(index) for batch in loader for index in batch[1]] == [*range(5), *range(6, 40)]
        assert loader.stats()["skipped"] == 1


@pytest.mark.parametrize("way", WORKERS, ids=str)
def test_a_call_that_raises_though_each_sample_can_be_had_is_an_error_unless_errors_are_skipped(
    way: dict[str, Any],
) -> None:
    with AsyncDataLoader(RaisingTogether(spoilt=5), 4, **way) as loader:
        next(loader)
        with pytest.raises(SampleError, match=r"4 to 7 \(asking for them together\)"):
            next(loader)
    with AsyncDataLoader(RaisingTogether(spoilt=5), 4, on_error="skip", **way) as loader:
        assert [int(index) for batch in loader for index in batch[1]] == [*range(40)]


@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize("way", WORKERS, ids=str)
def test_a_wrong_answer_is_told_whatever_is_done_with_bad_samples(way: dict[str, Any], on_error: str) -> None:
    with (
        AsyncDataLoader(OtherAnswer({"row": 1}), 4, on_error=on_error, **way) as loader,
        pytest.raises(SampleError, match=r"was asked for 4 samples and gave a dict: it gives a list"),
    ):
        next(loader)


def test_a_sample_that_kills_its_worker_is_found_among_those_loaded_together(tmp_path: Path) -> None:
    with AsyncDataLoader(DeadlyTogether(33, tmp_path), 4, num_workers=2, worker_type="process") as loader:
        batches = [next(loader) for _ in range(8)]
        with pytest.raises(WorkerDied) as told:
            next(loader)

        assert indices_of(batches) == list(range(32))
        assert told.value.signal == signal.SIGKILL
        assert told.value.indices == (33,)
        assert len(list(tmp_path.iterdir())) == 3


def test_a_timeout_names_all_that_are_loaded_together(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with AsyncDataLoader(StuckTogether(21, gate), 4, timeout=3, num_workers=1, worker_type="process") as loader:
        with pytest.raises(LoaderTimeout, match=r"worker 0 is at one of the samples 20, 21, 22, 23\.") as told:
            for _ in loader:
                pass
        gate.touch()

        assert told.value.index is None
        assert "stuck_here" in told.value.stack

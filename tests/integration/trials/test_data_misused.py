"""Loaders in ways that nobody has thought of: the same in the calling process, in processes and in threads."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.data_samples import Forking, Numbers, indices_of
from tests.forked import Child
from trials.data import AsyncDataLoader, LoaderClosed, SampleError, WorkerDied

PATIENCE_S = 60.0  # the cores are shared
WORKERS = [{"num_workers": 2, "worker_type": "process"}, {"num_workers": 2, "worker_type": "thread"}]
EVERY = [{"num_workers": 0}, *WORKERS]


class Broken:
    def __iter__(self) -> Iterator[int]:
        yield from range(5)
        raise OSError("the stream is torn")


def cannot_begin(worker: int) -> None:
    raise OSError(f"worker {worker} finds no file")


@pytest.mark.parametrize("way", EVERY, ids=str)
def test_an_empty_batch_of_a_batch_sampler_is_passed_over(way: dict[str, Any]) -> None:
    with AsyncDataLoader(Numbers(8), batch_sampler=[[1, 2], [], [3], []], **way) as loader:
        assert [list(indices_of([batch])) for batch in loader] == [[1, 2], [3]]


@pytest.mark.parametrize("way", EVERY, ids=str)
def test_a_batch_sampler_of_single_indices_is_told_so(way: dict[str, Any]) -> None:
    with (
        AsyncDataLoader(Numbers(8), batch_sampler=[1, 2], **way) as loader,
        pytest.raises(TypeError, match="the batch sampler gave 1 as batch 0: each of its batches is a list"),
    ):
        next(loader)


@pytest.mark.parametrize("way", EVERY, ids=str)
def test_an_iterable_that_raises_ends_no_epoch_in_silence_also_where_errors_are_skipped(way: dict[str, Any]) -> None:
    with AsyncDataLoader(Broken(), 2, on_error="skip", **way) as loader:
        assert [next(loader).tolist(), next(loader).tolist()] == [[0, 1], [2, 3]]
        with pytest.raises(SampleError, match=r"sample 5 could not be loaded .*the stream is torn"):
            next(loader)


@pytest.mark.parametrize("way", EVERY, ids=str)
def test_an_error_calls_a_sample_by_its_key(way: dict[str, Any]) -> None:
    with (
        AsyncDataLoader({"a": 1, "b": 2}, 1, sampler=["a", "x"], **way) as loader,
        pytest.raises(SampleError, match="sample x could not be loaded") as told,
    ):
        list(loader)
    assert told.value.index == "x"


def test_workers_whose_init_raises_are_told_apart_from_a_bad_sample(capfd: pytest.CaptureFixture[str]) -> None:
    with (
        AsyncDataLoader(Numbers(8), 2, num_workers=1, worker_type="process", worker_init_fn=cannot_begin) as loader,
        pytest.raises(WorkerDied, match="a worker ended because worker_init_fn raised; so it was 3 times in a row"),
    ):
        next(loader)
    assert "OSError: worker 0 finds no file" in capfd.readouterr().err


@pytest.mark.parametrize("way", WORKERS, ids=str)
def test_a_fork_of_the_trial_waits_for_no_worker_of_it_and_has_its_own(way: dict[str, Any], tmp_path: Path) -> None:
    with AsyncDataLoader(Numbers(8), 2, **way) as loader:
        batches = iter(loader)
        assert indices_of([next(batches)]) == [0, 1]

        def work() -> None:
            with pytest.raises(LoaderClosed, match="this process was forked from process"):
                next(batches)
            assert indices_of(list(loader)) == list(range(8))
            loader.close()

        child = Child(work, tmp_path / "output")
        try:
            assert child.wait(PATIENCE_S)
        finally:
            child.end()
        assert child.code == 0, (tmp_path / "output").read_text()
        assert indices_of(list(batches)) == list(range(2, 8))


@pytest.mark.parametrize("server", [False, True], ids=["worker", "fork server"])
def test_a_killed_worker_is_replaced_though_a_process_that_the_dataset_forked_holds_its_channel(
    server: bool, tmp_path: Path
) -> None:
    dataset = Forking(5, tmp_path, server=server)
    try:
        with AsyncDataLoader(dataset, 4, num_workers=1, worker_type="process", timeout=PATIENCE_S) as loader:
            assert indices_of(list(loader)) == list(range(40))
    finally:
        os.kill(int(dataset.left.read_text()), signal.SIGKILL)

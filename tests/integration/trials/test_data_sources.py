"""Sources without an index: iterables, and data sources that hand out samples or functions."""

from __future__ import annotations

import itertools
import os
import zlib
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.data_samples import Coordinator, PlainStream, Stream, jittered, same
from tests.waiting import wait_until
from trials.data import AsyncDataLoader, BrokenReferenceError, Reference, SampleError, references

WAYS: list[dict[str, Any]] = [{"num_workers": 0}, {"num_workers": 1}, {"num_workers": 3}]


def drawn(loader: AsyncDataLoader, count: int | None = None) -> list[Any]:
    return list(itertools.islice(iter(loader), count))


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("make", [Stream, PlainStream])
def test_an_iterable_is_resumed_after_the_batch_delivered_last(way: dict[str, Any], make: Any) -> None:
    with AsyncDataLoader(make(30), 4, transform=jittered, **way) as loader:
        whole = drawn(loader)
    for taken in (0, 1, 3, 7):
        with AsyncDataLoader(make(30), 4, transform=jittered, **way) as loader:
            first = drawn(loader, taken)
            state = loader.state_dict()
        with AsyncDataLoader(make(30), 4, transform=jittered, num_workers=1) as loader:
            loader.load_state_dict(state)
            assert same([*first, *drawn(loader)], whole), f"after {taken}"
    assert len(whole) == 8


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_an_iterable_is_read_anew_in_each_epoch(way: dict[str, Any]) -> None:
    with AsyncDataLoader(PlainStream(10), 4, drop_last=True, **way) as loader:
        assert [[b.tolist() for b in loader] for _ in range(2)] == [[[0, 1, 2, 3], [4, 5, 6, 7]]] * 2


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_an_iterable_that_raises_names_the_sample_after_the_good_batches(way: dict[str, Any]) -> None:
    with AsyncDataLoader(PlainStream(30, bad=9), 4, **way) as loader:
        iterator = iter(loader)
        assert [next(iterator).tolist() for _ in range(2)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
        with pytest.raises(SampleError, match="line 9 is damaged") as raised:
            next(iterator)
        assert raised.value.index == 9


def test_a_killed_worker_reads_an_iterable_on_from_where_it_was() -> None:
    with AsyncDataLoader(Stream(200), 4, num_workers=1) as loader:
        iterator = iter(loader)
        found = [next(iterator).tolist()]
        crew: Any = loader.workers.crew  # type: ignore[union-attr]  # it has workers
        wait_until(lambda: 0 in crew.pids, 60)
        os.kill(crew.pids[0], 9)
        found += [batch.tolist() for batch in iterator]

    assert list(itertools.chain.from_iterable(found)) == list(range(200))


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("functions", [True, False])
def test_a_data_source_is_asked_batch_by_batch_until_it_has_no_more(way: dict[str, Any], functions: bool) -> None:
    source = Coordinator(5, functions=functions)
    with AsyncDataLoader(source, 4, **way) as loader:
        found = [int(value) for batch in loader for value in batch[:, 0]]

    assert found == [n**2 for n in range(20)]
    assert source.asked == [4] * 5


def test_functions_of_a_data_source_are_run_by_workers() -> None:
    with AsyncDataLoader(Coordinator(2, functions=True), 4, num_workers=1) as loader:
        pids = {int(pid) for batch in loader for pid in batch[:, 1]}

    assert pids
    assert os.getpid() not in pids


def test_a_data_source_is_asked_for_no_more_than_may_be_ahead() -> None:
    source = Coordinator(100, functions=True)
    with AsyncDataLoader(source, 2, num_workers=1, prefetch_factor=2) as loader:
        drawn(loader, 5)

    assert 5 <= len(source.asked) <= 5 + 2


def test_priorities_learnt_go_back_to_who_wants_them() -> None:
    source = Coordinator(5, functions=False)
    with AsyncDataLoader(source, 4) as loader:
        loader.update_priorities([1, 2], [0.5, 0.25])
    with AsyncDataLoader([1, 2, 3], 1) as plain, pytest.raises(TypeError, match="update_priorities"):
        plain.update_priorities([1], [0.5])

    assert source.priorities == {1: 0.5, 2: 0.25}


# ── references ──────────────────────────────────────────────────────────────────────────────────
def written(path: Path, value: Any, *, compressor: str = "none") -> Path:
    torch.save(value, path)
    if compressor == "zlib":
        path.write_bytes(zlib.compress(path.read_bytes()))
    return path


def test_a_reference_loads_and_cuts_a_trajectory_with_what_its_coordinator_said(tmp_path: Path) -> None:
    steps = [{"reward": torch.tensor(float(n))} for n in range(6)]
    written(tmp_path / "game-1", steps, compressor="zlib")
    metas = [
        {"data_id": "game-1", "compressor": "zlib", "unroll_len": 2, "unroll_split_begin": 3, "priority": 0.5},
        {"data_id": "game-1", "compressor": "zlib", "unroll_len": 1, "unroll_split_begin": 5},
    ]

    two, one = (reference() for reference in references(metas, folder=tmp_path))

    assert [float(step["reward"]) for step in two] == [3.0, 4.0]
    assert two[0]["priority"] == 0.5
    assert float(one["reward"]) == 5.0


def test_a_torn_or_missing_file_is_an_error_that_names_it_in_its_place(tmp_path: Path) -> None:
    torn = written(tmp_path / "torn", {"x": torch.ones(100)})
    torn.write_bytes(torn.read_bytes()[:-50])
    good = written(tmp_path / "good", {"x": torch.ones(100)})
    batches = iter([[Reference(path=good)] * 2, [Reference(path=good), Reference(path=torn)]])

    with AsyncDataLoader(lambda _: next(batches, None), 2, num_workers=1) as loader:
        iterator = iter(loader)
        assert next(iterator)["x"].shape == (2, 100)
        with pytest.raises(SampleError, match=r"torn could not be read in 5 tries") as raised:
            next(iterator)
    assert isinstance(raised.value.__cause__, BrokenReferenceError)
    with pytest.raises(BrokenReferenceError, match="away"):
        Reference(path=tmp_path / "away")()


def test_a_trajectory_too_short_for_its_cut_says_so(tmp_path: Path) -> None:
    path = written(tmp_path / "short", [{"x": 1}, {"x": 2}])

    with pytest.raises(BrokenReferenceError, match="has 2 steps, and steps 1 to 4"):
        Reference(path=path, unroll_len=3, unroll_split_begin=1)()


def test_an_unknown_compressor_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'none', 'zlib' or 'lz4', not 'rar'"):
        Reference(path=tmp_path / "x", compressor="rar")()

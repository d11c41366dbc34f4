"""Saving and restoring by files: nothing is believed whose digest does not match."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.simulated_disk import SimulatedDisk
from trials.checkpoints import stores, verified_files
from trials.checkpoints.file_format import BLOCK_BYTES, Image, Imaging, _Memory, read_image
from trials.checkpoints.restoring import restored
from trials.checkpoints.stores import AloneCheckpoints, AttemptCheckpoints, CheckpointStore, Entry, first_intact
from trials.checkpoints.verified_files import DIRECT_FROM_BYTES, digest_of, write_image
from trials.session import open_trial
from trials.wire.records import CheckpointRecord


def saved(store: CheckpointStore, state: Any, step: int) -> CheckpointRecord:
    return store.write(Imaging().capture(state, step=step))


def written(folder: Path, state: Any, step: int) -> CheckpointRecord:
    return write_image(folder, Imaging().capture(state, step=step))


def restore(store: CheckpointStore, damaged: list[Entry] | None = None) -> Any:
    found = restored(lambda: first_intact(store.entries(), on_damaged=(damaged if damaged is not None else []).append))
    return None if found is None else (found.step, found.state)


def offered(folder: Path, *records: CheckpointRecord) -> None:
    """As the agent lays them out for the next attempt."""
    target = folder / "restore"
    target.mkdir()
    for record in records:
        (target / record.name).write_bytes((folder / "checkpoints" / record.name).read_bytes())
    entries = [{"file": r.name, "digest": r.digest, "step": r.step} for r in records]
    (target / "restore.json").write_text(json.dumps({"checkpoints": entries}))


def test_a_checkpoint_is_named_by_step_and_digest(tmp_path: Path) -> None:
    record = saved(AttemptCheckpoints(tmp_path), {"epoch": 1}, 7)
    path = tmp_path / "checkpoints" / record.name

    assert (record.step, record.size, record.digest) == (7, path.stat().st_size, digest_of(path))
    assert [file.name for file in (tmp_path / "checkpoints").iterdir()] == [record.name]


def test_a_large_checkpoint_goes_past_the_page_cache_and_is_the_same(tmp_path: Path) -> None:
    weights = np.arange(2_000_000, dtype=np.float32)
    record = written(tmp_path, {"w": weights, "step": 1}, 1)
    path = tmp_path / record.name

    assert (record.size, record.digest) == (path.stat().st_size, digest_of(path))
    assert record.size % 4096 == 0
    np.testing.assert_array_equal(read_image(path).state["w"], weights)


def test_the_generators_go_on_where_they_were(tmp_path: Path) -> None:
    random.gauss(0, 1)  # leaves a second value behind, which is state, too
    np.random.seed(3)
    record = written(tmp_path, {}, 0)
    drawn = [random.gauss(0, 1), random.random(), np.random.rand(), np.random.randn()]

    read_image(tmp_path / record.name)

    assert [random.gauss(0, 1), random.random(), np.random.rand(), np.random.randn()] == drawn


@pytest.mark.parametrize("place", [0, 30, -3, -5_000])
def test_the_newest_intact_checkpoint_is_used_and_a_damaged_one_set_aside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], place: int
) -> None:
    store, told = AttemptCheckpoints(tmp_path), list[Entry]()
    weights = np.ones(10_000)
    old, new = saved(store, {"n": 1, "w": weights}, 1), saved(store, {"n": 2, "w": weights}, 2)
    offered(tmp_path, new, old)
    damaged = tmp_path / "restore" / new.name
    data = bytearray(damaged.read_bytes())
    data[place] ^= 1
    damaged.write_bytes(data)

    step, state = restore(store, told)

    assert (step, state["n"]) == (1, 1)
    assert damaged.with_name(f"{new.name}.corrupt").exists()
    assert "its digest differs" in capsys.readouterr().err
    assert [(entry["step"], entry["digest"]) for entry in told] == [(2, new.digest)]


def test_a_truncated_checkpoint_is_set_aside(tmp_path: Path) -> None:
    store = AttemptCheckpoints(tmp_path)
    record = saved(store, {"w": np.ones(10_000)}, 1)
    offered(tmp_path, record)
    path = tmp_path / "restore" / record.name
    path.write_bytes(path.read_bytes()[:-4096])

    assert restore(store) is None
    assert path.with_name(f"{record.name}.corrupt").exists()


def test_without_an_intact_checkpoint_there_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, told = AttemptCheckpoints(tmp_path), list[Entry]()
    assert restore(store) is None
    record = saved(store, {}, 1)
    offered(tmp_path, record)
    (tmp_path / "restore" / record.name).unlink()

    assert restore(store, told) is None
    assert "begins anew" in capsys.readouterr().err
    assert told == []  # it is gone, not damaged


def test_what_the_agent_found_out_is_said_and_told_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "restore").mkdir()
    problem = {"file": "", "digest": "d", "step": 3, "problem": "it is damaged", "damaged": True}
    (tmp_path / "restore" / "restore.json").write_text(json.dumps({"checkpoints": [problem]}))
    told: list[Entry] = []

    assert restore(AttemptCheckpoints(tmp_path), told) is None
    assert [entry["digest"] for entry in told] == ["d"]
    assert "checkpoint of step 3 is not used: it is damaged" in capsys.readouterr().err


def test_the_same_step_saved_again_replaces_no_file(tmp_path: Path) -> None:
    first, second = written(tmp_path, {"n": 1}, 1), written(tmp_path, {"n": 2}, 1)

    assert first.name != second.name
    assert digest_of(tmp_path / first.name) == first.digest


@pytest.mark.parametrize("rate", [0.1, float("nan")])
def test_a_script_alone_keeps_the_newest_few_for_its_own_parameters(tmp_path: Path, rate: float) -> None:
    folder = tmp_path / "checkpoints"
    store = AloneCheckpoints(folder, {"lr": rate})
    for step in range(5):
        saved(store, {"step": step}, step)

    assert restore(AloneCheckpoints(folder, {"lr": rate})) == (4, {"step": 4})
    assert len(list(folder.glob("*.ckpt"))) == 3
    assert restore(AloneCheckpoints(folder, {"lr": 0.2})) is None


def test_what_a_script_alone_has_saved_is_found_after_a_power_loss(tmp_path: Path) -> None:
    """Also the fourth, which takes the place of the first."""
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    with SimulatedDisk(folder) as disk:
        for step in range(4):
            saved(AloneCheckpoints(folder, {}), {"step": step}, step)
            for kept_names in (True, False):
                found = disk.after_power_loss(tmp_path / "found", kept_names=kept_names)
                assert restore(AloneCheckpoints(found, {})) == (step, {"step": step})


def test_a_script_alone_leaves_those_of_other_parameters_alone(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    first, second = (AloneCheckpoints(folder, {"lr": rate}) for rate in (0.1, 0.2))
    random.seed(1)
    same = saved(first, {"step": 0}, 0)
    random.seed(1)
    assert saved(second, {"step": 0}, 0).name == same.name  # the very same file is both's
    for step in range(1, 5):
        saved(second, {"step": step}, step)

    assert restore(first) == (0, {"step": 0})
    assert restore(second) == (4, {"step": 4})
    assert len(list(folder.glob("*.ckpt"))) == 4


def test_two_scripts_alone_change_their_list_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "checkpoints"
    replace, seen = stores.replace_file, list[str]()

    def looking(path: Path, data: bytes) -> None:
        descriptor = os.open(folder, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(descriptor)
        replace(path, data)
        seen.append(path.name)

    monkeypatch.setattr(stores, "replace_file", looking)
    saved(AloneCheckpoints(folder, {}), {}, 1)
    assert seen == ["restore.json"]


@pytest.mark.parametrize(
    ("size", "direct"),
    [
        (DIRECT_FROM_BYTES, True),
        (DIRECT_FROM_BYTES + BLOCK_BYTES, True),
        (DIRECT_FROM_BYTES + 1, False),
        (DIRECT_FROM_BYTES - BLOCK_BYTES, False),
    ],
)
def test_only_a_large_file_of_whole_blocks_is_written_past_the_page_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, direct: bool
) -> None:
    asked = []

    def opened(path: Path, *, direct: bool) -> int:
        asked.append(direct)
        return os.open(path, os.O_WRONLY | os.O_CREAT)

    monkeypatch.setattr(verified_files, "_opened", opened)
    record = write_image(tmp_path, Image(step=3, parts=(bytes(size),)))

    assert asked == [direct]
    assert digest_of(tmp_path / record.name) == record.digest


def test_a_file_system_without_direct_writing_is_written_through_its_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_file, umask = os.open, os.umask(0)

    def without(path: Any, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return open_file(path, flags, mode)

    monkeypatch.setattr(os, "open", without)
    try:
        record = write_image(tmp_path, Image(step=3, parts=(bytes(DIRECT_FROM_BYTES),)))
    finally:
        os.umask(umask)

    assert digest_of(tmp_path / record.name) == record.digest
    assert (tmp_path / record.name).stat().st_mode & 0o777 == 0o644


def test_memory_of_an_image_is_used_again_until_a_larger_one_comes() -> None:
    memory = _Memory()
    first, smaller = memory.of(100, pinned=False), memory.of(50, pinned=False)
    assert (len(first), len(smaller)) == (100, 50)
    assert smaller.obj is first.obj

    larger = memory.of(5000, pinned=False)
    assert larger.obj is not first.obj


def test_a_checkpoint_of_one_process_is_not_taken_for_one_that_was_loaded_into_the_state(tmp_path: Path) -> None:
    store = AloneCheckpoints(tmp_path / "checkpoints", {})
    saved(store, {"w": np.ones(3)}, 4)
    state = {"w": np.zeros(3)}
    with pytest.raises(
        ValueError, match="of step 4 was not saved with sharded=True, so nothing is loaded into the state"
    ):
        restored(lambda: first_intact(store.entries(), on_damaged=lambda _: None), into=state)


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b"7", b'{"checkpoints": 5}', b'{"checkpoints": [3]}', b"[" * 100_000]
)
def test_a_damaged_list_of_checkpoints_is_named_with_what_to_do(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "restore.json").write_bytes(damage)
    with pytest.raises(
        ValueError, match=r"restore\.json, which lists the checkpoints, is damaged .*remove it to begin"
    ):
        AloneCheckpoints(tmp_path, {}).entries()


def test_a_script_that_changes_its_folder_saves_where_it_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(tmp_path)
    with open_trial(environ={}, arguments=[]) as trial:
        monkeypatch.chdir(elsewhere)
        trial.save_checkpoint({"n": 1}, step=3)
    monkeypatch.chdir(tmp_path)
    with open_trial(environ={}, arguments=[]) as again:
        assert again.restore() == {"n": 1}
    assert list(elsewhere.iterdir()) == []

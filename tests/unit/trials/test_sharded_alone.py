"""What several processes save together, by one that is alone: on the disk, named by digests, and its own record."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from tests.simulated_disk import SimulatedDisk
from trials.checkpoints import shards
from trials.checkpoints.shards import ShardedCheckpointError, load_sharded, save_sharded
from trials.checkpoints.stores import AloneCheckpoints
from trials.checkpoints.verified_files import MANIFEST, digest_of, problem_of
from trials.wire.records import CheckpointRecord


def a_state(value: float) -> dict[str, object]:
    return {"weights": torch.full((4, 3), value), "epoch": 2}


def test_every_file_is_on_the_disk_before_the_checkpoint_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    fsync, replace = os.fsync, os.replace

    def synced(descriptor: int) -> None:
        calls.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        fsync(descriptor)

    def replaced(source: str, target: str) -> None:
        calls.append(f"-> {Path(target).name}")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    record = save_sharded(tmp_path, a_state(0.5), step=3)

    assert record is not None
    named = calls.index(f"-> {record.name}")
    assert "__0_0.distcp" in calls[:named]
    assert any("metadata" in call for call in calls[:named])


def test_the_record_is_of_the_manifest_which_names_every_file_by_its_digest(tmp_path: Path) -> None:
    record = save_sharded(tmp_path, a_state(0.5), step=3, index=1)

    assert record is not None
    folder = tmp_path / record.name
    manifest = json.loads((folder / MANIFEST).read_bytes())
    assert set(manifest["files"]) == {".metadata", "__0_0.distcp"}
    assert {name: entry["digest"] for name, entry in manifest["files"].items()} == {
        name: digest_of(folder / name) for name in manifest["files"]
    }
    assert record.size == sum(path.stat().st_size for path in folder.iterdir())
    assert (manifest["step"], manifest["index"], problem_of(folder, record.digest)) == (3, 1, None)


@pytest.mark.parametrize("name", ["../beside", "deeper/part", "."])
def test_a_manifest_that_names_what_is_not_in_its_folder_is_damaged(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "step-3"
    (folder / "deeper").mkdir(parents=True)
    for path in (tmp_path / "beside", folder / "deeper/part"):
        path.write_bytes(b"x")
    manifest = json.dumps({"files": {name: {"digest": hashlib.sha256(b"x").hexdigest()}}}).encode()
    (folder / MANIFEST).write_bytes(manifest)

    problem = problem_of(folder, hashlib.sha256(manifest).hexdigest())
    assert problem is not None
    assert (problem.damaged, name in problem.text) == (True, True)


def test_it_is_loaded_into_the_tensors_that_are_there(tmp_path: Path) -> None:
    record = save_sharded(tmp_path, a_state(0.5), step=3, index=1)
    assert record is not None
    into = a_state(0.0)

    assert load_sharded(tmp_path / record.name, into) == (3, 1)
    assert torch.equal(into["weights"], torch.full((4, 3), 0.5))  # type: ignore[arg-type]  # a tensor


def test_what_could_not_be_loaded_without_executing_code_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        save_sharded(tmp_path, {"weights": torch.zeros(2), "made": Path("x")}, step=1)

    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_that_is_saved_again_is_as_new_as_its_record(tmp_path: Path) -> None:
    """Where torch writes the very same again, which not every version does."""

    def completed() -> CheckpointRecord:
        draft = tmp_path / ".000000003.shards"
        draft.mkdir()
        return shards._complete(draft, [({}, {})], step=3, index=0)

    first = completed()
    os.utime(tmp_path / first.name, (1, 1))
    again = completed()

    assert again.name == first.name
    assert 1 < (tmp_path / again.name).stat().st_mtime <= again.at


@pytest.mark.parametrize("was_killed", [False, True], ids=["saved once", "saved again"])
def test_what_is_said_to_be_saved_is_there_after_a_power_loss(tmp_path: Path, *, was_killed: bool) -> None:
    """Also where who saved the very same before was killed when it had its name, and nothing more was done."""
    root = tmp_path / "root"
    root.mkdir()
    left = [was_killed]

    def kill(disk: SimulatedDisk) -> None:
        if disk.events[-1].call == "rename" and disk.events[-1].path.suffix == ".shards" and left.pop():
            raise KeyboardInterrupt

    def completed() -> CheckpointRecord:
        draft = root / ".000000003.shards"
        draft.mkdir()
        return shards._complete(draft, [({}, {})], step=3, index=0)

    with SimulatedDisk(root, at_every_event=kill) as disk:
        if was_killed:
            with pytest.raises(KeyboardInterrupt):
                completed()
        record = completed()
        found = disk.after_power_loss(tmp_path / "found", kept_names=False)

    assert problem_of(found / record.name, record.digest) is None


def test_the_newest_of_a_script_that_runs_alone_is_listed_first(tmp_path: Path) -> None:
    store = AloneCheckpoints(tmp_path / "kept", {"lr": 0.1})
    records = [store.write_sharded(a_state(step), step=step, index=0, before=lambda: None) for step in (1, 2)]

    assert None not in records
    assert [entry["digest"] for entry in store.entries()] == [record.digest for record in reversed(records) if record]
    assert AloneCheckpoints(tmp_path / "kept", {"lr": 0.2}).entries() == []


def test_a_folder_that_cannot_be_made_is_told_as_a_checkpoint_that_was_not_saved(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises((ShardedCheckpointError, OSError)):
        save_sharded(tmp_path / "file", a_state(0.5), step=3)


class OneOfTwo(shards.Ranks):
    """A rank, of which ``said`` is what the other one is told; the other one has no trouble, or ``trouble``."""

    rank_is = 1
    said: ClassVar[list[Any]] = []
    trouble: ClassVar[tuple[Any, ...]] = (None, "", False)

    def __init__(self) -> None:
        super().__init__()
        self.is_distributed, self.rank, self.count = True, self.rank_is, 2

    def _gathered(self, value: Any) -> list[Any]:
        self.said.append(value)
        return [self.trouble, value]


@pytest.fixture
def one_of_two(monkeypatch: pytest.MonkeyPatch) -> type[OneOfTwo]:
    class Own(OneOfTwo):
        said: ClassVar[list[Any]] = []

    monkeypatch.setattr(shards, "Ranks", Own)
    return Own


def test_what_one_rank_alone_could_not_save_is_told_to_the_others(one_of_two: type[OneOfTwo], tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"rank 1: the state holds pathlib\.[\w.]*Path"):
        save_sharded(tmp_path, {"made": Path("x")}, step=1)

    assert len(one_of_two.said) == 1
    assert list(tmp_path.iterdir()) == []


def test_what_a_rank_has_to_do_first_fails_on_all_and_nothing_is_written(
    one_of_two: type[OneOfTwo], tmp_path: Path
) -> None:
    def before() -> None:
        raise RuntimeError("the one before was not saved")

    with pytest.raises(ShardedCheckpointError, match="rank 1: RuntimeError: the one before was not saved"):
        save_sharded(tmp_path, a_state(0.5), step=1, before=before)

    assert len(one_of_two.said) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [MemoryError("none left"), RuntimeError("the device is lost"), OSError("bad disk")])
def test_whatever_fails_on_one_rank_fails_on_all(one_of_two: type[OneOfTwo], error: Exception) -> None:
    def work() -> None:
        raise error

    with pytest.raises(ShardedCheckpointError, match=f"rank 1: .*{error}") as raised:
        one_of_two().agree(work)

    assert raised.value.__cause__ is error
    assert len(one_of_two.said) == 1


@pytest.mark.parametrize(("is_of_type", "kind"), [(True, TypeError), (False, ShardedCheckpointError)])
def test_what_failed_on_another_rank_fails_here(
    one_of_two: type[OneOfTwo], monkeypatch: pytest.MonkeyPatch, is_of_type: bool, kind: type[Exception]
) -> None:
    monkeypatch.setattr(one_of_two, "trouble", (None, "rank 0: no", is_of_type))

    with pytest.raises(kind, match="rank 0: no"):
        one_of_two().agree(lambda: None)


def test_a_manifest_that_one_rank_cannot_read_is_told_to_the_others(one_of_two: type[OneOfTwo], tmp_path: Path) -> None:
    with pytest.raises(ShardedCheckpointError, match=r"rank 1: .*No such file"):
        load_sharded(tmp_path, a_state(0.5))

    assert len(one_of_two.said) == 1

"""What several processes save together, by one that is alone: on the disk, named by digests, and its own record."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

from trials.checkpoints.shards import ShardedCheckpointError, load_sharded, save_sharded
from trials.checkpoints.stores import AloneCheckpoints
from trials.checkpoints.verified_files import MANIFEST, digest_of, problem_of


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


def test_the_newest_of_a_script_that_runs_alone_is_listed_first(tmp_path: Path) -> None:
    store = AloneCheckpoints(tmp_path / "kept", {"lr": 0.1})
    records = [store.write_sharded(a_state(step), step=step, index=0) for step in (1, 2)]

    assert None not in records
    assert [entry["digest"] for entry in store.entries()] == [record.digest for record in reversed(records) if record]
    assert AloneCheckpoints(tmp_path / "kept", {"lr": 0.2}).entries() == []


def test_a_folder_that_cannot_be_made_is_told_as_a_checkpoint_that_was_not_saved(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises((ShardedCheckpointError, OSError)):
        save_sharded(tmp_path / "file", a_state(0.5), step=3)

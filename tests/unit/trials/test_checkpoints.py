from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trials.checkpoints import AloneCheckpoints, AttemptCheckpoints, digest_of, read_checkpoint, write_checkpoint
from trials.protocol import CheckpointRecord


def offered(folder: Path, *records: CheckpointRecord) -> None:
    """As the agent lays them out for the next attempt."""
    restore = folder / "restore"
    restore.mkdir()
    for record in records:
        (restore / record.name).write_bytes((folder / "checkpoints" / record.name).read_bytes())
    entries = [{"file": r.name, "digest": r.digest, "step": r.step} for r in records]
    (restore / "restore.json").write_text(json.dumps({"checkpoints": entries}))


def test_a_checkpoint_is_named_by_step_and_digest(tmp_path: Path) -> None:
    record = AttemptCheckpoints(tmp_path).save({"epoch": 1}, 7)
    path = tmp_path / "checkpoints" / record.name

    assert (record.step, record.size, record.digest) == (7, path.stat().st_size, digest_of(path))
    assert [file.name for file in (tmp_path / "checkpoints").iterdir()] == [record.name]


@pytest.mark.parametrize("state", [{"a": [1, 2.5, None, "x", True], "b": {"c": float("inf")}}, b"\0bytes\n", "text", 3])
def test_a_state_is_read_back_as_it_was(tmp_path: Path, state: Any) -> None:
    record = write_checkpoint(tmp_path, state, 1)

    restored = read_checkpoint(tmp_path / record.name)

    assert (restored.state, restored.step) == (state, 1)
    assert type(restored.state) is type(state)


def test_the_generators_go_on_where_they_were(tmp_path: Path) -> None:
    random.gauss(0, 1)  # leaves a second value behind, which is state, too
    np.random.seed(3)
    record = write_checkpoint(tmp_path, {}, 0)
    drawn = [random.gauss(0, 1), random.random(), np.random.rand(), np.random.randn()]

    read_checkpoint(tmp_path / record.name)

    assert [random.gauss(0, 1), random.random(), np.random.rand(), np.random.randn()] == drawn


def test_the_newest_intact_checkpoint_is_used_and_a_damaged_one_set_aside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = AttemptCheckpoints(tmp_path)
    old, new = store.save({"n": 1}, 1), store.save({"n": 2}, 2)
    offered(tmp_path, new, old)
    damaged = tmp_path / "restore" / new.name
    data = bytearray(damaged.read_bytes())
    data[-3] ^= 1
    damaged.write_bytes(data)

    restored = store.restore()

    assert restored is not None
    assert restored.state == {"n": 1}
    assert damaged.with_name(f"{new.name}.corrupt").exists()
    assert "its digest differs" in capsys.readouterr().err


def test_without_an_intact_checkpoint_there_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = AttemptCheckpoints(tmp_path)
    assert store.restore() is None
    record = store.save({}, 1)
    offered(tmp_path, record)
    (tmp_path / "restore" / record.name).unlink()

    assert store.restore() is None
    assert "begins anew" in capsys.readouterr().err


def test_the_same_step_saved_again_replaces_no_file(tmp_path: Path) -> None:
    first, second = write_checkpoint(tmp_path, {"n": 1}, 1), write_checkpoint(tmp_path, {"n": 2}, 1)

    assert first.name != second.name
    assert digest_of(tmp_path / first.name) == first.digest


def test_a_script_alone_keeps_the_newest_few_for_its_own_parameters(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    store = AloneCheckpoints(folder, {"lr": 0.1})
    for step in range(5):
        store.save({"step": step}, step)

    restored = AloneCheckpoints(folder, {"lr": 0.1}).restore()
    assert restored is not None
    assert restored.state == {"step": 4}
    assert len(list(folder.glob("*.ckpt"))) == 3
    assert AloneCheckpoints(folder, {"lr": 0.2}).restore() is None

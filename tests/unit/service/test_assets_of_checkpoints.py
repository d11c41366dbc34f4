"""A checkpoint becomes an asset with the bytes that were saved, or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.forked import Child
from tuner_service.domain.errors import ConflictError
from tuner_service.domain.trial import Checkpoint
from tuner_service.service.assets.asset_store import AssetStore
from tuner_service.service.assets.checkpoints import asset_of_checkpoint

FILES = {"__0_0.distcp": b"a shard" * 100, "__1_0.distcp": b"another shard" * 100}
MANIFEST = json.dumps(
    {"files": {n: {"digest": hashlib.sha256(data).hexdigest()} for n, data in FILES.items()}}
).encode()


def saved(folder: Path, manifest: bytes = MANIFEST) -> Checkpoint:
    """One of several files, in a checkpoint store."""
    folder.mkdir()
    for name, data in {**FILES, "manifest.json": manifest}.items():
        (folder / name).write_bytes(data)
    return Checkpoint(
        experiment_id="8f3k2",
        number=3,
        attempt=1,
        nonce="n",
        sequence=1,
        step=5,
        name="a.ckpt",
        digest=hashlib.sha256(manifest).hexdigest(),
        size=1,
        inline=False,
        location=str(folder),
    )


def test_what_a_killed_service_has_copied_of_one_goes_with_the_next_start(tmp_path: Path) -> None:
    checkpoint = saved(tmp_path / "saved")
    store = AssetStore(str(tmp_path / "assets"), home=tmp_path, lineage="mine")
    store.begin_staging()
    assets: Any = SimpleNamespace(store=store)

    def work() -> None:
        sys.addaudithook(lambda event, _: os.kill(os.getpid(), signal.SIGKILL) if event == "os.chmod" else None)
        asset_of_checkpoint(None, assets, checkpoint)  # type: ignore[arg-type]  # nothing of it is in the database

    child = Child(work, tmp_path / "output")
    assert child.wait(60)
    assert child.code == -signal.SIGKILL, (tmp_path / "output").read_text()
    assert copies_in(tmp_path / "assets")

    store.begin_staging()

    assert not copies_in(tmp_path / "assets")


def copies_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.name in FILES]


def committed(tmp_path: Path, checkpoint: Checkpoint) -> tuple[Any, str]:
    """What becomes of it with a store of assets that has nothing yet."""
    uploads = SimpleNamespace(commit=lambda new: (SimpleNamespace(id="sha256:x"), None, new))
    store = SimpleNamespace(staging=tmp_path / "assets" / "staging", home=tmp_path, settle_staging=lambda: None)
    assets: Any = SimpleNamespace(store=store, uploads=uploads)
    queries: Any = None  # nothing of it is in the database
    return asset_of_checkpoint(queries, assets, checkpoint)


def test_one_of_several_files_that_is_intact_becomes_an_asset(tmp_path: Path) -> None:
    assert committed(tmp_path, saved(tmp_path / "saved")) == ("sha256:x", "")


def test_one_in_a_home_that_was_moved_since_becomes_an_asset(tmp_path: Path) -> None:
    place = "nodes/checkpoints/8f3k2/3/1-n/a.ckpt"
    (tmp_path / place).parent.mkdir(parents=True)
    checkpoint = replace(saved(tmp_path / place), location=f"/before/{place}")

    assert committed(tmp_path, checkpoint) == ("sha256:x", "")


@pytest.mark.parametrize("damage", ["flipped", "cut", "removed"])
def test_one_of_several_files_of_which_one_is_damaged_becomes_none(tmp_path: Path, damage: str) -> None:
    checkpoint, part = saved(tmp_path / "saved"), tmp_path / "saved" / "__1_0.distcp"
    if damage == "removed":
        part.unlink()
    else:
        part.write_bytes(b"b" + part.read_bytes()[1:] if damage == "flipped" else part.read_bytes()[:-1])

    with pytest.raises(ConflictError, match=r"its file __1_0\.distcp is not what"):
        committed(tmp_path, checkpoint)


@pytest.mark.parametrize("manifest", [b"[]", b'{"files": []}', b'{"files": {"a": 1}}', b"\xff"])
def test_one_whose_manifest_is_none_becomes_none(tmp_path: Path, manifest: bytes) -> None:
    with pytest.raises(ConflictError, match=r"its file manifest\.json is not what"):
        committed(tmp_path, saved(tmp_path / "saved", manifest))


def test_a_manifest_is_read_no_further_than_one_can_be_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial saves what it likes by this name, and the service has it in memory."""
    for module in ("trials.wire.shards", "tuner_service.service.assets.checkpoints"):
        monkeypatch.setattr(f"{module}.MANIFEST_BYTES", len(MANIFEST) - 1)

    with pytest.raises(ConflictError, match=r"its file manifest\.json is not what"):
        committed(tmp_path, saved(tmp_path / "saved"))

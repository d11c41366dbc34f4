"""A service starts where its asset store cannot be used, and uses it once it can be."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.asset_trees import a_tree
from tests.memory_assets import MemoryAssets
from tests.unit.service.test_collecting_beside_uploads import Clock, Rows, described
from tuner_service import wiring
from tuner_service.config import Settings
from tuner_service.domain.errors import UnavailableError
from tuner_service.service.assets.asset_store import AssetStore
from tuner_service.service.assets.uploads import Uploads


def test_a_store_that_is_away_at_the_start_is_begun_before_what_is_staged_there_is_believed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What was staged before a power loss may be empty files by now."""
    mount, tree = tmp_path / "mnt", a_tree()
    rows: Any = Rows()
    mount.touch()  # no folder can be made there
    store = AssetStore(str(mount / "assets"), home=tmp_path, lineage="one")

    store.begin()
    assert "asset_store_unusable" in caplog.text
    uploads = Uploads(store, rows, Clock())
    with pytest.raises(UnavailableError, match="the asset store cannot be used now"):
        uploads.missing(described(tree), after=0)

    mount.unlink()
    store.staging.mkdir(parents=True)
    (store.staging / tree.id).write_bytes(bytes(len(tree.manifest)))
    assert set(uploads.missing(described(tree), after=0).pieces) == {tree.described["pieces"][0]}

    (store.staging / tree.id).write_bytes(tree.manifest)
    assert set(uploads.missing(described(tree), after=0).pieces) == tree.pieces.keys() - {tree.id}
    uploads.close()


def test_a_store_that_hangs_at_the_start_keeps_no_service_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And is begun, once, before anything that comes is believed."""
    gate, begun = threading.Event(), list[str]()
    begin_staging = AssetStore.begin_staging

    def hang(self: AssetStore) -> None:
        self._is_unsettled = True
        assert gate.wait(60)
        begun.append(self.root)
        begin_staging(self)

    monkeypatch.setattr(AssetStore, "begin_staging", hang)
    monkeypatch.setattr(wiring, "ASSET_STORE_S", 0.0)
    core: Any = SimpleNamespace(store=SimpleNamespace(assets=MemoryAssets()), clock=Clock())

    late = threading.Timer(20.0, gate.set)  # where that is not so, it is seen below
    late.start()
    assets = wiring._open_assets(Settings(home=tmp_path, db="sqlite:////nowhere/tuner.db"), core)
    assert not gate.is_set()
    late.cancel()
    assert "asset_store_unusable" in caplog.text

    tree = a_tree()
    asked = threading.Thread(target=lambda: assets.uploads.missing(described(tree), after=0))
    asked.start()
    gate.set()
    asked.join(30)
    assert begun == [assets.store.root]
    assert not asked.is_alive()
    assets.close()

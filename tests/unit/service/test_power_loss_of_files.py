"""What the service has of assets, of nodes and of archives is whole after a power loss: on a disk that forgets."""

from __future__ import annotations

import argparse
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from tests.api_service import an_api_service
from tests.asset_trees import a_tree
from tests.builders import a_trial, an_attempt
from tests.simulated_disk import SimulatedDisk
from trials.wire.manifests import AssetFile, pieces_of
from tuner_service.assets.fetching import get_asset
from tuner_service.cli.verbs import token
from tuner_service.client import Client
from tuner_service.dispatcher.changes import Changes
from tuner_service.domain.trial import TrialStatus
from tuner_service.exports import archive
from tuner_service.service.assets.asset_store import HOME_ID, AssetStore, file_name
from tuner_service.service.node_files import NodeFiles, Upload, lineages_of

DATA = b"what somebody has sent" * 1000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "root"
    made.mkdir()
    return made


def whole_or_not_there(root: Path, name: str, act: Callable[[], object], data: bytes = DATA) -> None:
    """Whenever the power goes while ``act`` makes the file; and there once it is done."""
    found = root.with_name("found")

    def is_whole(disk: SimulatedDisk) -> None:
        for kept_names in (False, True):
            file = disk.after_power_loss(found, kept_names=kept_names) / name
            assert not file.exists() or file.read_bytes() == data, disk.events

    with SimulatedDisk(root, at_every_event=is_whole) as disk:
        act()
        assert (disk.after_power_loss(found, kept_names=False) / name).read_bytes() == data


# ── the store of assets ─────────────────────────────────────────────────────────────────────────
def test_a_file_has_its_name_in_the_store_once_it_is_whole_and_before_anything_speaks_of_it(root: Path) -> None:
    store = AssetStore(str(root), home=root, lineage="l")
    store.begin_staging()
    digest = hashlib.sha256(DATA).hexdigest()

    def take_in() -> None:
        (store.staging / digest).write_bytes(DATA)
        store.take_in([store.staging / digest])

    whole_or_not_there(root, file_name(digest), take_in)


def test_a_home_is_known_by_one_id_in_the_store(root: Path) -> None:
    """Another one would take its marks for those of somebody else, and nobody would ever remove them."""
    with SimulatedDisk(root) as disk:
        AssetStore(str(root), home=root, lineage="l").own([])
        found = disk.after_power_loss(root.with_name("found"), kept_names=False)
    assert (found / HOME_ID).read_text() == (root / HOME_ID).read_text() != ""


class Served:
    """A service elsewhere with one asset, as who fetches it asks it."""

    is_of_home = False

    def __init__(self, files: dict[str, bytes]) -> None:
        self._tree = a_tree(files)
        self._bytes = {AssetFile(path="f", size=len(d), pieces=pieces_of(d)).digest: d for d in files.values()}
        self._bytes[self._tree.id] = self._tree.manifest

    def asset(self, _: str) -> dict[str, Any]:
        return {"id": self._tree.id}

    def asset_bytes(self, digest: str, *, offset: int, length: int) -> bytes:
        return self._bytes[digest][offset : offset + length]

    def another(self) -> Served:
        return self

    def close(self) -> None: ...


def test_a_folder_that_was_fetched_has_its_name_once_all_of_it_is_there(root: Path) -> None:
    service = cast("Client", Served({"data/a.bin": DATA}))
    whole_or_not_there(root, "digits/data/a.bin", lambda: get_asset(service, "digits", root / "digits"))


# ── what nodes send ─────────────────────────────────────────────────────────────────────────────
def test_an_upload_is_whole_in_its_place_and_it_is_noted_whose_it_is(root: Path) -> None:
    files = NodeFiles(
        root, an_api_service().queries, checkpoint_store="", asset_store="", staging=root / "in", lineage="mine"
    )
    name = "nodes/checkpoints/expt1/1/1-n1/file"
    upload = Upload(target=root / name, size=len(DATA), digest=hashlib.sha256(DATA).hexdigest())

    whole_or_not_there(root, name, lambda: files.put(upload, 0, DATA))

    assert lineages_of(root.with_name("found")) == {"mine"}


def test_what_came_with_the_end_of_an_attempt_is_kept(root: Path) -> None:
    api = an_api_service()
    attempt = an_attempt(experiment_id=api.create(), nonce="n1", agent_id="agent-1")
    changes = Changes()
    changes.trials[attempt.key.experiment_id, 1] = a_trial(
        experiment_id=attempt.key.experiment_id, number=1, status=TrialStatus.RUNNING, attempts=1
    )
    changes.attempts[attempt.key] = attempt
    api.store.commit(changes)
    files = NodeFiles(root, api.queries, checkpoint_store="", asset_store="", staging=root / "in", lineage="mine")
    name = f"nodes/logs/{attempt.key.experiment_id}/1/1-n1/stdout"

    whole_or_not_there(root, name, lambda: files.keep_logs("agent-1", attempt.key, "n1", {"stdout": DATA}))


# ── archives and tokens ─────────────────────────────────────────────────────────────────────────
def test_an_archive_is_on_the_disk_before_its_rows_may_go(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(1, 1, step, step, step, '{"loss":0.5}', True, 0.5, 1.0) for step in (1, 2, 3)]
    monkeypatch.setattr(archive, "pages", lambda _: iter([rows]))
    with SimulatedDisk(root) as disk:
        archive.write({"experiment": "e", "file": str(root / "a.parquet")})
        found = disk.after_power_loss(root.with_name("found"), kept_names=False)

    assert (found / "a.parquet").read_bytes() == (root / "a.parquet").read_bytes() != b""


def test_a_token_that_nobody_is_told_again_is_in_its_file(root: Path) -> None:
    row = {"id": "ann", "name": "ann", "token": "secret"}
    wanted = argparse.Namespace(action="add", name="ann", file=str(root / "ann.token"), output="text")

    whole_or_not_there(root, "ann.token", lambda: token._give(wanted, lambda: row), b"secret\n")

    assert os.listdir(root) == ["ann.token"]  # noqa: PTH208  names

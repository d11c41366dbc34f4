"""kill -9 of a client at any step of adding: no half asset, what it wrote is gone on with, and nothing is left."""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.api_server import serving
from tests.api_service import ADMIN_TOKEN, NOW
from tests.forked import Child
from trials.wire.manifests import PIECE_BYTES
from tuner_service.assets.adding import Addition, add_asset
from tuner_service.client import Client
from tuner_service.service.assets.asset_store import LEASE_S
from tuner_service.service.assets.collecting import collect, damages

STEPS = ("open", "os.rename", "os.remove", "os.truncate", "socket.connect", "sqlite3.connect", "os.scandir")
EVERY = 4  # steps between two that it is killed at: the first, and so on


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    for i in range(5):
        (folder / f"f{i}").write_bytes(b"%d" % i)
    (folder / "large").write_bytes(b"0" * PIECE_BYTES + b"1")
    return folder


def a_client(home: Path) -> Client:
    """Of the service's own machine and home."""
    return Client(json.loads((home / "service.json").read_text())["url"], ADMIN_TOKEN, admit=lambda _: None)


def killed_while_adding(home: Path, source: Path, step: int) -> bool:
    count = itertools.count(1)

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event in STEPS and next(count) == step:
            os.kill(os.getpid(), signal.SIGKILL)

    def work() -> None:
        sys.addaudithook(hook)
        add_asset(a_client(home), Addition(source=source, kind="dataset", name="digits"))

    child = Child(work, home / "output")
    assert child.wait(60)
    assert child.code in {0, -signal.SIGKILL}, (home / "output").read_text()
    return child.code != 0


def test_a_client_that_is_killed_at_any_step_leaves_no_half_asset(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for step in itertools.count(1, EVERY):
        home = tmp_path / f"home{step}"
        home.mkdir()
        with serving(home) as api:
            store, rows = api.services.assets.store, api.asset_rows
            store.begin_staging()
            was_killed = killed_while_adding(home, source, step)
            assert list(damages(store, rows)) == []
            kept = {p.name: p.stat().st_ino for p in store.staging.iterdir() if not p.name.startswith("draft-")}

            client = a_client(home)
            view = add_asset(client, Addition(source=source, kind="dataset", name="digits"))
            client.close()

            assert view["version"] == 1
            assert list(damages(store, rows)) == []
            for file in store.manifest(view["id"]):
                place = store.path_of(file.digest)
                assert place is not None
                assert kept.get(file.digest, place.stat().st_ino) == place.stat().st_ino  # not written again
            collect(store, rows, now=NOW + LEASE_S, uptime=lambda: 0.0, remove=True)
            assert list(store.staging.iterdir()) == []
        if not was_killed:
            assert step > EVERY
            return

"""How an attempt is found by its nonce, and spent exactly once."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from trials.agent.home import Home
from trials.agent.supervision.attempt_life import Supervised
from trials.agent.supervision.parent import Parent
from trials.wire.attempt import AttemptKey
from trials.wire.files import FILE_ATTEMPT, FILE_CLAIM
from trials.wire.plain import to_plain
from trials.wire.sockets import RUNTIME_FOLDER_BYTES, data_socket_path, wake_socket_path

KEY = AttemptKey(experiment_id="e1", number=3, attempt=2)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path)
    made.make()
    return made


def prepared(home: Home, nonce: str = "n1", text: str | None = None) -> Path:
    folder = home.attempt_folder(KEY, nonce)
    folder.mkdir(parents=True)
    (folder / FILE_ATTEMPT).write_text(text if text is not None else json.dumps({"key": to_plain(KEY), "nonce": nonce}))
    return folder


def test_a_prepared_attempt_is_found_until_its_experiment_is_removed(home: Home) -> None:
    folder = prepared(home)
    home.put_live("n1", folder)
    home.put_live("n1", folder)
    assert home.live() == {"n1": folder}
    assert (folder / FILE_ATTEMPT).stat().st_nlink == 2, "its index is a name, not a file"

    home.put_ended("n1")
    assert home.live() == {}
    assert home.folder_of("n1") == folder
    home.put_live("n1", folder)
    home.put_ended("n1")
    assert home.live() == {}, "also the second time, when both are names of one file"
    home.remove_experiment("e1")
    assert home.folder_of("n1") is None


def test_an_attempt_that_was_never_prepared_is_found_too(home: Home) -> None:
    folder = home.attempt_folder(KEY, "n1")
    folder.mkdir(parents=True)
    home.put_live("n1", folder)
    assert home.live() == {"n1": folder}


@pytest.mark.parametrize(
    "text", ["", "{", '{"key": {}}', '{"key": {"experiment_id": "../..", "number": 1, "attempt": 1}}']
)
def test_an_index_that_a_power_loss_or_anybody_damaged_leads_nowhere(home: Home, text: str) -> None:
    home.put_live("n1", prepared(home, text=text))
    assert home.live() == {}


def test_a_nonce_is_spent_once_and_its_claim_is_its_own(tmp_path: Path) -> None:
    claim = {"pid": 7, "start_time": 8, "boot_id": "b", "orders": "o"}
    parent = cast("Parent", SimpleNamespace(claim=claim))
    attempt: dict[str, Any] = {"nonce": "n1", "spec": {}}
    folders = [tmp_path / "of one trial", tmp_path / "of another"]
    for folder in folders:
        folder.mkdir()

    claims = [Supervised(str(folder), attempt, parent=parent).claim() for folder in (*folders, *folders)]
    (folders[0] / FILE_CLAIM).write_text("what a trial writes into a file of its folder")

    assert claims == [True, True, False, False]
    assert json.loads((folders[1] / FILE_CLAIM).read_text()) == claim
    assert [path.name for path in folders[1].iterdir()] == [FILE_CLAIM]


def test_code_and_blobs_are_fetched_again_after_the_machine_was_started_anew(home: Home) -> None:
    def put() -> tuple[Path, Path]:
        code, blob = home.code / "digest", home.incoming / "digest"
        code.mkdir()
        blob.touch()
        return code, blob

    home.drop_unsynced("first")
    paths = put()
    home.drop_unsynced("first")
    assert all(path.exists() for path in paths)

    home.drop_unsynced("second")

    assert not any(path.exists() for path in paths)
    (home.agent / "boot").unlink()
    paths = put()
    home.drop_unsynced("second")
    assert not any(path.exists() for path in paths)


@pytest.mark.parametrize(
    ("runtime", "folder"),
    [
        ("/run/user/7", "/run/user/7/tuner"),
        ("", f"/tmp/tuner-{os.getuid()}"),
        ("/" + "r" * (RUNTIME_FOLDER_BYTES - 1), "/" + "r" * (RUNTIME_FOLDER_BYTES - 1) + "/tuner"),
        ("/" + "r" * RUNTIME_FOLDER_BYTES, f"/tmp/tuner-{os.getuid()}"),
    ],
)
def test_sockets_lie_in_the_runtime_folder_where_tmp_has_no_room_for_them_and_their_names_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: str, folder: str
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
    monkeypatch.setattr("trials.wire.sockets._may_be_ours", lambda _folder: False)

    assert str(wake_socket_path(tmp_path).parent) == folder
    assert len(os.fsencode(wake_socket_path(tmp_path))) <= 107
    assert data_socket_path(tmp_path) == wake_socket_path(tmp_path).with_suffix(".data")
    assert wake_socket_path(tmp_path) != wake_socket_path(tmp_path / "other")

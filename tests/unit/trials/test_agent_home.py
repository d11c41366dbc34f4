"""How an attempt is found by its nonce, and spent exactly once."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from trials.agent.home import Home
from trials.agent.parent import Parent
from trials.agent.supervision import Supervised
from trials.protocol import FILE_ATTEMPT, FILE_CLAIM, AttemptKey, to_plain

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


@pytest.mark.parametrize("shared", ["there", "gone", ""])
def test_a_nonce_is_spent_once_whether_or_not_a_claim_can_be_shared(tmp_path: Path, shared: str) -> None:
    claim = {"pid": 7, "start_time": 8, "boot_id": "b", "orders": "o"}
    file = tmp_path / "claim.json"
    if shared == "there":
        file.write_text(json.dumps(claim))
    parent = SimpleNamespace(claim=claim, claim_file=str(file) if shared else "", syncs_later=True)
    attempt: dict[str, Any] = {"nonce": "n1", "spec": {}}
    folder = tmp_path / "attempt"
    folder.mkdir()

    claims = [Supervised(str(folder), attempt, parent=cast("Parent", parent)).claim() for _ in range(2)]

    assert claims == [True, False]
    assert json.loads((folder / FILE_CLAIM).read_text()) == claim
    assert [path.name for path in folder.iterdir()] == [FILE_CLAIM]

"""Data that stays where it is, on a machine that has lost its power, and on a disk that hangs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.hanging import Hanging
from trials.agent.home import Home
from trials.agent.moving import inputs
from trials.agent.moving.node_cache import AssetUnusableError, NodeCache
from trials.agent.moving.references import check_reference
from trials.wire.inputs import Input, InputField, InputItem


def test_what_a_power_loss_has_taken_of_what_was_noted_is_noted_anew(tmp_path: Path) -> None:
    data, noted = tmp_path / "data", tmp_path / "noted"
    data.mkdir()
    (data / "a").touch()
    check_reference(noted, "e", str(data))
    (file,) = (noted / "e").iterdir()
    whole = file.read_text()
    file.write_text("")

    check_reference(noted, "e", str(data))

    assert file.read_text() == whole
    (data / "b").touch()
    with pytest.raises(AssetUnusableError, match="b' is new"):
        check_reference(noted, "e", str(data))


def test_data_on_a_disk_that_hangs_has_a_thread_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a few launches that wait for it would keep the node from starting trials that do not."""
    hang = Hanging()
    monkeypatch.setattr(inputs, "check_reference", hang)
    wanted = {"data": Input(field=InputField.DATASETS, items=(InputItem(reference="/mnt/nfs/data"),))}
    cache = NodeCache(tmp_path / "cache", in_use=set)
    launching = inputs.paths_of(Home(tmp_path), cache, wanted, experiment_id="e")

    assert asyncio.run(hang.leaves_threads_to_others(launching)) == {"data": "/mnt/nfs/data"}

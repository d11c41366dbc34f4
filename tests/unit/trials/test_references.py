"""Data that stays where it is, on a machine that has lost its power, and on a disk that hangs."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

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
    gate, has_begun = threading.Event(), threading.Event()

    def hang(*_: Any) -> None:
        has_begun.set()
        assert gate.wait(60)

    monkeypatch.setattr(inputs, "check_reference", hang)
    wanted = {"data": Input(field=InputField.DATASETS, items=(InputItem(reference="/mnt/nfs/data"),))}
    cache = NodeCache(tmp_path / "cache", in_use=set)

    async def beside() -> dict[str, Any]:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        launching = asyncio.ensure_future(inputs.paths_of(Home(tmp_path), cache, wanted, experiment_id="e"))
        try:
            while not has_begun.is_set():
                await asyncio.sleep(0)
            assert await asyncio.wait_for(asyncio.to_thread(lambda: "another launch's"), 30)
        finally:
            gate.set()
        return await launching

    assert asyncio.run(beside()) == {"data": "/mnt/nfs/data"}

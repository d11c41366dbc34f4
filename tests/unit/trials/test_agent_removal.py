"""Removing an experiment's folders while somebody still writes there, and checkpoints that were saved again."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trials.agent.agent import Agent
from trials.agent.home import Home
from trials.agent.moving.checkpoint_store import CheckpointStore
from trials.agent.moving.storing import StoreThreads
from trials.agent.removing import delete_checkpoint
from trials.checkpoints.file_format import Image
from trials.checkpoints.verified_files import write_image
from trials.wire.attempt import AttemptKey
from trials.wire.files import FOLDER_CHECKPOINTS
from trials.wire.messages import DeleteCheckpoint, RemoveExperiment
from trials.wire.records import CheckpointRecord


class Writing(Home):
    """A folder in which something else appears, as often as ``fills`` says, while it is removed."""

    fills = 2

    def remove_experiment(self, experiment_id: str) -> None:
        if self.fills:
            self.fills -= 1
            raise OSError(39, "Directory not empty")
        super().remove_experiment(experiment_id)


def test_folders_that_are_written_to_while_they_are_removed_are_removed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trials.agent.removing.PAUSES_S", (0.0, 0.0, 0.0))
    home = Writing(tmp_path)
    home.make()
    folder = home.attempts / "exp" / "1" / "1-n1"
    folder.mkdir(parents=True)

    async def remove() -> None:
        agent = Agent(home)
        agent.remove_experiment(RemoveExperiment(experiment_id="exp"))
        await agent.close()

    asyncio.run(remove())

    assert not (home.attempts / "exp").exists()


class Damaged:
    """An attempt whose files are damaged: its end is known at once, and written down when ``may_write`` is set."""

    nonce = "n1"
    key = AttemptKey(experiment_id="exp", number=1, attempt=1)
    damage = "its reports were removed"
    exit: Any = None

    def __init__(self, happened: list[str]) -> None:
        self.happened, self.may_write = happened, threading.Event()

    def look(self) -> None:
        return None

    def order_stop(self, **_: Any) -> None:
        return None

    def kill_all(self) -> None:
        return None

    def end_damaged(self) -> None:
        self.exit = "files_damaged"

    def write_end(self) -> None:
        assert self.may_write.wait(60)
        self.happened.append("written")


def test_folders_go_after_the_end_of_a_damaged_attempt_was_written_also_where_it_is_forgotten_by_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path)
    home.make()
    happened: list[str] = []
    damaged: Any = Damaged(happened)

    async def removed(home: Home, experiment_id: str) -> None:
        happened.append(f"{experiment_id} removed")

    monkeypatch.setattr("trials.agent.agent.remove_folders", removed)

    async def remove() -> None:
        agent = Agent(home)
        monkeypatch.setattr(agent, "_note_end", lambda held: happened.append("told"))
        agent.held["n1"] = damaged
        agent.look_at(damaged)
        while damaged.exit is None:
            await asyncio.sleep(0)
        del agent.held["n1"]  # the service has everything
        agent.remove_experiment(RemoveExperiment(experiment_id="exp"))
        for _ in range(10):
            await asyncio.sleep(0)
        damaged.may_write.set()
        await agent.close()

    asyncio.run(remove())

    assert happened == ["written", "exp removed"]


def saved(folder: Path) -> CheckpointRecord:
    """The same state, in a file of the same name, each time."""
    (folder / FOLDER_CHECKPOINTS).mkdir(exist_ok=True)
    return write_image(folder / FOLDER_CHECKPOINTS, Image(step=3, parts=(b"weights",)))


def test_a_checkpoint_that_was_saved_again_stays_where_the_order_to_remove_the_first_comes_late(tmp_path: Path) -> None:
    home, store = Home(tmp_path / "home"), CheckpointStore(str(tmp_path / "store"))
    home.make()
    folder = home.attempts / "exp" / "1" / "1-n1"
    folder.mkdir(parents=True)
    home.put_live("n1", folder)
    first = saved(folder)
    file = folder / FOLDER_CHECKPOINTS / first.name
    os.utime(file, (0, first.at + 1))  # the next one is later than the clock of files can tell
    again = replace(first, at=first.at + 2)
    put = Path(store.put(file, f"exp/1/1-n1/{first.name}"))

    def removed(record: CheckpointRecord) -> list[bool]:
        order = DeleteCheckpoint(nonce="n1", name=record.name, location=str(put), saved_at=record.at)
        asyncio.run(delete_checkpoint(home, store, order, StoreThreads()))
        return [not file.exists(), not put.exists()]

    assert removed(first) == [False, False]
    assert removed(again) == [True, True]


def test_a_checkpoint_is_never_reported_as_saved_before_its_file_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of a file system of another machine may be ahead: the order to remove it would never be followed."""
    monkeypatch.setattr(time, "time", lambda: 1.0)
    record = saved(tmp_path)

    assert record.at == (tmp_path / FOLDER_CHECKPOINTS / record.name).stat().st_mtime


def test_bytes_that_another_attempt_has_too_stay_until_it_is_the_last(tmp_path: Path) -> None:
    """One that was repeated exactly has made the very same."""
    home = Home(tmp_path)
    home.make()
    shared, name = home.checkpoints / "abcdef0123", "step-3-abcdef.ckpt"
    shared.write_bytes(b"x")
    attempts = [home.attempts / "exp" / str(number) / "1-n" for number in (1, 2)]
    for attempt in attempts:
        (attempt / FOLDER_CHECKPOINTS).mkdir(parents=True)
        (attempt / FOLDER_CHECKPOINTS / name).write_bytes(b"x")

    for attempt, is_kept in zip(attempts, (True, False), strict=True):
        home.remove_checkpoint(attempt, name)
        assert shared.exists() is is_kept

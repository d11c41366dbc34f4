"""The locks of a database and of a home, on a disk that takes nothing more: they hold all the same."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tuner_service.domain.errors import InUseError
from tuner_service.storage.lock import FileLock, HomeLock


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", refuse)


@pytest.mark.usefixtures("full")
def test_a_database_is_locked_on_a_full_disk(tmp_path: Path) -> None:
    lock = FileLock.acquire(tmp_path / "tuner.db")

    with pytest.raises(InUseError):
        FileLock.acquire(tmp_path / "tuner.db")

    lock.release()
    FileLock.acquire(tmp_path / "tuner.db").release()


@pytest.mark.usefixtures("full")
def test_nobody_waits_for_ever_for_a_home_whose_database_could_not_be_written_down(tmp_path: Path) -> None:
    first = HomeLock.acquire(tmp_path, "a")

    with pytest.raises(InUseError):
        HomeLock.acquire(tmp_path, "b")

    first.release()


def test_a_home_is_used_again_on_a_full_disk(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    HomeLock.acquire(tmp_path, "a").release()
    request.getfixturevalue("full")

    active, standby = HomeLock.acquire(tmp_path, "a"), HomeLock.acquire(tmp_path, "a")
    with pytest.raises(InUseError):
        HomeLock.acquire(tmp_path, "b")
    active.release()
    standby.release()


def test_the_process_of_a_lock_is_the_last_one_however_long_the_number_before_was(tmp_path: Path) -> None:
    (tmp_path / "tuner.db.lock").write_text("4294967295")

    FileLock.acquire(tmp_path / "tuner.db").release()

    assert (tmp_path / "tuner.db.lock").read_text() == str(os.getpid())

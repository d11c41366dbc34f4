"""A home folder is one database's at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner_service.domain.errors import InUseError
from tuner_service.storage.lock import HomeLock


def test_a_home_is_one_databases_at_a_time(tmp_path: Path) -> None:
    first, standby = HomeLock.acquire(tmp_path, "a"), HomeLock.acquire(tmp_path, "a")

    with pytest.raises(InUseError, match="a service with another database works in the home folder"):
        HomeLock.acquire(tmp_path, "ab")
    first.release()
    with pytest.raises(InUseError):
        HomeLock.acquire(tmp_path, "b")
    standby.release()
    standby.release()

    HomeLock.acquire(tmp_path, "b").release()


def test_a_file_system_without_locks_gives_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(_: int, __: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("tuner_service.storage.lock.fcntl.flock", no_locks)

    HomeLock.acquire(tmp_path, "a").release()
    HomeLock.acquire(tmp_path, "b").release()

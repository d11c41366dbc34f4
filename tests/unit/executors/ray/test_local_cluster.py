"""How a service says that it uses its own Ray cluster."""

from __future__ import annotations

import fcntl
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tuner_service.executors.ray import local_cluster
from tuner_service.executors.ray.local_cluster import BACKOFF_LIMIT_S, BACKOFF_S, HOLDER, USERS, LocalCluster, is_held


class Clock:
    """``at``: what ``time.monotonic`` says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at = 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self.at)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_a_holder_that_looks_at_the_same_moment_does_not_keep_a_service_from_being_seen(
    tmp_path: Path, clock: Clock
) -> None:
    """It would end the cluster, and the trials there, after UNUSED_S."""
    (tmp_path / HOLDER).touch()
    with (tmp_path / HOLDER).open() as holder, (tmp_path / USERS).open("w") as looking:
        fcntl.flock(holder, fcntl.LOCK_EX)  # there is one: none is started
        fcntl.flock(looking, fcntl.LOCK_EX)
        cluster = LocalCluster(folder=tmp_path)
        with pytest.raises(BlockingIOError):
            cluster.see_to_it()
        fcntl.flock(looking, fcntl.LOCK_UN)
        clock.at += BACKOFF_S
        cluster.see_to_it()

        assert is_held(tmp_path / USERS)
        cluster.close()


def test_a_folder_that_takes_no_lock_is_not_tried_at_every_step(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[float] = []

    def refuse(_: Path) -> int:
        tries.append(clock.at)
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(local_cluster, "_open_lock", refuse)
    cluster = LocalCluster(folder=tmp_path)
    for _ in range(9):
        with suppress(OSError):
            cluster.see_to_it()
        clock.at += BACKOFF_S / 4

    assert tries == [100.0, 100.0 + BACKOFF_S, 100.0 + 2 * BACKOFF_S]


class Holders:
    """``codes``: how the next ones end, at once; None is one that goes on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
        self.codes: list[int | None] = []
        self.started: list[float] = []
        self._clock = clock
        monkeypatch.setattr(subprocess, "Popen", self._start)

    def _start(self, *_: Any, **__: Any) -> Any:
        self.started.append(self._clock.at)
        code = self.codes.pop(0)
        return SimpleNamespace(poll=lambda: code, returncode=code)


def test_a_holder_that_fails_is_told_and_started_less_and_less_often(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    holders = Holders(monkeypatch, clock)
    holders.codes = [1, 1, 1, None]
    cluster, told = LocalCluster(folder=tmp_path), []
    for _ in range(80):
        try:
            cluster.see_to_it()
        except OSError as error:
            told.append(str(error))
        clock.at += 0.25

    assert [at - 100.0 for at in holders.started] == [0.0, 2.0, 6.0, 14.0]
    assert told == [f"its holder ended with exit code 1: see {tmp_path}/cluster.log"] * 3
    cluster.close()


@pytest.mark.parametrize("code", [0, -9])
def test_a_holder_that_was_not_needed_or_was_killed_after_a_while_is_followed_by_another_at_once(
    code: int, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    holders = Holders(monkeypatch, clock)
    holders.codes = [code, None]
    cluster = LocalCluster(folder=tmp_path)
    cluster.see_to_it()
    clock.at += BACKOFF_LIMIT_S
    for _ in range(2):
        with suppress(OSError):
            cluster.see_to_it()

    assert holders.started == [100.0, 100.0 + BACKOFF_LIMIT_S]
    cluster.close()

"""An agent of another version is made to leave, whatever the service does meanwhile."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tuner_service.executors import local
from tuner_service.executors.local import LocalExecutor, _Leaving


def test_an_agent_that_is_dismissed_while_the_service_ends_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By then the number of what wakes the executor may be another's file."""
    executor = LocalExecutor(home=tmp_path, service_file=tmp_path / "service.json")
    wake, file = executor._wake, os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)

    def close_and_say_yes(*_: object) -> bool:
        executor.close()
        os.dup2(file, wake)
        return True

    monkeypatch.setattr(local, "holds_lock", close_and_say_yes)
    before = open_descriptors()
    executor.dismiss(os.getpid())

    assert (tmp_path / "file").read_bytes() == b""
    assert executor._leaving is None
    assert open_descriptors() == before
    os.close(wake)
    os.close(file)


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_an_agent_is_dismissed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executor = LocalExecutor(home=tmp_path, service_file=tmp_path / "service.json")
    monkeypatch.setattr(local, "holds_lock", lambda *_: True)
    executor.dismiss(os.getpid())
    leaving = executor._leaving
    assert leaving is not None
    executor.dismiss(os.getpid())
    assert executor._leaving is leaving

    before = open_descriptors()
    executor.close()
    executor.close()
    assert open_descriptors() == before - 2, "what wakes it, and the agent that was to leave"


def test_an_agent_that_ends_just_before_it_is_pressed_is_no_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would end the thread that starts agents again."""

    def has_ended(*_: object) -> None:
        raise ProcessLookupError

    monkeypatch.setattr("signal.pidfd_send_signal", has_ended)
    process = os.pidfd_open(os.getpid())
    try:
        assert not _Leaving(process=process, due=0.0).press(1.0)
    finally:
        os.close(process)

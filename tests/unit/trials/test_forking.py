"""When a fork counts as safe."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from trials.processes import forking


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the system tells of this process's threads, of which only this one runs Python."""
    monkeypatch.setattr(forking, "_TASKS", tmp_path)
    monkeypatch.setattr(forking, "_SETTLE_S", 0.0)
    monkeypatch.setattr(threading, "enumerate", lambda: [threading.current_thread()])
    return tmp_path


def test_a_system_that_does_not_tell_what_threads_do_has_none_that_sleep(tasks: Path) -> None:
    assert forking.unsafe_to_fork() == ""
    (tasks / "1").mkdir()

    assert forking.unsafe_to_fork() == "a thread of a library is at work"


def test_a_thread_that_another_one_is_starting_is_not_joined(
    tasks: Path,  # what the system tells
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Starting(threading.Thread):
        ends_by_itself = True

    monkeypatch.setattr(threading, "enumerate", lambda: [threading.current_thread(), Starting(name="checkpoint")])

    assert forking.fork_if_safe() == (None, "thread 'checkpoint' runs")

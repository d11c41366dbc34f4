from __future__ import annotations

import builtins
import errno
import io
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from trials.agent.attempts import HeldAttempt
from trials.agent.supervision import exits
from trials.agent.supervision.exits import (
    EXIT_WRITE_PAUSE_MAX_S,
    cause_of,
    count_memory_kills,
    exit_record,
    write_durably,
)
from trials.files import create_once, read_json
from trials.wire.attempt import AttemptKey
from trials.wire.plain import from_plain
from trials.wire.records import ExitCause, ExitRecord


@pytest.mark.parametrize(
    ("stopped", "status", "killed_for_memory", "cause"),
    [
        (None, None, False, "exited"),
        (None, None, True, "exited"),
        (None, signal.SIGSEGV, True, "signaled"),
        (None, signal.SIGKILL, False, "signaled"),
        (None, signal.SIGKILL, True, "out_of_memory"),
        ("stopped_by_user", signal.SIGKILL, True, "stopped"),
        ("stopped_by_user", None, False, "stopped"),
        ("memory_limit", signal.SIGKILL, False, "out_of_memory"),
        ("max_duration", None, False, "out_of_time"),
    ],
)
def test_the_cause_follows_from_what_the_parent_saw(
    stopped: str | None, status: int | None, killed_for_memory: bool, cause: str
) -> None:
    assert cause_of(stopped=stopped, status=status, killed_for_memory=killed_for_memory) == cause
    assert ExitCause(cause)


def test_what_is_written_is_an_exit_record(tmp_path: Path) -> None:
    path = tmp_path / "exit.json"
    write_durably(str(path), exit_record("exited", code=3, tail="ü\ud800", ended_at=2.0))

    assert from_plain(ExitRecord, read_json(str(path)), where="exit") == ExitRecord(
        cause="exited", code=3, tail="ü\ud800", ended_at=2.0
    )


def test_of_a_tail_the_end_is_told_whatever_stands_in_the_record(tmp_path: Path) -> None:
    """A trial may have written it."""
    held = HeldAttempt(tmp_path, key=AttemptKey(experiment_id="e", number=1, attempt=1), nonce="n", lineage="l")
    write_durably(str(tmp_path / "exit.json"), exit_record("exited", code=3, tail="a" * 5_000 + "end"))
    held._look_for_exit()

    assert held.exit is not None
    assert held.exit.tail == "a" * (4_096 - 3) + "end"


def test_an_exit_of_a_removed_attempt_is_not_waited_for(tmp_path: Path) -> None:
    write_durably(str(tmp_path / "removed" / "exit.json"), exit_record("exited"))


def test_the_counters_of_the_kernel_can_be_read() -> None:
    assert all(count >= 0 for count in count_memory_kills())


class Kernel:
    """Its files, as texts of the test; any other is missing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, files: dict[str, str]) -> None:
        self._files = files
        monkeypatch.setattr(builtins, "open", self.open)

    def open(self, path: str, *_: Any, **__: Any) -> io.StringIO:
        if path not in self._files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return io.StringIO(self._files[path])


@pytest.mark.parametrize(
    ("groups", "file"),
    [
        ("0::/system.slice/tuner.service\n", "/sys/fs/cgroup/system.slice/tuner.service/memory.events"),
        ("0::/\n", "/sys/fs/cgroup/memory.events"),
        ("5:cpu,memory:/a:b\n1:name=systemd:/c\n", "/sys/fs/cgroup/memory/a:b/memory.oom_control"),
    ],
)
def test_what_the_kernel_killed_for_memory_is_counted_for_the_machine_and_for_the_group(
    monkeypatch: pytest.MonkeyPatch, groups: str, file: str
) -> None:
    texts = {
        "/proc/vmstat": "oom_kill_disable 9\noom_kill 4\n",
        "/proc/self/cgroup": groups,
        file: "oom 7\noom_kill 3\nx 1\n",
    }
    with monkeypatch.context() as patched:
        Kernel(patched, texts)
        found = count_memory_kills()

    assert found == (4, 3)


def test_a_counter_that_cannot_be_read_counts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        Kernel(patched, {"/proc/vmstat": "oom_kill many\n"})
        without_groups = count_memory_kills()
        Kernel(patched, {"/proc/self/cgroup": "0::/a\n", "/sys/fs/cgroup/a/memory.events": "low 1\n"})
        without_counters = count_memory_kills()

    assert (without_groups, without_counters) == ((0,), (0, 0))


def test_an_exit_waits_for_room_ever_longer_and_its_time_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, pauses = [50.0], list[float]()

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        clock[0] += seconds

    def no_room(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(exits, "write_atomically", no_room)

    with pytest.raises(OSError, match="No space left"):
        write_durably(str(tmp_path / "exit.json"), exit_record("exited"), timeout_s=60.0)

    assert pauses[:4] == [0.05, 0.1, 0.2, 0.4]
    assert max(pauses) == EXIT_WRITE_PAUSE_MAX_S
    assert 60.0 < clock[0] - 50.0 <= 60.0 + EXIT_WRITE_PAUSE_MAX_S


def test_an_exit_in_whose_place_a_folder_stands_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "exit.json/full").mkdir(parents=True)

    with pytest.raises(OSError, match="directory"):
        write_durably(str(tmp_path / "exit.json"), exit_record("exited"))


def test_a_file_is_created_by_exactly_one(tmp_path: Path) -> None:
    path = tmp_path / "claim.json"

    assert [create_once(str(path), text, durable=True) for text in (b'{"a":1}', b'{"a":2}')] == [True, False]
    assert read_json(str(path)) == {"a": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["claim.json"]


def test_the_page_of_the_runtime_explains_every_cause() -> None:
    page = Path(__file__).resolve().parents[3] / "docs" / "trial-runtime.md"
    table = page.read_text(encoding="utf-8").rpartition("| cause |")[2]

    assert tuple(re.findall(r"^\| `(\w+)` \|", table, flags=re.MULTILINE)) == tuple(ExitCause)

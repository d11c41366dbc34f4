from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from trials.agent.supervision.exits import cause_of, count_memory_kills, exit_record, write_durably
from trials.files import create_once, read_json
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


def test_an_exit_of_a_removed_attempt_is_not_waited_for(tmp_path: Path) -> None:
    write_durably(str(tmp_path / "removed" / "exit.json"), exit_record("exited"))


def test_the_counters_of_the_kernel_can_be_read() -> None:
    assert all(count >= 0 for count in count_memory_kills())


def test_a_file_is_created_by_exactly_one(tmp_path: Path) -> None:
    path = tmp_path / "claim.json"

    assert [create_once(str(path), text, durable=True) for text in (b'{"a":1}', b'{"a":2}')] == [True, False]
    assert read_json(str(path)) == {"a": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["claim.json"]


def test_the_page_of_the_runtime_explains_every_cause() -> None:
    page = Path(__file__).resolve().parents[3] / "docs" / "trial-runtime.md"
    table = page.read_text(encoding="utf-8").rpartition("| cause |")[2]

    assert tuple(re.findall(r"^\| `(\w+)` \|", table, flags=re.MULTILINE)) == tuple(ExitCause)

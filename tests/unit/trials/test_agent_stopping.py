"""The steps of a stop, told by what is in the attempt's folder."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trials.agent.supervision import attempt_life
from trials.agent.supervision.attempt_life import Supervised
from trials.agent.supervision.stopping import COOPERATIVE_SHARE, Stopping
from trials.processes.ending import KILL_REPEAT_S
from trials.processes.usage import Usage, memory_of, processor_s_of

NOBODY = 2**22 + 1  # no process has this number


class Everyone:
    """Counts how often the processes of the trial were asked for, as they are for each signal."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self) -> list[int]:
        self.asked += 1
        return [NOBODY]


@pytest.fixture
def everyone() -> Everyone:
    return Everyone()


def test_without_an_order_nothing_is_due(tmp_path: Path, everyone: Everyone) -> None:
    stopping = Stopping(str(tmp_path))
    stopping.look()

    assert stopping.escalate(everyone, most_s=1.0) == 1.0
    assert (stopping.reason, everyone.asked) == (None, 0)


def test_an_order_in_the_folder_is_followed(tmp_path: Path, everyone: Everyone) -> None:
    (tmp_path / "stop.json").write_text(json.dumps({"grace_s": 0.0, "reason": "stopped_by_user"}))
    stopping = Stopping(str(tmp_path))
    stopping.look()

    assert stopping.escalate(everyone, most_s=1.0) == KILL_REPEAT_S
    assert (stopping.reason, everyone.asked) == ("stopped_by_user", 1)


def test_a_script_that_never_asked_is_signalled_at_once_and_once(tmp_path: Path, everyone: Everyone) -> None:
    stopping = Stopping(str(tmp_path))
    stopping.order(grace_s=100.0, reason="preempted")

    waits = [stopping.escalate(everyone, most_s=1.0) for _ in range(3)]

    assert (waits, everyone.asked) == ([1.0] * 3, 1)


def test_a_script_that_asks_is_signalled_only_after_most_of_the_grace(tmp_path: Path, everyone: Everyone) -> None:
    (tmp_path / "cooperates").touch()
    stopping = Stopping(str(tmp_path))
    stopping.order(grace_s=100.0, reason="preempted")

    wait = stopping.escalate(everyone, most_s=1_000.0)

    assert 0 < wait <= 100.0 * COOPERATIVE_SHARE
    assert everyone.asked == 0


def test_an_order_is_written_down_for_the_script_and_the_first_reason_stays(tmp_path: Path) -> None:
    stopping = Stopping(str(tmp_path))
    stopping.order(grace_s=5.0, reason="max_duration")
    stopping.order(grace_s=1.0, reason="stopped_by_user")

    assert stopping.reason == "max_duration"
    assert json.loads((tmp_path / "stop.json").read_text()) == {"grace_s": 5.0, "reason": "max_duration"}


def test_an_order_repeated_with_less_grace_ends_it_earlier_and_never_later(tmp_path: Path, everyone: Everyone) -> None:
    stopping = Stopping(str(tmp_path))
    stopping.order(grace_s=100.0, reason="a")
    stopping.order(grace_s=500.0, reason="a")
    assert 99.0 < stopping.escalate(everyone, most_s=1_000.0) <= 100.0

    stopping.order(grace_s=0.0, reason="a")

    assert stopping.escalate(everyone, most_s=1_000.0) == KILL_REPEAT_S


def test_an_order_for_a_folder_that_was_removed_is_followed_all_the_same(tmp_path: Path, everyone: Everyone) -> None:
    stopping = Stopping(str(tmp_path / "removed"))
    stopping.order(grace_s=0.0, reason="removed")

    assert stopping.escalate(everyone, most_s=1.0) == KILL_REPEAT_S


def test_a_damaged_order_is_an_order_without_grace(tmp_path: Path, everyone: Everyone) -> None:
    (tmp_path / "stop.json").write_text('{"grace_s": "soon"}')
    stopping = Stopping(str(tmp_path))
    stopping.look()

    assert (stopping.reason, stopping.escalate(everyone, most_s=1.0)) == ("stopped", KILL_REPEAT_S)


def test_the_use_of_a_process_that_is_gone_is_nothing() -> None:
    usage = Usage()
    usage.sample([NOBODY])

    assert (memory_of(NOBODY), processor_s_of(NOBODY)) == (0, 0.0)
    assert (usage.memory_bytes, usage.peak_memory_bytes, usage.processor_s()) == (0, 0, 0.0)


def test_a_stop_that_was_ordered_when_nobody_looked_any_more_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = SimpleNamespace(si_code=os.CLD_KILLED, si_status=signal.SIGTERM)
    monkeypatch.setattr(attempt_life, "ending_of", lambda _: ended)
    monkeypatch.setattr(attempt_life, "usage_of_ended", lambda _: None)
    stream = SimpleNamespace(tail=lambda: "")
    supervised: Any = SimpleNamespace(
        _trial=1, _stopping=Stopping(str(tmp_path)), _group=None, _started=0.0, _started_at=0.0, spec={},
        _parent=SimpleNamespace(saw_memory_kill=lambda _: False, isolation="process"), _why_spawned=None,
        _streams={"stdout": stream, "stderr": stream}, _close_streams=lambda: None, _kernel_keeps_limit=False,
        _resources=SimpleNamespace(end=lambda: None),
        _usage=SimpleNamespace(peak_memory_bytes=0, processor_s=lambda: 0.0),
    )  # fmt: skip
    (tmp_path / "stop.json").write_text(json.dumps({"grace_s": 1.0, "reason": "stopped by a person"}))

    record = Supervised._exit(supervised)
    assert (record["cause"], record["stop_reason"]) == ("stopped", "stopped by a person")

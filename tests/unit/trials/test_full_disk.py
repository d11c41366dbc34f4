"""A full disk is waited for, and what power loss may take is bounded by the order of writing."""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from trials.agent.spool import SpoolReader
from trials.checkpoints.file_format import Image
from trials.checkpoints.restoring import NoOtherTrials
from trials.checkpoints.saving import CheckpointNotSavedError
from trials.checkpoints.stores import Entry
from trials.checkpoints.verified_files import when_there_is_room
from trials.files import is_full_disk
from trials.phases import AlonePhases
from trials.reports.spool_writer import FULL_DISK_TIMEOUT_S, SpoolWriter
from trials.session import Trial, TrialParts
from trials.wire.records import CheckpointRecord

RECORD = CheckpointRecord(step=3, name="n", digest="d", size=1, at=0.0)


class Recording:
    """A sink and a store of checkpoints that only note what is asked of them."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def metrics(self, **fields: Any) -> None:
        self.calls.append("report")

    def checkpoint(self, record: CheckpointRecord) -> None:
        assert record.stall_s is not None
        assert record.write_s is not None
        assert replace(record, stall_s=None, write_s=None) == replace(RECORD, value=0.5)
        self.calls.append("offer")

    def cooperates(self) -> None:
        self.calls.append("cooperates")

    def sync(self) -> None:
        self.calls.append("sync")

    def close(self) -> None:
        self.calls.append("close")

    def write(self, image: Image) -> CheckpointRecord:
        self.calls.append("write")
        return RECORD

    def write_sharded(self, state: Any, *, before: Callable[[], None], **fields: Any) -> CheckpointRecord | None:
        self.calls.append("write sharded")
        before()
        return None

    def entries(self) -> list[Entry]:
        return []

    def damaged(self, **fields: Any) -> None:
        self.calls.append("damaged")


def recorded(recording: Recording) -> Trial:
    parts = TrialParts(
        parameters={},
        defaults={},
        sink=recording,
        checkpoints=recording,
        others=NoOtherTrials(),
        phases=AlonePhases(),
        stop_file=None,
    )
    return Trial(parts, environ={})


def test_reports_are_on_the_disk_before_a_checkpoint_that_knows_of_them() -> None:
    recording = Recording()
    with recorded(recording) as trial:
        trial.report(step=3, default=0.5)
        trial.save_checkpoint({"step": 3})

    assert recording.calls == ["report", "sync", "write", "offer", "close"]


def test_before_a_sharded_checkpoint_the_ranks_hear_of_what_fails_on_one() -> None:
    """Reports, and the checkpoint before, are rank 0's alone: the others would wait for it."""
    recording = Recording()
    with recorded(recording) as trial:
        trial.save_checkpoint({"step": 3}, step=3, sharded=True)

    assert recording.calls == ["write sharded", "sync", "close"]


def test_saving_a_checkpoint_waits_for_room(capsys: pytest.CaptureFixture[str]) -> None:
    troubles = [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))]

    def save() -> CheckpointRecord:
        if troubles:
            raise troubles.pop()
        return RECORD

    pauses: list[float] = []
    assert when_there_is_room(save, pause=pauses.append) == RECORD
    assert len(pauses) == 2
    assert capsys.readouterr().err == "save_checkpoint() waits: the disk is full\n"


def test_another_trouble_than_a_full_disk_is_told_at_once() -> None:
    def save() -> CheckpointRecord:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with pytest.raises(OSError, match="Input/output error"):
        when_there_is_room(save)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_known_also_inside_the_error_of_a_copied_tree(number: int) -> None:
    error = OSError(number, os.strerror(number))

    assert is_full_disk(error)
    assert is_full_disk(shutil.Error([("from", "to", str(error))]))
    assert not is_full_disk(OSError(errno.EACCES, "no"))


def test_what_was_acknowledged_and_could_not_be_saved_is_saved_the_next_time(tmp_path: Path) -> None:
    line = '{"kind":"cooperates","at":1.0}\n'
    (tmp_path / "spool").write_text(line)
    reader = SpoolReader(tmp_path / "spool", tmp_path / "missing" / "acknowledged")
    reader.acknowledge(reader.next_batch(), 1)
    with pytest.raises(FileNotFoundError):
        reader.save()
    (tmp_path / "missing").mkdir()

    reader.save()

    assert (tmp_path / "missing" / "acknowledged").read_text() == f'{{"sequence":1,"offset":{len(line)}}}'


class FullDisk:
    """Every write finds so much room as is left, and time passes while somebody waits for more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, room: int, more_after_s: float = float("inf")) -> None:
        self.now, self._room, self._more_at = 100.0, room, 100.0 + more_after_s
        self._write = os.write
        monkeypatch.setattr(os, "write", self.write)
        monkeypatch.setattr(time, "sleep", self.sleep)
        monkeypatch.setattr(time, "monotonic", lambda: self.now)

    def write(self, descriptor: int, data: bytes) -> int:
        if not self._room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = self._write(descriptor, data[: self._room])
        self._room -= written
        return written

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.now >= self._more_at:
            self._room = 1 << 20


def test_a_line_that_finds_no_room_waits_and_is_whole_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = SpoolWriter(str(tmp_path / "reports.jsonl"))
    disk = FullDisk(monkeypatch, room=4, more_after_s=FULL_DISK_TIMEOUT_S - 1.0)

    writer.append(b"0123456789")
    writer.append(b"next")
    writer.close()

    assert (tmp_path / "reports.jsonl").read_bytes() == b"0123\n0123456789\nnext\n"
    assert disk.now == pytest.approx(100.0 + FULL_DISK_TIMEOUT_S - 1.0, abs=0.5)
    assert capsys.readouterr().err == "report() waits: the disk is full\n"


def test_a_disk_that_stays_full_is_told_after_its_time_and_what_follows_is_a_line_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = SpoolWriter(str(tmp_path / "reports.jsonl"))
    with monkeypatch.context() as patched:
        disk = FullDisk(patched, room=4)
        with pytest.raises(OSError, match="No space left"):
            writer.append(b"0123456789")
        assert disk.now == pytest.approx(100.0 + FULL_DISK_TIMEOUT_S, abs=0.5)

    writer.append(b"next")
    writer.close()

    assert (tmp_path / "reports.jsonl").read_bytes() == b"0123\nnext\n"


def test_one_that_must_not_wait_is_told_how_much_found_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = SpoolWriter(str(tmp_path / "reports.jsonl"))
    disk = FullDisk(monkeypatch, room=9)

    assert [writer.append_some(b"0123\n456789\n"), writer.append_some(b"456789\n")] == [5, 0]
    assert disk.now == 100.0
    writer.close()


FIRST, SECOND, OTHER = b'{"kind":"first"}', b'{"kind":"second"}', b'{"kind":"of another thread"}'


def records_in(spool: Path) -> list[bytes]:
    """Its lines that are whole objects, as the agent takes them."""
    found = []
    for line in spool.read_bytes().splitlines():
        with suppress(ValueError):
            json.loads(line)
            found.append(line)
    return sorted(found)


@pytest.mark.parametrize("room", range(len(FIRST + SECOND) + 3))
@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("is_new", [True, False])
def test_a_line_of_which_half_found_room_is_whole_also_where_another_one_writes_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_new: bool, waits: bool, room: int
) -> None:
    """The record of a checkpoint comes from the thread that wrote it, with a writer of its own; the supervisor, which
    reads the output by a pattern, and the script that reports have one each from their start on."""
    spool = tmp_path / "reports.jsonl"
    writer, others = SpoolWriter(str(spool)), [SpoolWriter(str(spool))]
    disk = FullDisk(monkeypatch, room=room, more_after_s=0.0)

    def sleep(seconds: float) -> None:
        disk.sleep(seconds)
        if is_new:
            others.append(SpoolWriter(str(spool)))
        others[-1].append(OTHER)

    monkeypatch.setattr(time, "sleep", sleep)
    if waits:
        writer.append(FIRST, SECOND)
    else:
        data = FIRST + b"\n" + SECOND + b"\n"
        data = data[writer.append_some(data) :]
        sleep(0.0)
        assert writer.append_some(data) == len(data)
    if room >= len(FIRST + SECOND) + 2 and waits:
        sleep(0.0)
    for one in (writer, *others):
        one.close()

    assert records_in(spool) == sorted([FIRST, SECOND, OTHER])


def test_that_the_last_checkpoint_was_not_saved_is_told_where_the_other_ranks_hear_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They have begun to restore, too, and would wait for this rank."""
    recording = Recording()
    monkeypatch.setattr("trials.session.restored", lambda choose, **_: recording.calls.append("restore") or choose())

    def write(_: Image) -> CheckpointRecord:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(recording, "write", write)
    with recorded(recording) as trial:
        trial.save_checkpoint({"step": 3}, step=3)
        with pytest.raises(CheckpointNotSavedError):
            trial.restore(into={})

    assert recording.calls == ["sync", "restore", "close"]

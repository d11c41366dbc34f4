"""Saving in the background: what the script waits for, and what becomes of errors."""

from __future__ import annotations

import os
import shutil
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trials.checkpoints import file_format, saving
from trials.checkpoints.file_format import Image, Imaging, read_image
from trials.checkpoints.saving import BackgroundSaver, CheckpointNotSavedError, SavingSteps
from trials.checkpoints.verified_files import write_image
from trials.session import Trial, open_trial
from trials.wire.encoding import decode_record
from trials.wire.records import CheckpointRecord

WAIT_S = 60.0


class Recorder:
    """Writes real files, and when the test lets it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.calls: list[str] = []
        self.records: list[CheckpointRecord] = []
        self.may_write = threading.Event()
        self.may_write.set()
        self.trouble: BaseException | None = None
        self.saver = BackgroundSaver(SavingSteps(sync_reports=self.sync, write=self.write, offer=self.offer))

    def sync(self) -> None:
        self.calls.append("sync")

    def write(self, image: Image) -> CheckpointRecord:
        assert self.may_write.wait(WAIT_S)
        if self.trouble is not None:
            raise self.trouble
        self.calls.append("write")
        return write_image(self.folder, image)

    def offer(self, record: CheckpointRecord) -> None:
        self.calls.append("offer")
        self.records.append(record)


@pytest.fixture
def recorder(tmp_path: Path) -> Any:
    made = Recorder(tmp_path)
    yield made
    made.may_write.set()
    made.saver.wait()


def test_the_script_goes_on_while_it_is_written_and_may_change_the_state(recorder: Recorder) -> None:
    recorder.may_write.clear()
    state = {"w": np.ones(10_000), "n": [1]}
    recorder.saver.save(state, step=3, value=0.5)
    state["w"][:] = 0
    state["n"].append(2)  # type: ignore[attr-defined]  # it is a list
    assert recorder.records == []
    recorder.may_write.set()
    recorder.saver.finish()

    (record,) = recorder.records
    found = read_image(recorder.folder / record.name)
    assert (found.step, found.state["w"].sum(), found.state["n"]) == (3, 10_000, [1])
    assert record.value == 0.5
    assert record.stall_s is not None
    assert record.write_s is not None
    assert min(record.stall_s, record.write_s) > 0


def test_reports_are_synced_before_it_is_written_and_it_is_offered_last(recorder: Recorder) -> None:
    recorder.saver.save({}, step=1)
    recorder.saver.finish()

    assert recorder.calls == ["sync", "write", "offer"]


def test_the_next_save_waits_for_the_one_before(recorder: Recorder) -> None:
    recorder.may_write.clear()
    recorder.saver.save({"n": 1, "w": np.ones(5_000)}, step=1)
    letting = threading.Timer(0.01, recorder.may_write.set)
    letting.start()
    recorder.saver.save({"n": 2, "w": np.zeros(5_000)}, step=2)
    recorder.saver.finish()
    letting.join()

    assert [read_image(recorder.folder / record.name).state["n"] for record in recorder.records] == [1, 2]


@pytest.mark.parametrize("trouble", [OSError(5, "the disk is broken"), RuntimeError("CUDA"), MemoryError()])
def test_what_goes_wrong_is_said_at_once_and_raised_by_the_next_call_once(
    recorder: Recorder, trouble: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    recorder.trouble = trouble
    recorder.saver.save({}, step=1)
    recorder.saver.wait()
    assert "the checkpoint of step 1 was not saved" in capsys.readouterr().err
    recorder.trouble = None

    with pytest.raises(CheckpointNotSavedError, match="step 1 was not saved") as told:
        recorder.saver.save({}, step=2)
    assert told.value.__cause__ is trouble
    recorder.saver.save({}, step=2)
    recorder.saver.finish()

    assert [record.step for record in recorder.records] == [2]


def test_a_state_that_cannot_be_saved_is_refused_by_the_call_itself(recorder: Recorder) -> None:
    with pytest.raises(TypeError, match=r"state\['x'\]"):
        recorder.saver.save({"x": threading.Event()}, step=1)
    assert recorder.calls == []


def test_a_child_of_a_script_that_saves_is_on_its_own(recorder: Recorder) -> None:
    recorder.may_write.clear()
    recorder.saver.save({"w": np.ones(5_000)}, step=1)
    child = os.fork()
    if child == 0:
        recorder.may_write.set()
        recorder.saver.save({"w": np.zeros(5_000)}, step=2)
        recorder.saver.finish()
        os._exit(0 if [record.step for record in recorder.records] == [2] else 1)
    assert os.waitpid(child, 0)[1] == 0
    recorder.may_write.set()
    recorder.saver.finish()

    assert [record.step for record in recorder.records] == [1]


@pytest.fixture
def trial(tmp_path: Path) -> Any:
    (tmp_path / "parameters.json").write_text("{}")
    with open_trial(environ={"TUNER_ATTEMPT_DIR": str(tmp_path), "TUNER_OBJECTIVE": "loss"}, arguments=[]) as opened:
        yield opened


def records_in(folder: Path) -> list[Any]:
    return [decode_record(line) for line in (folder / "reports.jsonl").read_text().splitlines()]


def test_a_trial_that_is_closed_or_told_to_stop_has_its_checkpoint_on_the_disk(trial: Trial, tmp_path: Path) -> None:
    trial.report(step=1, loss=0.25, other=1.0)
    trial.save_checkpoint({"w": np.ones(100_000)})
    (tmp_path / "stop.json").write_text("{}")
    assert trial.should_stop()

    found = [record for record in records_in(tmp_path) if isinstance(record, CheckpointRecord)]
    assert [(record.step, record.value) for record in found] == [(1, 0.25)]
    trial.save_checkpoint({}, step=2)
    trial.close()
    assert [r.step for r in records_in(tmp_path) if isinstance(r, CheckpointRecord)] == [1, 2]


def saved_and_failed(trial: Trial) -> None:
    trial.save_checkpoint({}, step=1)
    raise ZeroDivisionError


def test_a_script_can_wait_for_its_checkpoint_and_learns_whether_it_was_saved(tmp_path: Path) -> None:
    (tmp_path / "parameters.json").write_text("{}")
    with open_trial(environ={"TUNER_ATTEMPT_DIR": str(tmp_path)}, arguments=[]) as trial:
        trial.save_checkpoint({}, step=1)
        trial.wait_for_checkpoint()
        assert [file.suffix for file in (tmp_path / "checkpoints").iterdir()] == [".ckpt"]

        shutil.rmtree(tmp_path / "checkpoints")
        (tmp_path / "checkpoints").write_text("in the way")
        trial.save_checkpoint({}, step=2)
        with pytest.raises(CheckpointNotSavedError, match="step 2 was not saved"):
            trial.wait_for_checkpoint()


def test_an_error_of_the_last_save_comes_out_of_the_block_unless_another_one_does(tmp_path: Path) -> None:
    environ = {"TUNER_ATTEMPT_DIR": str(tmp_path)}
    (tmp_path / "parameters.json").write_text("{}")
    (tmp_path / "checkpoints").write_text("in the way")

    with pytest.raises(CheckpointNotSavedError), open_trial(environ=environ, arguments=[]) as trial:
        trial.save_checkpoint({}, step=1)
    with pytest.raises(ZeroDivisionError), open_trial(environ=environ, arguments=[]) as trial:
        saved_and_failed(trial)


def test_what_is_still_on_its_way_from_the_device_is_there_before_anything_is_written(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Copying:
        def synchronize(self) -> None:
            recorder.calls.append("wait")

    capture = Imaging.capture

    def captured(imaging: Imaging, state: Any, **fields: Any) -> Image:
        return replace(capture(imaging, state, **fields), events=(Copying(),))

    monkeypatch.setattr(Imaging, "capture", captured)
    recorder.saver.save({"a": 1}, step=1)
    recorder.saver.finish()

    assert recorder.calls == ["wait", "sync", "write", "offer"]


def test_the_time_of_writing_is_what_it_took(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(1000, 2000))
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(ticks)))
    recorder.saver.save({"a": 1}, step=1)
    recorder.saver.finish()

    (record,) = recorder.records
    assert (record.stall_s, record.write_s) == (1.0, 1.0)


def test_threads_that_save_at_once_do_so_one_after_the_other(recorder: Recorder) -> None:
    begin = threading.Barrier(4)

    def save(number: int) -> None:
        begin.wait(WAIT_S)
        for step in range(5):
            recorder.saver.save({"w": np.full(50_000, number), "n": number}, step=10 * number + step)
            recorder.saver.wait()

    threads = [threading.Thread(target=save, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    recorder.saver.finish()

    assert len(recorder.records) == 20
    for record in recorder.records:
        state = read_image(recorder.folder / record.name).state
        assert set(state["w"].tolist()) == {state["n"]} == {record.step // 10}


def test_a_signal_handler_that_waits_while_the_thread_is_being_started_joins_it_not(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread has its number before it counts as started."""

    class Starting(saving.WriterThread):
        @property
        def ident(self) -> int | None:
            return super().ident or 4711

        def start(self) -> None:
            recorder.saver.wait()
            super().start()

    monkeypatch.setattr(saving, "WriterThread", Starting)
    recorder.saver.save({}, step=1)
    recorder.saver.finish()

    assert [record.step for record in recorder.records] == [1]


def test_whoever_waits_for_a_checkpoint_is_not_told_of_one_that_another_thread_saves_meanwhile(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait = recorder.saver.wait

    def fail_to_save() -> None:
        if recorder.saver._one_at_a_time.acquire(blocking=False):  # else it would save once the other has been told
            recorder.trouble = OSError(5, "the disk is broken")
            recorder.saver.save({}, step=2)
            wait()
            recorder.saver._one_at_a_time.release()

    def wait_and_be_interrupted() -> None:
        wait()
        if threading.current_thread() is threading.main_thread():
            another = threading.Thread(target=fail_to_save)
            another.start()
            another.join(WAIT_S)

    recorder.saver.save({}, step=1)
    with monkeypatch.context() as patched:
        patched.setattr(recorder.saver, "wait", wait_and_be_interrupted)
        recorder.saver.finish()

    assert [record.step for record in recorder.records] == [1]


def test_threads_of_a_child_that_save_first_at_the_same_instant_do_so_one_after_the_other(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder.saver.save({}, step=1)
    recorder.saver.finish()
    capture, both = Imaging.capture, threading.Barrier(2)
    child = os.fork()
    if child == 0:
        recorder.records.clear()
        lock = recorder.saver._one_at_a_time
        begun: list[bool] = []

        def captured(imaging: Imaging, state: Any, **fields: Any) -> Image:
            begun.append(recorder.saver._one_at_a_time is lock)
            return capture(imaging, state, **fields)

        def save(step: int) -> None:
            both.wait(WAIT_S)
            recorder.saver.save({}, step=step)
            recorder.saver.finish()

        monkeypatch.setattr(Imaging, "capture", captured)
        threads = [threading.Thread(target=save, args=(step,)) for step in (2, 3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
        os._exit(0 if begun == [True, True] and {record.step for record in recorder.records} == {2, 3} else 1)
    assert os.waitpid(child, 0)[1] == 0


def failed_by_another_thread(
    recorder: Recorder, *, step: int, until: threading.Event, calls_again: bool = True
) -> threading.Thread:
    """A thread whose checkpoint was not saved, and that lives until the event is set."""
    there = threading.Event()

    def save() -> None:
        recorder.trouble = OSError(5, f"the disk of step {step}")
        recorder.saver.save({}, step=step)
        recorder.saver.wait()
        recorder.trouble = None
        there.set()
        until.wait(WAIT_S)
        with suppress(CheckpointNotSavedError):
            if calls_again:
                recorder.saver.save({}, step=step + 1)

    thread = threading.Thread(target=save)
    thread.start()
    assert there.wait(WAIT_S)
    return thread


def test_the_error_of_one_thread_is_not_that_of_another(recorder: Recorder) -> None:
    until = threading.Event()
    thread = failed_by_another_thread(recorder, step=1, until=until)
    recorder.saver.save({}, step=5)
    recorder.saver.finish()
    until.set()
    thread.join(WAIT_S)
    recorder.saver.finish_all()

    assert [record.step for record in recorder.records] == [5], "the other one is told where it saves step 2"


def test_whoever_waits_for_the_checkpoint_of_another_thread_is_told_that_it_was_not_saved(recorder: Recorder) -> None:
    until = threading.Event()
    thread = failed_by_another_thread(recorder, step=1, until=until)
    with pytest.raises(CheckpointNotSavedError, match="step 1 was not saved"):
        recorder.saver.finish()
    until.set()
    thread.join(WAIT_S)
    recorder.saver.finish_all()

    assert [record.step for record in recorder.records] == [2]


def test_the_error_of_a_thread_that_has_ended_is_told_to_the_next_one(recorder: Recorder) -> None:
    until = threading.Event()
    thread = failed_by_another_thread(recorder, step=1, until=until, calls_again=False)
    until.set()
    thread.join(WAIT_S)

    with pytest.raises(CheckpointNotSavedError, match="step 1 was not saved"):
        recorder.saver.save({}, step=5)


def test_no_error_is_lost_of_threads_that_never_call_again(recorder: Recorder) -> None:
    until = threading.Event()
    threads = [failed_by_another_thread(recorder, step=step, until=until, calls_again=False) for step in (1, 3)]
    recorder.saver.save({}, step=5)
    with pytest.raises(CheckpointNotSavedError, match="step 1 was not saved") as told:
        recorder.saver.finish_all()
    assert ["step 3 was not saved" in note for note in told.value.__notes__] == [True]
    until.set()
    for thread in threads:
        thread.join(WAIT_S)


def test_a_save_that_is_refused_for_an_earlier_one_says_so(recorder: Recorder) -> None:
    recorder.trouble = OSError(5, "the disk is broken")
    recorder.saver.save({}, step=1)
    with pytest.raises(CheckpointNotSavedError, match="step 1 was not saved") as told:
        recorder.saver.save({}, step=2)

    assert told.value.__notes__ == ["that of step 2 was not begun"]


@pytest.mark.parametrize("moment", ["while it copies", "before its thread begins"])
def test_a_signal_handler_that_saves_in_the_middle_of_a_save_spoils_neither(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    interrupted: list[str] = []

    def interrupt(at: str) -> None:
        if at == moment and not interrupted:
            interrupted.append(at)
            recorder.saver.save({"w": np.zeros(50_000)}, step=2)

    copy, start = file_format._copy, saving.WriterThread.start

    def copied(*arguments: Any) -> Any:
        result = copy(*arguments)
        interrupt("while it copies")
        return result

    def started(thread: saving.WriterThread) -> None:
        interrupt("before its thread begins")
        start(thread)

    monkeypatch.setattr(file_format, "_copy", copied)
    monkeypatch.setattr(saving.WriterThread, "start", started)
    recorder.saver.save({"w": np.ones(50_000)}, step=1)
    recorder.saver.finish()

    found = {record.step: read_image(recorder.folder / record.name).state["w"] for record in recorder.records}
    assert {step: set(w.tolist()) for step, w in found.items()} == {1: {1.0}, 2: {0.0}}

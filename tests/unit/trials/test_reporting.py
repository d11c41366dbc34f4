from __future__ import annotations

import json
import math
import os
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.waiting import wait_until
from trials.reports.sinks import SpoolSink, TerminalSink, Waker, numbers
from trials.reports.spool_writer import METRICS_LIMIT, ReportsLostError, ReportTooLargeError, SpoolWriter
from trials.session import Trial, init, open_trial
from trials.wire.encoding import decode_record
from trials.wire.lines import metric_line
from trials.wire.records import CheckpointRecord, MetricRecord


@pytest.fixture
def trial(tmp_path: Path) -> Any:
    (tmp_path / "parameters.json").write_text('{"lr": 0.1, "nested": {"a": [1, 2]}}')
    with open_trial(environ=environment(tmp_path), arguments=[], defaults={"lr": 1, "batch": 8}) as opened:
        yield opened


def environment(folder: Path) -> dict[str, str]:
    return {
        "TUNER_ATTEMPT_DIR": str(folder),
        "TUNER_EXPERIMENT_ID": "exp",
        "TUNER_TRIAL_NUMBER": "12",
        "TUNER_ATTEMPT": "2",
        "TUNER_SEED": "99",
        "TUNER_OBJECTIVE": "accuracy",
    }


def records(folder: Path) -> list[Any]:
    return [decode_record(line) for line in (folder / "reports.jsonl").read_text().splitlines()]


def test_a_trial_knows_who_it_is_and_its_parameters(trial: Trial) -> None:
    assert (trial.experiment_id, trial.number, trial.attempt, trial.seed) == ("exp", 12, 2, 99)
    assert trial.parameters == {"lr": 0.1, "nested": {"a": [1, 2]}, "batch": 8}


@pytest.mark.parametrize("report", ["report", "report_final"])
def test_a_line_break_in_the_name_of_a_metric_costs_no_trial_its_life(
    trial: Trial, tmp_path: Path, capsys: pytest.CaptureFixture[str], report: str
) -> None:
    label = f"{report} of cat\n"  # as read from a file of labels
    for _ in range(2):
        getattr(trial, report)({label: 0.5, "loss": 0.25, "Verlust \u00a0": 1})

    told = [record.values for record in records(tmp_path)]
    assert told == [{f"{report} of cat\ufffd": 0.5, "loss": 0.25, "Verlust \u00a0": 1.0}] * 2
    said = capsys.readouterr().err
    assert said == f"the name of a metric is one line of text: {label!r} is reported as {report} of cat\ufffd\n"


def test_the_objective_keeps_its_name_whatever_that_is() -> None:
    assert numbers({"a\nb": 1, "a\rb": 2}, objective="a\nb") == {"a\nb": 1.0, "a\ufffdb": 2.0}


def test_metrics_whose_names_differ_in_a_control_character_alone_are_both_reported() -> None:
    found = numbers({"a\n": 1, "a\r": 2, "b\n": 3, "c\n": 4, "c\ufffd": 5})

    assert found == {"a\\n": 1.0, "a\\r": 2.0, "b\ufffd": 3.0, "c\\n": 4.0, "c\ufffd": 5.0}


@pytest.mark.parametrize("report", ["report", "report_final"])
def test_a_report_that_the_service_would_refuse_is_an_error_in_the_script(
    trial: Trial, tmp_path: Path, report: str
) -> None:
    limit = METRICS_LIMIT
    with pytest.raises(ValueError, match=r"this report has 1001 metrics, and at most 1000 can be sent"):
        getattr(trial, report)({f"m{number}": 1.0 for number in range(limit + 1)})
    with pytest.raises(ValueError, match=r"200 characters at most, and 'xxx.*… has 201"):
        getattr(trial, report)({"x" * 201: 1.0})
    assert records(tmp_path) == []

    getattr(trial, report)({f"m{number}": 1.0 for number in range(limit - 1)} | {"x" * 200: 1.0})
    assert len(records(tmp_path)) == 1


@pytest.mark.parametrize("harm", ["cut", "removed", "replaced", "cut and filled"])
def test_reports_that_are_lost_are_an_error_in_the_script(trial: Trial, tmp_path: Path, harm: str) -> None:
    spool = tmp_path / "reports.jsonl"
    for _ in range(5):
        trial.report(loss=0.5)
    if harm.startswith("cut"):
        spool.write_bytes(b"x" * 20 if "filled" in harm else b"")
    else:
        spool.unlink()
    if harm == "replaced":
        spool.touch()

    with pytest.raises(ReportsLostError, match=r"reports.jsonl was cut, removed or replaced while the trial ran"):
        trial.report(loss=0.5)
    with pytest.raises(ReportsLostError):
        trial.close()


def test_reports_that_are_lost_after_the_last_of_them_are_an_error_of_the_with_block(tmp_path: Path) -> None:
    (tmp_path / "parameters.json").write_text("{}")

    def script(*, fails: bool) -> None:
        with open_trial(environ=environment(tmp_path), arguments=[]) as trial:
            trial.report_final(accuracy=1)
            (tmp_path / "reports.jsonl").write_bytes(b"")
            if fails:
                raise KeyError("its own")

    with pytest.raises(ReportsLostError):
        script(fails=False)
    with pytest.raises(KeyError, match="its own"):
        script(fails=True)


@pytest.mark.parametrize("what", ["pipe", "endless", b'{"offset": 1e999}', b"[" * 3000])
def test_what_stands_in_place_of_what_was_taken_does_not_hold_a_writer_up(tmp_path: Path, what: str | bytes) -> None:
    path = tmp_path / "acknowledged.json"
    if what == "pipe":
        os.mkfifo(path)
    elif what == "endless":
        path.symlink_to("/dev/zero")
    else:
        path.write_bytes(bytes(what))  # type: ignore[arg-type]  # the two texts are above
    writer = SpoolWriter(str(tmp_path / "reports.jsonl"), acknowledged=str(path), limit=10)
    writer.append(b"x" * 20)

    assert writer.is_full()
    writer.close()


def test_a_report_is_one_record_the_service_can_read(trial: Trial, tmp_path: Path) -> None:
    trial.report(step=3, loss=0.5, accuracy=1)
    trial.report_final({"val/accuracy": 0.75})

    first, final = records(tmp_path)
    assert first == MetricRecord(step=3, values={"loss": 0.5, "accuracy": 1.0}, at=first.at, final=False)
    assert final == MetricRecord(step=None, values={"val/accuracy": 0.75}, at=final.at, final=True)


def test_steps_count_on_from_the_last_one(trial: Trial, tmp_path: Path) -> None:
    trial.report(loss=1)
    trial.report(loss=1)
    trial.report(step=np.int64(10), loss=1)
    trial.report(loss=1)

    assert [record.step for record in records(tmp_path)] == [0, 1, 10, 11]


@pytest.mark.parametrize("value", [1, 1.0, True, np.float32(1), np.int8(1), np.array(1.0), np.array([1]), Decimal(1)])
def test_anything_that_is_one_real_number_can_be_reported(value: Any) -> None:
    found = numbers({"loss": value})["loss"]

    assert (type(found), found) == (float, 1.0)


def test_nan_and_infinity_are_values(trial: Trial, tmp_path: Path) -> None:
    trial.report(a=math.nan, b=-math.inf)

    values = records(tmp_path)[0].values
    assert math.isnan(values["a"])
    assert values["b"] == -math.inf


@pytest.mark.parametrize("value", ["0.5", None, 1j, [1.0], np.array([1, 2]), np.array("1"), 10**400, {}])
def test_what_is_no_real_number_is_refused_by_name(trial: Trial, tmp_path: Path, value: Any) -> None:
    with pytest.raises(TypeError, match="metric 'loss'"):
        trial.report(accuracy=1.0, loss=value)

    assert records(tmp_path) == []


@pytest.mark.parametrize(
    ("step", "error"), [(-1, ValueError), (2**60, ValueError), (True, TypeError), (1.5, TypeError)]
)
def test_a_step_is_a_whole_number_from_zero_on(trial: Trial, step: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        trial.report(step=step, loss=1)


def test_a_step_that_is_no_whole_number_is_shown(trial: Trial) -> None:
    with pytest.raises(TypeError, match=r"^step is a whole number, not 1\.5, a float$"):
        trial.report(step=1.5, loss=1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"^step is between 0 and 9007199254740992, not beyond it$"):
        trial.report(step=10**9999, loss=1)


def test_a_signal_handler_or_thread_may_report_in_the_middle_of_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = SpoolWriter(str(tmp_path / "reports.jsonl"))
    write = os.write
    within = [b"from a handler"]

    def write_and_be_interrupted(descriptor: int, data: Any) -> int:
        written = write(descriptor, data)
        if within:
            writer.append(within.pop())
        return written

    monkeypatch.setattr(os, "write", write_and_be_interrupted)
    writer.append(b"a line")
    writer.append(b"another")
    monkeypatch.undo()
    writer.close()

    assert (tmp_path / "reports.jsonl").read_text().splitlines() == ["a line", "from a handler", "another"]


def test_a_script_that_closes_the_descriptors_of_others_reports_on_and_its_own_files_are_left_alone(
    trial: Trial, tmp_path: Path
) -> None:
    trial.report(step=0, accuracy=1)
    closed = trial._sink._writer._descriptor  # type: ignore[attr-defined]
    own = os.open(tmp_path / "own", os.O_RDWR | os.O_CREAT)
    os.dup2(own, closed)

    trial.report(step=1, accuracy=1)
    trial.close()

    assert [record.step for record in records(tmp_path)] == [0, 1]
    assert (tmp_path / "own").read_bytes() == b""
    os.close(closed)  # still its own
    os.close(own)


def test_a_script_that_closes_the_descriptors_of_others_before_its_first_report_reports(
    trial: Trial, tmp_path: Path
) -> None:
    os.close(trial._sink._writer._descriptor)  # type: ignore[attr-defined]

    trial.report(step=0, accuracy=1)

    assert [record.step for record in records(tmp_path)] == [0]


def test_a_waker_whose_socket_was_closed_sends_nothing_to_what_has_its_number(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as agent, socket.socket(socket.AF_UNIX) as own:
        agent.bind(str(tmp_path / "wake"))
        waker = Waker(str(tmp_path / "wake"), b"n")
        waker.wake()
        number = waker._socket.fileno()  # type: ignore[union-attr]
        os.dup2(own.fileno(), number)

        waker.forget()
        waker.close()

        os.close(number)  # it was not closed


def test_an_empty_report_is_refused(trial: Trial) -> None:
    with pytest.raises(TypeError, match="at least one metric"):
        trial.report()


def test_a_report_that_is_too_large_is_refused(trial: Trial, tmp_path: Path) -> None:
    with pytest.raises(ReportTooLargeError, match="65536"):
        trial.report({f"metric-{number}": 1.0 for number in range(10_000)})

    assert records(tmp_path) == []


def test_a_closed_trial_refuses_reports(trial: Trial) -> None:
    trial.close()

    with pytest.raises(RuntimeError, match="inside its `with` block"):
        trial.report(loss=1)
    assert not trial.should_stop()


def test_a_line_that_an_earlier_writer_tore_is_closed_off(tmp_path: Path) -> None:
    spool = tmp_path / "reports.jsonl"
    spool.write_bytes(b'{"kind":"metric","step":')

    writer = SpoolWriter(str(spool))
    writer.append(metric_line(step=0, values={"loss": 1.0}, at=1.0, final=False))
    writer.append(metric_line(step=1, values={"loss": 1.0}, at=1.0, final=False))
    writer.close()

    torn, *whole = spool.read_text().splitlines()
    assert torn == '{"kind":"metric","step":'
    assert [json.loads(line)["step"] for line in whole] == [0, 1]


def test_a_spool_is_full_until_the_service_has_acknowledged_enough(tmp_path: Path) -> None:
    acknowledged = tmp_path / "acknowledged.json"
    writer = SpoolWriter(str(tmp_path / "reports.jsonl"), acknowledged=str(acknowledged), limit=10)
    assert not writer.is_full()
    for _ in range(40):
        writer.append(b"x" * 60_000)
    assert writer.is_full()

    acknowledged.write_text('{"sequence": 40, "offset": 2400040}')

    assert not writer.is_full()
    writer.close()


def test_a_report_wakes_the_agent_by_the_nonce_of_its_attempt(tmp_path: Path) -> None:
    folder = tmp_path / "2-abc-def"
    folder.mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as agent:
        agent.bind(str(tmp_path / "wake"))
        agent.setblocking(False)
        sink = SpoolSink(folder, str(tmp_path / "wake"))
        sink.metrics(step=0, values={"loss": 1.0}, final=False)
        sink.close()

        assert agent.recv(64) == b"abc-def"


def test_the_agent_is_woken_and_its_death_harms_nothing(tmp_path: Path) -> None:
    path = tmp_path / "wake"
    waker = Waker(str(path))
    waker.wake()  # there is none yet
    agent = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    agent.bind(str(path))
    agent.setblocking(False)

    def heard() -> bytes | None:
        waker.wake()
        try:
            return agent.recv(10)
        except BlockingIOError:
            return None

    assert wait_until(heard)
    for _ in range(2_000):  # more than its queue takes
        waker.wake()
    agent.close()
    waker.wake()
    waker.close()


def test_a_stop_is_seen_and_the_first_question_is_announced(trial: Trial, tmp_path: Path) -> None:
    assert not trial.should_stop()
    assert [record.kind for record in records(tmp_path)] == ["cooperates"]
    assert (tmp_path / "cooperates").exists()

    (tmp_path / "stop.json").write_text("{}")

    assert trial.should_stop()
    assert trial.should_stop()
    trial.report_final(loss=0.5)
    assert [record.kind for record in records(tmp_path)] == ["cooperates", "stop_told", "metric"]


def test_a_sink_writes_what_it_is_given_without_an_agent(tmp_path: Path) -> None:
    sink = SpoolSink(tmp_path, None)
    sink.metrics(step=0, values={"loss": 1.0}, final=False)
    sink.sync()
    sink.close()

    assert len(records(tmp_path)) == 1


def test_a_checkpoint_is_told_with_the_trials_next_line_or_at_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    sink = TerminalSink()
    record = CheckpointRecord(step=1, name="one.ckpt", digest="d", size=1, at=0.0)
    teller = threading.Thread(target=sink.checkpoint, args=(record,))  # as the thread that wrote it

    sys.stdout.write("half of a line, ")
    teller.start()
    teller.join()
    sys.stdout.write("the other half\n")
    sink.metrics(step=2, values={"loss": 0.5}, final=False)
    sink.checkpoint(replace(record, step=2))
    sink.close()

    assert capsys.readouterr().out.splitlines() == [
        "half of a line, the other half",
        "checkpoint of step 1: one.ckpt",
        "step 2: loss=0.5",
        "checkpoint of step 2: one.ckpt",
    ]


def test_a_spool_of_just_the_limit_is_not_full_and_one_byte_more_is(tmp_path: Path) -> None:
    for limit, full in ((21, False), (20, True)):
        writer = SpoolWriter(str(tmp_path / f"{limit}.jsonl"), limit=limit)
        writer.append(b"x" * 20)
        assert writer.is_full() is full
        writer.close()


@pytest.mark.parametrize("length", [60, 61])
def test_a_long_value_is_shown_shortly(length: int) -> None:
    with pytest.raises(TypeError) as raised:
        numbers({"loss": "x" * (length - 2)})

    assert ("x" * 56 + "..." in str(raised.value)) == (length > 60)
    assert "x" * 57 + "..." not in str(raised.value)


@pytest.mark.parametrize(
    "report",
    [lambda trial: trial.report(0.5), lambda trial: trial.report_final("accuracy"), lambda trial: trial.report([1])],
)
def test_a_value_without_a_name_is_refused_with_an_example(trial: Trial, report: Callable[[Trial], object]) -> None:
    with pytest.raises(TypeError, match=r"a metric has a name, as in report\(loss=0.2\)"):
        report(trial)


def test_defaults_and_listeners_are_what_they_have_to_be(trial: Trial) -> None:
    with pytest.raises(
        TypeError, match=r"defaults are a mapping of parameters, as init\(\{'lr': 0.1\}\), not \['lr'\]"
    ):
        init(["lr"])  # type: ignore[arg-type]  # what is tested
    with pytest.raises(TypeError, match="a listener is a function of a step and its values, not 5"):
        trial.on_report(5)  # type: ignore[arg-type]  # what is tested

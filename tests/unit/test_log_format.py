"""The lines of all logs have one form: a constant event, and fields that a program reads back, whatever they hold."""

from __future__ import annotations

import ast
import json
import logging
import math
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trials.wire import log_format
from trials.wire.attempt import AttemptKey
from trials.wire.log_format import REPEATS, REPEATS_S, SENTENCES, FewRepeats, LogFormatter
from trials.wire.log_lines import (
    FIELD_CHARACTERS,
    HIDDEN,
    LINE_CHARACTERS,
    TRACEBACK_CHARACTERS,
    LogForm,
    form_named,
)
from trials.wire.log_lines import (
    OWN_FIELDS as RESERVED,
)

ROOT = Path(__file__).resolve().parents[2]
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}
OWN_FIELDS = {*logging.makeLogRecord({}).__dict__, "message", "asctime"}  # logging raises KeyError for these
EVENT = re.compile(r"[a-z][a-z0-9_]*")
FIELD = re.compile(r' (\w+)=("(?:\\.|[^"\\])*"|\S+)')
FORMS = (LogForm.TEXT, LogForm.JSON)
AT = 1_767_323_045.6784  # 2026-01-02T03:04:05.678Z
TOKEN = "Xp2h9M-kQ0_LrT7vW3yZ5aB8cD1eF4gH6iJ9kL2mN0o"
HOSTILE = (
    "\nplain",
    '\r\n2026-01-02T03:04:05.678Z error trials.agent event="forged"',
    '","event":"forged","x":"',
    "next \x85 line \u2028 separator \u2029 paragraph",
    "\x1b[31mred\x9b0m",
    "\u202eright to left\u2066",
    "\x00nul \ud800 half",
    "\U000e0041 tag \u200b nothing",
    '\\" back',
)


def line_of(event: str, /, *, form: LogForm = LogForm.TEXT, logger: str = "trials.agent", **fields: Any) -> str:
    record = logging.LogRecord(logger, logging.WARNING, __file__, 1, event, None, None)
    record.created = AT
    record.__dict__.update(fields)
    return LogFormatter(form).format(record)


def read(line: str) -> dict[str, Any]:
    return {name: json.loads(text) if text[0] == '"' else text for name, text in FIELD.findall(line)}


def fields_of(form: LogForm, **fields: Any) -> dict[str, Any]:
    line = line_of("seen", form=form, **fields)
    assert line.isprintable()
    return json.loads(line) if form is LogForm.JSON else read(line)


# ── the form ────────────────────────────────────────────────────────────────────────────────────
def test_a_line_of_text_has_its_time_in_utc_level_logger_event_and_fields() -> None:
    line = line_of("trial_moved", trial=3, attempt=2, share=0.5, pid=None, alive=True, path="/a b")

    assert line == (
        '2026-01-02T03:04:05.678Z warning trials.agent event="trial_moved" trial=3 attempt=2 share=0.5 pid=null '
        'alive=true path="/a b"'
    )


def test_a_line_of_json_has_the_same_with_the_types_they_have() -> None:
    line = line_of("trial_moved", form=LogForm.JSON, trial=3, share=0.5, pid=None, alive=True, path="/a b")

    assert json.loads(line) == {
        "time": "2026-01-02T03:04:05.678Z", "level": "warning", "logger": "trials.agent", "event": "trial_moved",
        "trial": 3, "share": 0.5, "pid": None, "alive": True, "path": "/a b",
    }  # fmt: skip


def test_automatically_it_is_text_on_a_terminal_and_json_everywhere_else(tmp_path: Path) -> None:
    class Terminal:
        def __init__(self, *, closed: bool = False) -> None:
            self.closed = closed

        def isatty(self) -> bool:
            if self.closed:
                raise ValueError
            return True

    with (tmp_path / "log").open("w") as file:
        assert LogForm.AUTO.on(file) is LogForm.JSON
        assert LogForm.TEXT.on(file) is LogForm.TEXT
    assert LogForm.AUTO.on(None) is LogForm.JSON
    assert LogForm.AUTO.on(Terminal()) is LogForm.TEXT
    assert LogForm.AUTO.on(Terminal(closed=True)) is LogForm.JSON
    assert LogForm.JSON.on(Terminal()) is LogForm.JSON
    assert [form_named(name) for name in (None, "", "xml", "json")] == [LogForm.AUTO] * 3 + [LogForm.JSON]


@pytest.mark.parametrize("form", FORMS)
def test_an_attempt_is_its_experiment_its_trial_and_its_number(form: LogForm) -> None:
    found = fields_of(form, attempt=AttemptKey(experiment_id="8f3k2", number=12, attempt=2), nonce="n")

    assert [str(found[name]) for name in ("experiment", "trial", "attempt", "nonce")] == ["8f3k2", "12", "2", "n"]


@pytest.mark.parametrize("form", FORMS)
def test_the_sentence_of_a_library_is_a_field_and_no_event(form: LogForm) -> None:
    line = line_of("Task was destroyed\nbut is pending!", form=form, logger="asyncio")

    found = json.loads(line) if form is LogForm.JSON else read(line)
    assert (found["event"], found["message"]) == ("message", "Task was destroyed\nbut is pending!")


def test_a_sentence_that_does_not_fit_its_values_is_said_as_it_is() -> None:
    record = logging.LogRecord("asyncio", logging.ERROR, __file__, 1, "%d of %s", ("x",), None)

    assert json.loads(LogFormatter(LogForm.JSON).format(record))["message"] == "%d of %s"


def a_record(message: str, at: float, logger: str = "uvicorn.error") -> logging.LogRecord:
    record = logging.LogRecord(logger, logging.WARNING, __file__, 1, message, None, None)
    record.created = at
    return record


def test_a_library_that_repeats_itself_is_heard_so_often_in_a_minute_and_then_again() -> None:
    few = FewRepeats()

    said = [few.filter(a_record("Invalid HTTP request received.", AT + place / 100)) for place in range(100)]
    other = few.filter(a_record("another sentence", AT + 1))
    later = a_record("Invalid HTTP request received.", AT + REPEATS_S)

    assert said == [True] * REPEATS + [False] * (100 - REPEATS)
    assert other
    assert few.filter(later)
    assert json.loads(LogFormatter(LogForm.JSON).format(later))["left_unsaid"] == 100 - REPEATS


def test_our_own_events_are_never_left_out_and_what_is_remembered_of_others_is_bounded() -> None:
    few = FewRepeats()

    assert all(few.filter(a_record("launched", AT, "trials.agent")) for _ in range(10 * REPEATS))
    assert all(few.filter(a_record(f"sentence {number}", AT)) for number in range(10 * SENTENCES))
    assert len(few._said) <= SENTENCES


# ── hostile values ──────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("text", HOSTILE, ids=repr)
def test_whatever_a_field_holds_it_is_one_line_that_can_be_read_back(form: LogForm, text: str) -> None:
    found = fields_of(form, error=text, other="kept")

    assert found["error"] == re.sub("[\x00\ud800-\udfff]", "\ufffd", text)
    assert (found["event"], found["other"]) == ("seen", "kept")


@given(st.text(alphabet=st.characters(), max_size=50), st.sampled_from(FORMS))
def test_any_text_is_one_printable_line(text: str, form: LogForm) -> None:
    line = line_of(text or "seen", form=form, error=text)

    assert line.isprintable()
    assert line.encode().decode() == line
    if form is LogForm.JSON:
        json.loads(line)


def test_any_value_is_valid_json() -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    hostile = (math.nan, math.inf, -math.inf, 10**5_000, 2**63, -(2**64), 1e308, b"\xff", {"a": 1}, Path("/a"), print)
    for value in hostile:
        found = json.loads(line_of("seen", form=LogForm.JSON, value=value), parse_constant=refuse)
        assert isinstance(found["value"], str | float)


class _HasNoText:
    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize("form", FORMS)
def test_an_object_that_has_no_text_does_not_cost_the_line(form: LogForm) -> None:
    assert "_HasNoText" in str(fields_of(form, error=_HasNoText())["error"])


@pytest.mark.parametrize("form", FORMS)
def test_a_field_that_is_called_as_one_of_the_lines_own_does_not_take_its_place(form: LogForm) -> None:
    found = fields_of(form, event="forged", level="debug", time="never")

    assert (found["event"], found["event_"]) == ("seen", "forged")


@pytest.mark.parametrize("form", FORMS)
def test_a_line_is_bounded_and_says_what_it_left_out(form: LogForm) -> None:
    found = fields_of(form, **{f"field{number}": "\U000e0041" * 9_999 for number in range(20)})
    line = line_of("x" * 9_999, form=form, **{f"field{number}": "x" * 9_999 for number in range(90)})

    assert int(found["left_out"]) == 19
    assert len(found["field0"]) == FIELD_CHARACTERS
    assert len(line) < LINE_CHARACTERS + 2 * FIELD_CHARACTERS


def test_what_a_thread_does_not_catch_is_said(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "excepthook", log_format._thread_failed)

    def fails() -> None:
        raise ValueError("of a thread")

    thread = threading.Thread(target=fails, name="one of many")
    thread.start()
    thread.join()

    (record,) = caplog.records
    said = json.loads(LogFormatter(LogForm.JSON).format(record))
    assert (said["event"], said["thread_name"]) == ("thread_failed", "one of many")
    assert "ValueError: of a thread" in said["traceback"]


def failed(message: str) -> tuple[Any, Any, Any]:
    try:
        raise KeyError(message)
    except KeyError as exc:
        return (KeyError, exc, exc.__traceback__)


def test_a_traceback_stands_below_the_line_of_text_where_none_of_its_lines_looks_like_another() -> None:
    class Error(Exception):
        pass

    forged = '\n2026-01-02T03:04:05.678Z error trials.agent event="forged"\u2028 \x1b[31m'
    error = Error(forged)
    record = logging.LogRecord("trials.l", logging.ERROR, __file__, 1, "failed", None, (Error, error, None))

    first, *below = LogFormatter(LogForm.TEXT).format(record).split("\n")

    assert first.endswith('event="failed"')
    assert any('event="forged"' in line for line in below)
    assert all(line.startswith("  ") and line.isprintable() for line in below)


def test_a_traceback_is_a_field_of_json_and_its_end_is_kept() -> None:
    record = logging.LogRecord("trials.l", logging.ERROR, __file__, 1, "failed", None, failed("a" * 50_000))

    line = LogFormatter(LogForm.JSON).format(record)

    assert line.isprintable()
    assert len(json.loads(line)["traceback"]) == TRACEBACK_CHARACTERS
    assert json.loads(line)["traceback"].endswith("a'")


# ── secrets ─────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "text",
    [
        f"Authorization: Bearer {TOKEN}",
        "sent 'authorization': 'Bearer hunter2-short'",
        f"the token {TOKEN} is not known",
        f"/login#code={TOKEN}",
        "cookie: tuner_session_memory=hunter2; other=1",
        "tuner_session_0123=hunter2",
        "postgresql://tuner:hunter2@host/db",
        "s3://bucket?secret=hunter2&x=1",
        '{"password": "hunter2"}',
        "AWS_SECRET_ACCESS_KEY hunter token=hunter2",
        "api_key = hunter2",
    ],
)
def test_what_stands_for_a_secret_is_hidden_wherever_it_stands(form: LogForm, text: str) -> None:
    record = logging.LogRecord("trials.l", logging.ERROR, __file__, 1, "failed", None, failed(text))
    record.__dict__.update(error=text, other=OSError(text))

    for line in (LogFormatter(form).format(record), line_of(text, form=form, logger="uvicorn.error")):
        assert "hunter2" not in line
        assert TOKEN not in line
        assert HIDDEN in line


@pytest.mark.parametrize("form", FORMS)
def test_a_field_that_is_called_a_secret_is_hidden(form: LogForm) -> None:
    found = fields_of(form, token="a b", api_key=7, password=None, tokens_of="x", digest="d" * 64)

    assert {found[name] for name in ("token", "api_key", "password", "tokens_of")} == {HIDDEN}
    assert found["digest"] == "d" * 64


def test_looking_for_secrets_costs_as_much_as_the_text_is_long() -> None:
    begun = time.process_time()
    for text in ("token" * 9_999, "://" * 9_999, "a" * 50_000, "bearer " * 9_999, "=" * 50_000, "://a:" + "b" * 50_000):
        line_of("seen", error=text, other=text)

    assert time.process_time() - begun < 2


# ── who logs ────────────────────────────────────────────────────────────────────────────────────
def test_every_call_of_a_logger_names_a_constant_event_and_puts_data_into_fields() -> None:
    offenders, calls = [], 0
    for file in [*(ROOT / "trials").rglob("*.py"), *(ROOT / "tuner_service").rglob("*.py")]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LEVELS):
                continue
            if not (isinstance(node.func.value, ast.Name) and node.func.value.id in {"log", "logger"}):
                continue
            calls += 1
            event = node.args[0] if len(node.args) == 1 else None
            is_event = isinstance(event, ast.Constant) and EVENT.fullmatch(str(event.value)) is not None
            given = {keyword.arg: keyword.value for keyword in node.keywords}
            extra = given.get("extra")
            names = {ast.unparse(key).strip("'") for key in extra.keys if key} if isinstance(extra, ast.Dict) else set()
            if not is_event or set(given) - {"extra", "exc_info"} or names & {*OWN_FIELDS, *RESERVED}:
                offenders.append(f"{file.relative_to(ROOT)}:{node.lineno}")

    assert calls > 50
    assert not offenders

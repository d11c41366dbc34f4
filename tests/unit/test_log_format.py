"""The lines of all logs have one form: a constant event, and fields that a program reads back."""

from __future__ import annotations

import ast
import json
import logging
import re
from pathlib import Path
from typing import Any

from trials.wire.log_format import FIELD_CHARACTERS, LogFormatter

ROOT = Path(__file__).resolve().parents[2]
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}
OWN_FIELDS = {*logging.makeLogRecord({}).__dict__, "message", "asctime"}  # logging raises KeyError for these
EVENT = re.compile(r"[a-z][a-z0-9_]*")
FIELD = re.compile(r' (\w+)=("(?:\\.|[^"\\])*"|\S+)')


def line_of(event: str, **fields: Any) -> str:
    record = logging.LogRecord("trials.agent", logging.WARNING, __file__, 1, event, None, None)
    record.__dict__.update(fields)
    return LogFormatter().format(record)


def read(line: str) -> dict[str, Any]:
    return {name: json.loads(text) if text[0] == '"' else text for name, text in FIELD.findall(line)}


def test_a_line_has_its_time_level_logger_event_and_fields() -> None:
    line = line_of("trial_moved", trial_id="e/3", attempt=2, share=0.5, pid=None, alive=True)

    found = re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (.*)", line)
    assert found is not None
    assert found[1] == ('warning trials.agent event="trial_moved" trial_id=e/3 attempt=2 share=0.5 pid=null alive=true')


def test_whatever_a_field_holds_it_is_one_line_that_can_be_read_back() -> None:
    texts = ["", "two words", 'a "quote"', "a=b", "line\nbreak", "back\\slash", "häß", "\x1b[31m", "'"]
    fields = {f"field{number}": text for number, text in enumerate(texts)}

    line = line_of("seen", **fields)

    assert "\n" not in line
    assert "\x1b" not in line
    assert read(line) == {"event": "seen", **fields}


def test_objects_are_their_text_and_long_texts_are_cut() -> None:
    found = read(line_of("seen", error=OSError(28, "No space left"), long="x" * 10 * FIELD_CHARACTERS, path=Path("/a")))

    assert found["error"] == "[Errno 28] No space left"
    assert found["long"] == "x" * FIELD_CHARACTERS
    assert found["path"] == "/a"


def test_a_traceback_stands_below_the_line() -> None:
    try:
        raise KeyError("a")
    except KeyError as exc:
        record = logging.LogRecord("l", logging.ERROR, __file__, 1, "failed", None, (KeyError, exc, exc.__traceback__))

    first, *below = LogFormatter().format(record).splitlines()

    assert first.endswith('event="failed"')
    assert below[0].startswith("Traceback")
    assert below[-1] == "KeyError: 'a'"


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
            if not is_event or set(given) - {"extra", "exc_info"} or names & OWN_FIELDS:
                offenders.append(f"{file.relative_to(ROOT)}:{node.lineno}")

    assert calls > 50
    assert not offenders


def test_a_field_with_half_a_surrogate_pair_can_be_written() -> None:
    line = line_of("trial_said", text="a \ud800 b")

    assert line.encode().decode() == line
    assert read(line)["text"] == "a \ufffd b"

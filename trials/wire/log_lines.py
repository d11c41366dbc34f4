"""The one form of the lines of every log, as JSON for programs or as text for people:

    {"time":"2026-01-02T03:04:05.678Z","level":"warning","logger":"trials.agent","event":"stopping","trial":3}
    2026-01-02T03:04:05.678Z warning trials.agent event="stopping" trial=3

The event is a constant in snake case; what it is about stands in fields. So a line is found by its event and read by a
program without knowledge of its sentence. Whatever a field holds, a line is one line, has no control character and no
direction mark, is bounded, and shows no secret. Standard library only and quick to import: fork servers write it, too.
"""

from __future__ import annotations

import json
import math
import re
import sys
import time
from collections.abc import Mapping
from enum import StrEnum
from typing import TextIO

from trials.wire.texts import valid_text

FIELD_CHARACTERS = 2_000  # of one field; the rest is cut
TRACEBACK_CHARACTERS = 8_000  # the end of one, which says what was raised
LINE_CHARACTERS = 32_000  # of a line; what fields have no room are counted in `left_out`
ENV_LOG_FORMAT = "TUNER_LOG_FORMAT"
OWN_FIELDS = ("time", "level", "logger", "event", "traceback", "left_out")
HIDDEN = "***"
_WHOLE_MAX = 2**63  # beyond, programs read another number
_BARE = re.compile(r"[\w./:@%+,-]+")  # a text that needs no quotes
_UNPRINTABLE = re.compile(r"[^\x20-\x7e]")
# What stands for a secret wherever it comes from: in a header, a cookie, an address, a setting.
_SECRET_NAME = re.compile("(?i)token|secret|passw|passphrase|api_?key|credential|authorization|cookie")
_SECRET = re.compile(
    r"""(?x)
    ((?i:\b(?:bearer|basic)\ +)) [^\s"',;]+
    | ((?i:token|secret|passw(?:or)?d|passphrase|api[_-]?key|credential|authorization|cookie)s?
       ["']?\ {0,9}[=:]\ {0,9}["']?) (?!\s|(?i:bearer|basic)\b) [^\s"'&,;})\]]+
    | (\btuner_session_\w+=) [^\s"';,]+
    | (\#code=) [\w-]+
    | (://[^/@:?\#\s]*:) [^/?\#\s@]+ (?=@)
    # What all tokens, codes and sessions of a service look like: 32 random bytes in base64.
    | (?<![\w-]) (?=[a-z0-9_-]{0,42}[A-Z]) (?=[A-Z0-9_-]{0,42}[a-z]) [\w-]{43} (?![\w-])
    """
)


class LogForm(StrEnum):
    """``AUTO``: text on a terminal, JSON everywhere else."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"

    def on(self, stream: TextIO | None) -> LogForm:
        """Which of the two it is for what is written to ``stream``; None: a file."""
        if self is not LogForm.AUTO:
            return self
        try:
            is_terminal = stream is not None and stream.isatty()
        except ValueError:  # it was closed
            is_terminal = False
        return LogForm.TEXT if is_terminal else LogForm.JSON


def form_named(name: str | None) -> LogForm:
    """``AUTO`` where it names none: a process that another one starts has nobody to tell that it does not."""
    try:
        return LogForm(name or LogForm.AUTO)
    except ValueError:
        return LogForm.AUTO


def log_line(  # noqa: PLR0913  # what every line has
    form: LogForm, *, at: float, level: str, logger: str, event: str, fields: Mapping[str, object], traceback: str = ""
) -> str:
    """One record, without its line end. In text a traceback stands below it, each of its lines indented."""
    head = {"time": _moment(at), "level": level.lower(), "logger": logger, "event": _clean(event, FIELD_CHARACTERS)}
    encode = _json_field if form is LogForm.JSON else _text_field
    shown, used, left_out = [], 0, 0
    for name, value in fields.items():
        text = encode(f"{name}_" if name in OWN_FIELDS else name, HIDDEN if _SECRET_NAME.search(name) else value)
        if used + len(text) <= LINE_CHARACTERS:
            shown.append(text)
            used += len(text) + 1
        else:
            left_out += 1
    if left_out:
        shown.append(encode("left_out", left_out))
    trace = _clean(traceback[-TRACEBACK_CHARACTERS:], TRACEBACK_CHARACTERS)
    if form is LogForm.JSON:
        parts = [f"{json.dumps(name)}:{_quoted(text)}" for name, text in head.items()] + shown
        if trace:
            parts.append(f'"traceback":{_quoted(trace)}')
        return "{" + ",".join(parts) + "}"
    line = f"{head['time']} {head['level']} {logger} event={_quoted(head['event'])}"
    below = [f"\n  {_escaped(part)}" for part in trace.splitlines()] if trace else []
    return " ".join([line, *shown]) + "".join(below)


def write_line(form: LogForm, *, logger: str, event: str, level: str = "error", **fields: object) -> None:
    """On standard error, for processes that are too small for ``logging``. Where nothing can be written, nothing is."""
    now = time.time()  # of a log line
    try:
        line = log_line(form.on(sys.stderr), at=now, level=level, logger=logger, event=event, fields=fields)
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        return


def _json_field(name: str, value: object) -> str:
    plain = _plain(value)
    return f"{json.dumps(name)}:{_quoted(plain) if isinstance(plain, str) else json.dumps(plain)}"


def _text_field(name: str, value: object) -> str:
    plain = _plain(value)
    if not isinstance(plain, str):
        return f"{name}={json.dumps(plain)}"
    return f"{name}={plain if plain.isascii() and _BARE.fullmatch(plain) else _quoted(plain)}"


def _plain(value: object) -> str | int | float | bool | None:
    """What JSON has a form for, as every program reads it; all else is its text."""
    if value is None or isinstance(value, bool):
        return value
    if type(value) is int and abs(value) < _WHOLE_MAX:
        return value
    if type(value) is float and math.isfinite(value):
        return value
    try:
        text = str(value)
    except Exception as error:  # noqa: BLE001  # of an object of somebody else: what it raises is no reason to say nothing
        text = f"<{type(value).__name__} that has no text: {type(error).__name__}>"
    return _clean(text, FIELD_CHARACTERS)


def _clean(text: str, limit: int) -> str:
    """Cut, with what stands for secrets hidden: that is looked for before the cut, which could take its end away."""
    return valid_text(_SECRET.sub(_hidden, text[: 4 * limit])[:limit])


def _hidden(found: re.Match[str]) -> str:
    return next((begin for begin in found.groups() if begin is not None), "") + HIDDEN


def _quoted(text: str) -> str:
    return _escaped(json.dumps(text, ensure_ascii=False))


def _escaped(text: str) -> str:
    r"""With ``\u`` for what is no printable sign: line ends of all alphabets, control characters, direction marks."""
    return text if text.isprintable() else _UNPRINTABLE.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    sign = found[0]
    return sign if sign.isprintable() else json.dumps(sign)[1:-1]


def _moment(at: float) -> str:
    """In UTC, with milliseconds."""
    milliseconds = round(at * 1_000)
    whole, rest = divmod(milliseconds, 1_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole))}.{rest:03d}Z"

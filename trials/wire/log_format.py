"""One form for the lines of every log, of the service and of agents: ``time level logger event="…" field=value …``.

The message of a record is the event, a constant in snake case; what it is about stands in fields, which are the
``extra`` of the call. So a line is found by its event and read by a program without knowledge of its sentence.
"""

from __future__ import annotations

import json
import logging
import re

from trials.wire.texts import valid_text

FIELD_CHARACTERS = 2_000  # of one field; the rest is cut
_BARE = re.compile(r"[\w./:@%+,-]+")  # a text that needs no quotes
_RECORD_FIELDS = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName", "color_message"}


class LogFormatter(logging.Formatter):
    """A record as one line, whatever its fields hold; its traceback, if it has one, on lines of its own below."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {name: value for name, value in record.__dict__.items() if name not in _RECORD_FIELDS}
        event = json.dumps(record.getMessage(), ensure_ascii=False)
        text = f"{self.formatTime(record)} {record.levelname.lower()} {record.name} event={event}"
        text += "".join(f" {name}={_field(value)}" for name, value in fields.items())
        return text + (f"\n{self.formatException(record.exc_info)}" if record.exc_info else "")


def configure_logging(handler: logging.Handler, *, level: str = "INFO") -> None:
    """Everything that the process logs goes to ``handler``, in the one form."""
    handler.setFormatter(LogFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)


def _field(value: object) -> str:
    if value is None or isinstance(value, bool | int | float):
        return json.dumps(value)
    text = valid_text(str(value)[:FIELD_CHARACTERS])  # half a surrogate pair cannot be written
    return text if _BARE.fullmatch(text) else json.dumps(text, ensure_ascii=False)

"""``logging`` in the one form of log_lines.py: for services, agents and every process that logs."""

from __future__ import annotations

import logging
import sys
import threading
from types import TracebackType

from trials.wire.attempt import AttemptKey
from trials.wire.log_lines import FIELD_CHARACTERS, LogForm, log_line

_RECORD_FIELDS = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName", "color_message"}
LIBRARY_EVENT = "message"  # whose loggers say sentences: these stand in the field `message`
OWN_LOGGERS = ("tuner_service", "trials", "__main__")
REPEATS, REPEATS_S = 20, 60.0  # of one sentence of a library: whoever reaches a port can have it say one each time
SENTENCES = 200  # that are told apart; of more all are counted anew


class LogFormatter(logging.Formatter):
    """A record as one line, whatever its fields hold."""

    def __init__(self, form: LogForm = LogForm.TEXT) -> None:
        super().__init__()
        self._form = form

    def format(self, record: logging.LogRecord) -> str:
        fields = _expanded({name: value for name, value in record.__dict__.items() if name not in _RECORD_FIELDS})
        event = _message(record)
        if not _is_own(record.name):
            event, fields = LIBRARY_EVENT, {"message": event} | fields
        return log_line(
            self._form,
            at=record.created,
            level=record.levelname,
            logger=record.name,
            event=event,
            fields=fields,
            traceback=self.formatException(record.exc_info) if record.exc_info else "",
        )


class FewRepeats(logging.Filter):
    """Lets a library say a sentence so often in so many seconds; the next one after them says how many it was not."""

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[tuple[str, str], tuple[float, int]] = {}  # since when, how often

    def filter(self, record: logging.LogRecord) -> bool:
        if _is_own(record.name):
            return True
        sentence = record.name, str(record.msg)[:FIELD_CHARACTERS]
        since, count = self._said.get(sentence, (record.created, 0))
        if not 0.0 <= record.created - since < REPEATS_S:
            if count > REPEATS:
                record.__dict__["left_unsaid"] = count - REPEATS
            since, count = record.created, 0
        if len(self._said) >= SENTENCES:
            self._said.clear()
        self._said[sentence] = (since, count + 1)
        return count < REPEATS


def configure_logging(handler: logging.Handler, *, level: str = "INFO", form: LogForm = LogForm.AUTO) -> None:
    """Everything that the process logs goes to ``handler`` in the one form: warnings, and what nobody catches, too."""
    stream = handler.stream if type(handler) is logging.StreamHandler else None
    handler.setFormatter(LogFormatter(form.on(stream)))
    handler.addFilter(FewRepeats())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.captureWarnings(capture=True)
    threading.excepthook = _thread_failed
    sys.excepthook = _process_failed


def _is_own(name: str) -> bool:
    return name.partition(".")[0] in OWN_LOGGERS


def _expanded(fields: dict[str, object]) -> dict[str, object]:
    """An attempt is its experiment, its trial and its number, whatever it is called by."""
    found: dict[str, object] = {}
    for name, value in fields.items():
        if isinstance(value, AttemptKey):
            found |= {"experiment": value.experiment_id, "trial": value.number, "attempt": value.attempt}
        else:
            found[name] = value
    return found


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001  # a library's sentence and its values do not fit, or one of them has no text
        return str(record.msg)


def _thread_failed(failed: threading.ExceptHookArgs) -> None:
    if failed.exc_type is SystemExit or failed.exc_value is None:
        return
    name = None if failed.thread is None else failed.thread.name
    _uncaught("thread_failed", failed.exc_value, thread_name=name)  # logging keeps `thread` for itself


def _process_failed(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        return
    _uncaught("process_failed", error.with_traceback(trace))


def _uncaught(event: str, error: BaseException, **fields: object) -> None:
    logging.getLogger("trials.uncaught").critical(event, exc_info=error, extra=fields)

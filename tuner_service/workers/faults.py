"""What users' classes raise, turned into data. The one place where such errors are caught."""

from __future__ import annotations

import resource
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from trials.wire.texts import valid_text
from tuner_service.dispatcher.items import AlgorithmFault
from tuner_service.domain.errors import SearchSpaceNotSupportedError, TemporarilyUnableError

TRACEBACK_LIMIT = 16_000  # characters; the middle of a longer one is left out
TRACEBACK_FRAMES = 50  # innermost frames shown
MESSAGE_LIMIT = 1_000  # characters

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Faulted:
    """The algorithm raised at ``line`` (0: while it was built). Its queue answers nothing more."""

    line: int
    fault: AlgorithmFault
    message: str
    traceback: str


def describe_fault(error: BaseException, line: int) -> Faulted:
    """``error`` as data, within the bounds above."""
    match error:
        case SearchSpaceNotSupportedError():
            fault = AlgorithmFault.NOT_SUPPORTED
        case TemporarilyUnableError():
            fault = AlgorithmFault.TEMPORARY
        case _:
            fault = AlgorithmFault.RAISED
    text = valid_text("".join(traceback.format_exception(error, limit=-TRACEBACK_FRAMES)))
    if len(text) > TRACEBACK_LIMIT:
        half = TRACEBACK_LIMIT // 2 - 20
        text = f"{text[:half]}\n… left out …\n{text[-half:]}"
    said = valid_text(_text_of(error))
    message = f"{type(error).__name__}: {said}" if said else type(error).__name__
    if isinstance(error, MemoryError):
        message += _memory_note()
    return Faulted(line=line, fault=fault, message=message[:MESSAGE_LIMIT], traceback=text)


def guarded(call: Callable[[], Result], *, line: int) -> Result | Faulted:
    """What ``call`` returns, or how it failed."""
    try:
        return call()
    except BaseException as error:  # noqa: BLE001  # a user's class may raise anything, in whatever thread; it becomes data
        return describe_fault(error, line)


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as other:  # noqa: BLE001  # its text is made by code of the user, too
        return f"(its text cannot be had: {type(other).__name__})"


def _memory_note() -> str:
    limit, _ = resource.getrlimit(resource.RLIMIT_DATA)
    if limit == resource.RLIM_INFINITY:
        return ""
    return f" (the algorithm worker may have {limit / (1 << 30):.3g} GiB: setting worker_memory)"

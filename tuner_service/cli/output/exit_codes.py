"""From errors to exit codes, in one table; what went wrong is said on standard error."""

from __future__ import annotations

import os
import sys
from enum import IntEnum
from typing import TextIO


class ExitCode(IntEnum):
    OK = 0
    FAILURE = 1
    USAGE = 2
    NOT_FOUND = 3
    CONFLICT = 4
    UNREACHABLE = 5
    EXPERIMENT_FAILED = 6
    NOT_ALLOWED = 7
    TIMEOUT = 124
    INTERRUPTED = 130


class CommandError(Exception):
    """Ends the command with ``code``; its text says what went wrong and what to do."""

    def __init__(self, message: str, code: ExitCode = ExitCode.FAILURE) -> None:
        super().__init__(message)
        self.code = code


CODE_OF_STATUS = {
    400: ExitCode.USAGE,
    401: ExitCode.NOT_ALLOWED,
    403: ExitCode.NOT_ALLOWED,
    404: ExitCode.NOT_FOUND,
    409: ExitCode.CONFLICT,
    412: ExitCode.CONFLICT,
    413: ExitCode.USAGE,
    415: ExitCode.USAGE,
    422: ExitCode.USAGE,
    431: ExitCode.USAGE,
    503: ExitCode.UNREACHABLE,
}


def exit_code_of(exc: BaseException) -> int:
    """Says what ``exc`` means and gives its code; raises it again when it is a bug."""
    code = _told(exc)
    leave_output()
    return code


def leave_output() -> None:
    """Of what could not be written Python must not tell again when it flushes at its end."""
    try:
        sys.stdout.flush()
    except OSError:
        discard(sys.stdout)


def discard(stream: TextIO) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _told(exc: BaseException) -> ExitCode:
    from tuner_service.client import ClientError, ProblemError, TokenWithheldError, UnreachableError, UnsendableError
    from tuner_service.domain.errors import InputError, StorageError, UnavailableError

    match exc:
        case KeyboardInterrupt():
            code = ExitCode.INTERRUPTED
            say("interrupted")
            return code
        case BrokenPipeError():
            return ExitCode.OK  # whoever read our output has had enough
        case CommandError():
            code = exc.code
        case ProblemError():
            code = CODE_OF_STATUS.get(exc.status, ExitCode.FAILURE)
        case UnreachableError():
            code = ExitCode.UNREACHABLE
        case TokenWithheldError():
            code = ExitCode.NOT_ALLOWED
        case InputError() | UnsendableError():
            code = ExitCode.USAGE
        case RuntimeError() if str(exc).startswith("Could not determine home directory"):  # of pathlib
            say("tuner: a path begins with ~, and there is no such user or home folder; write it in full")
            return ExitCode.USAGE
        case ClientError() | StorageError() | UnavailableError() | OSError():
            code = ExitCode.FAILURE
        case _:
            raise exc
    say(f"tuner: {_sentence(exc)}")
    return code


def _sentence(exc: BaseException) -> str:
    """Of the system's errors the path and the reason; their number says nothing to people."""
    if isinstance(exc, OSError) and exc.strerror and isinstance(exc.filename, str | bytes):
        return f"{os.fsdecode(exc.filename)}: {exc.strerror}"
    if isinstance(exc, FileNotFoundError) and exc.strerror and not _has_folder():
        return "the folder that this was started in is gone; go to another one first"
    if isinstance(exc, OSError) and exc.strerror:
        return exc.strerror
    return str(exc)


def _has_folder() -> bool:
    try:
        os.getcwd()  # noqa: PTH109  # whether it is there is all that is asked
    except FileNotFoundError:
        return False
    return True


def say(text: str) -> None:
    """Narration: standard output carries data only. On a full disk it is lost, and the command goes on."""
    try:
        print(safe(text), file=sys.stderr, flush=True)
    except BrokenPipeError:
        raise  # nobody reads any longer: the command ends
    except OSError:
        discard(sys.stderr)


def safe(text: str) -> str:
    """For a terminal, which must not obey it: somebody else called their metrics and parameters so."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() or sign in "\n\t" else " " for sign in text)

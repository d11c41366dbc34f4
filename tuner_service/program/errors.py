"""What goes wrong in a program: the command line's errors, as exceptions with the same fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tuner_service.cli.output.exit_codes import CODE_OF_STATUS, CommandError, ExitCode
from tuner_service.client import ClientError, ProblemError, TokenWithheldError, UnsendableError
from tuner_service.client import UnreachableError as NoAnswerError
from tuner_service.domain.errors import InputError

SHOWN = 200  # characters of what Python says of an answer


class TunerError(Exception):
    """Its text says what went wrong and what to do, and names every mistake.

    ``exit_code`` is that of the command line. Where the service refused, ``status`` is HTTP's, ``errors`` has each
    mistake with a JSON ``pointer`` and a ``detail``, and ``allowed`` names what the thing is in a state for.
    """

    exit_code: int = ExitCode.FAILURE

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        errors: Sequence[Mapping[str, str]] = (),
        allowed: Sequence[str] = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.errors = tuple(dict(error) for error in errors)
        self.allowed = tuple(allowed)


class UsageError(TunerError, ValueError):
    """A wrong argument, or a request that makes no sense; ``errors`` has every mistake."""

    exit_code = ExitCode.USAGE


class NotFoundError(TunerError, LookupError):
    """There is no such thing, or none yet."""

    exit_code = ExitCode.NOT_FOUND


class ConflictError(TunerError):
    """It is in no state for this; ``allowed`` says what it is in a state for."""

    exit_code = ExitCode.CONFLICT


class UnreachableError(TunerError):
    """No service answers, or it can take nothing now."""

    exit_code = ExitCode.UNREACHABLE


class ExperimentFailedError(TunerError):
    """The experiment that was waited for failed, or is paused by what only a person can mend."""

    exit_code = ExitCode.EXPERIMENT_FAILED


class NotAllowedError(TunerError):
    """No token, or one that may not do this."""

    exit_code = ExitCode.NOT_ALLOWED


class WaitTimeoutError(TunerError, TimeoutError):
    """It was waited for so long, and has not ended. It goes on."""

    exit_code = ExitCode.TIMEOUT


_BY_CODE: dict[int, type[TunerError]] = {
    kind.exit_code: kind
    for kind in (UsageError, NotFoundError, ConflictError, UnreachableError, ExperimentFailedError, NotAllowedError)
}


def usage_error(errors: Sequence[tuple[str, str]]) -> UsageError:
    """Of mistakes as (pointer, what would be right); all of them in one text."""
    named = [{"pointer": pointer, "detail": detail} for pointer, detail in errors]
    lines = [f"{pointer.lstrip('/')}: {detail}" for pointer, detail in errors]
    return UsageError("\n".join(lines), errors=named)


ODD = (LookupError, TypeError, ValueError, AttributeError, RecursionError)  # of an answer of another shape


@contextmanager
def sensible(url: str) -> Iterator[None]:
    """TunerError where what ``url`` answers is read and is no answer of a service."""
    try:
        yield
    except TunerError:
        raise
    except ODD as exc:
        raise TunerError(
            f"what {url} answers makes no sense ({type(exc).__name__}: {str(exc)[:SHOWN]}); "
            "is it a service of Tuner Service, and of this version?"
        ) from exc


@contextmanager
def as_tuner_errors() -> Iterator[None]:
    """What the client, the settings and the files raise, as one of these."""
    try:
        yield
    except ProblemError as exc:
        raise _refused(exc) from None  # its text says all of it
    except NoAnswerError as exc:
        raise UnreachableError(str(exc)) from None
    except TokenWithheldError as exc:
        raise NotAllowedError(str(exc)) from None
    except InputError as exc:
        raise usage_error([(fault.pointer, fault.message) for fault in exc.faults]) from None
    except UnsendableError as exc:
        raise UsageError(str(exc)) from None
    except CommandError as exc:
        raise _BY_CODE.get(exc.code, TunerError)(str(exc)) from None
    except ClientError as exc:
        raise TunerError(str(exc)) from None


def _refused(exc: ProblemError) -> TunerError:
    problem: Mapping[str, Any] = exc.problem
    kind = _BY_CODE.get(CODE_OF_STATUS.get(exc.status, ExitCode.FAILURE), TunerError)
    errors = [e for e in problem.get("errors") or () if isinstance(e, dict)]
    return kind(str(exc), status=exc.status, errors=errors, allowed=problem.get("allowed") or ())

from __future__ import annotations

import resource

import pytest

from tuner_service.dispatcher.items import AlgorithmFault
from tuner_service.domain.errors import SearchSpaceNotSupportedError, TemporarilyUnableError
from tuner_service.workers.faults import MESSAGE_LIMIT, TRACEBACK_LIMIT, Faulted, guarded


def raising(error: BaseException) -> Faulted:
    def call() -> None:
        raise error

    faulted = guarded(call, line=7)
    assert isinstance(faulted, Faulted)
    return faulted


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (SearchSpaceNotSupportedError("mine", "lr", "no logarithms"), AlgorithmFault.NOT_SUPPORTED),
        (TemporarilyUnableError("the licence server is busy"), AlgorithmFault.TEMPORARY),
        (ZeroDivisionError("division by zero"), AlgorithmFault.RAISED),
        (SystemExit(3), AlgorithmFault.RAISED),
        (RecursionError("too deep"), AlgorithmFault.RAISED),
        (KeyboardInterrupt("now"), AlgorithmFault.RAISED),
        (GeneratorExit("over"), AlgorithmFault.RAISED),
    ],
)
def test_what_is_raised_says_what_the_service_does_next(error: BaseException, fault: AlgorithmFault) -> None:
    faulted = raising(error)
    assert (faulted.line, faulted.fault) == (7, fault)
    assert str(error) in faulted.message
    assert "raise error" in faulted.traceback


def test_messages_and_tracebacks_are_bounded_and_keep_their_end() -> None:
    faulted = raising(ValueError("x" * 100_000 + "the end"))
    assert len(faulted.message) == MESSAGE_LIMIT
    assert len(faulted.traceback) <= TRACEBACK_LIMIT
    assert faulted.traceback.rstrip().endswith("the end")


def test_what_works_comes_through() -> None:
    assert guarded(lambda: 3, line=1) == 3


def test_what_has_no_text_of_its_own_is_described_all_the_same() -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise ValueError("no")

    assert raising(MuteError()).message == "MuteError: (its text cannot be had: ValueError)"


def test_an_error_of_memory_names_the_limit_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert raising(MemoryError()).message == "MemoryError"
    monkeypatch.setattr(resource, "getrlimit", lambda _: (3 << 29, 3 << 29))
    expected = "MemoryError (the algorithm worker may have 1.5 GiB: setting worker_memory)"
    assert raising(MemoryError()).message == expected


class _UnspeakableError(Exception):
    def __str__(self) -> str:
        raise ValueError("not even this")


@pytest.mark.parametrize(
    "error", [ValueError("half \ud800 of a pair, and \0"), _UnspeakableError()], ids=["half", "unspeakable"]
)
def test_what_is_raised_is_told_in_valid_text(error: BaseException) -> None:
    faulted = raising(error)
    assert "\ud800" not in faulted.message + faulted.traceback
    assert "\0" not in faulted.message + faulted.traceback
    (faulted.message + faulted.traceback).encode()

"""The analyst as the service has it: a process of its own, started when it is wanted and anew when it has died."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import tuner_service
from tuner_service.analyst.frames import DATABASE_VARIABLE, PIPE_BYTES, FrameError, frame, read_frame
from tuner_service.domain.errors import (
    Fault,
    InputError,
    LimitExceededError,
    NotFoundError,
    StorageError,
    UnavailableError,
)
from tuner_service.service.questions import Check, Question, Reply
from tuner_service.storage.reader_variables import reader_variables

ANSWER_LIMIT_S = 60.0  # for one answer; a process that takes longer is ended
CANCEL_LIMIT_S = 5.0  # for it to notice that nobody wants the answer any more
PART_LIMIT_S = 10.0  # between two parts of an answer that has begun
LOOK_S = 0.05  # how often somebody who waits looks whether the answer is still wanted


class _DiedError(Exception):
    """The process is gone, or says what it should not."""


@dataclass(kw_only=True)
class AnalystProcess:
    """Implements ``questions.Analyst``. One question at a time; any thread."""

    database: str
    log_format: str = "auto"
    _turn: threading.Lock = field(default_factory=threading.Lock)
    _process: subprocess.Popen[bytes] | None = None
    _number: int = 0
    _is_preparing: bool = False
    _closed: bool = False

    def prepare(self) -> None:
        if self._process is None and not self._is_preparing:
            self._is_preparing = True
            try:
                threading.Thread(target=self._start_early, name="analyst", daemon=True).start()
            except RuntimeError:  # no thread can be started now: the first question starts the process
                self._is_preparing = False

    def ask(self, question: Question, check: Check) -> Reply:
        while not self._turn.acquire(timeout=LOOK_S):
            check()
        try:
            try:
                return self._exchange(question, check)
            except _DiedError:  # killed, perhaps: by itself it answers the same question again
                return self._exchange(question, check)
        except _DiedError as exc:
            raise UnavailableError(f"the process that computes analyses has died twice ({exc}); try again") from exc
        finally:
            self._turn.release()

    def close(self) -> None:
        """End the process. Safe to repeat; nobody asks afterwards."""
        with self._turn:
            self._closed = True
            self._discard()

    @property
    def pid(self) -> int | None:
        """Of the process, while there is one."""
        return None if self._process is None else self._process.pid

    # ── one question ────────────────────────────────────────────────────────────────────────────
    def _exchange(self, question: Question, check: Check) -> Reply:
        process = self._running()
        self._number += 1
        number = self._number
        try:
            head = {"number": number, **asdict(question), "options": dict(question.options)}
            _write(process, frame(head))
            deadline = time.monotonic() + ANSWER_LIMIT_S
            while not _has_spoken(process, LOOK_S):
                check()
                if time.monotonic() > deadline:
                    self._discard()
                    raise UnavailableError(f"the answer took longer than {ANSWER_LIMIT_S:g} s, and was given up")
            got = _read(process)
        except (_DiedError, UnavailableError):
            self._discard()
            raise
        except BaseException:
            self._take_back(process, number)
            raise
        if got[0].get("number") != number:
            self._discard()
            raise _DiedError("it answered another question")
        return _reply(*got)

    def _take_back(self, process: subprocess.Popen[bytes], number: int) -> None:
        """Nobody waits any more: the process says so at its next look, or is ended."""
        try:
            _write(process, frame({"cancel": number}))
            if _has_spoken(process, CANCEL_LIMIT_S):
                _read(process)
                return
        except _DiedError:
            pass
        self._discard()

    # ── the process ─────────────────────────────────────────────────────────────────────────────
    def _running(self) -> subprocess.Popen[bytes]:
        if self._closed:
            raise UnavailableError("the service is ending")
        if self._process is None or self._process.poll() is not None:
            self._discard()
            package_root = str(Path(tuner_service.__file__).resolve().parent.parent)
            paths = [package_root, *filter(None, [os.environ.get("PYTHONPATH")])]
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "tuner_service.analyst.serving", self.log_format],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    # Never an argument: an address may hold a password, and other users see command lines.
                    env={
                        **reader_variables(),
                        DATABASE_VARIABLE: self.database,
                        "PYTHONPATH": os.pathsep.join(paths),
                    },
                    start_new_session=True,  # Ctrl-C at a terminal is for the service, which ends it in its turn
                )
                with contextlib.suppress(OSError):  # more than this user may have: then as it is
                    fcntl.fcntl(_answers_of(self._process), fcntl.F_SETPIPE_SZ, PIPE_BYTES)
            except OSError as exc:
                raise UnavailableError(f"no process for analyses can be started ({exc.strerror}); try again") from exc
        return self._process

    def _start_early(self) -> None:
        try:
            with self._turn, contextlib.suppress(UnavailableError):
                self._running()
        finally:
            self._is_preparing = False

    def _discard(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()


def _write(process: subprocess.Popen[bytes], data: bytes) -> None:
    assert process.stdin is not None  # noqa: S101  # it is a pipe
    try:
        process.stdin.write(data)
        process.stdin.flush()
    except OSError as exc:
        raise _DiedError("its pipe is closed") from exc


def _answers_of(process: subprocess.Popen[bytes]) -> int:
    assert process.stdout is not None  # noqa: S101  # it is a pipe
    return process.stdout.fileno()


def _has_spoken(process: subprocess.Popen[bytes], timeout_s: float) -> bool:
    poll = select.poll()  # select() knows no descriptor above 1,023
    poll.register(_answers_of(process), select.POLLIN)
    return bool(poll.poll(1_000 * timeout_s))


def _read(process: subprocess.Popen[bytes]) -> tuple[Mapping[str, Any], bytes]:
    descriptor = _answers_of(process)

    def read(count: int) -> bytes:
        if not _has_spoken(process, PART_LIMIT_S):
            raise FrameError(f"it said nothing more for {PART_LIMIT_S:g} s")
        return os.read(descriptor, count)

    try:
        got = read_frame(read)
    except (FrameError, ValueError, OSError) as exc:
        raise _DiedError(str(exc)) from exc
    if got is None:
        raise _DiedError(f"it ended with {process.wait()}")
    return got


def _reply(head: Mapping[str, Any], body: bytes) -> Reply:
    match head.get("error"):
        case None:
            return Reply(body=body, tag=head["tag"], compressed=head["compressed"])
        case "input":
            raise InputError([Fault(**fault) for fault in head["faults"]])
        case "not_found":
            raise NotFoundError(head["kind"], head["name"])
        case "limit":
            raise LimitExceededError(head["text"])
        case "storage":
            raise StorageError(head["text"])
        case "unavailable":
            raise UnavailableError(head["text"])
        case _:
            raise RuntimeError(f"the analyst failed: {head.get('text')}")

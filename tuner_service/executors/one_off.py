"""A process for one piece of work: what a library needs is then no part of the service, nor of its memory."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import tuner_service
from trials.wire.variables import is_inherited
from tuner_service.domain.errors import LimitExceededError, UnavailableError
from tuner_service.service.questions import Check

LOOK_S = 0.05
ERROR_SHOWN = 300  # characters of what the process said last


@dataclass(frozen=True, kw_only=True)
class PieceOfWork:
    """``python -m module`` makes ``what`` within ``limit_s`` seconds; where it does not, ``instead`` is to be done."""

    module: str
    what: str
    limit_s: float
    instead: str


def run_apart(work: PieceOfWork, given: IO[bytes], check: Check) -> IO[bytes]:
    """What the process made of ``given``, to be read from its beginning, and closed.

    ``check`` as questions.Analyst.ask has it. LimitExceededError where the process failed, or took too long; nothing
    of it is left then.
    """
    root = str(Path(tuner_service.__file__).resolve().parent.parent)
    kept = {name: value for name, value in os.environ.items() if is_inherited(name)}
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**kept, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    # Files and no pipes: nobody has to read and write at the same time.
    told = tempfile.TemporaryFile()  # noqa: SIM115  # the caller's, who closes it
    try:
        with tempfile.TemporaryFile() as errors:
            given.seek(0)
            try:
                process = subprocess.Popen(
                    [sys.executable, "-P", "-m", work.module],
                    stdin=given,
                    stdout=told,
                    stderr=errors,
                    env=environment,
                    start_new_session=True,
                )
            except OSError as exc:
                raise UnavailableError(
                    f"no process for {work.what} can be started ({exc.strerror}); try again"
                ) from exc
            try:
                _wait(process, work, check)
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()
            if process.returncode != 0 or not told.seek(0, os.SEEK_END):
                errors.seek(max(0, errors.seek(0, os.SEEK_END) - (4 << 10)))
                said = errors.read().decode(errors="replace").strip().rpartition("\n")[2][-ERROR_SHOWN:]
                raise LimitExceededError(f"{work.what} cannot be made ({said or process.returncode}); {work.instead}")
        told.seek(0)
    except BaseException:
        told.close()
        raise
    return told


def _wait(process: subprocess.Popen[bytes], work: PieceOfWork, check: Check) -> None:
    deadline = time.monotonic() + work.limit_s
    while True:
        try:
            process.wait(LOOK_S)
        except subprocess.TimeoutExpired:
            check()
            if time.monotonic() > deadline:
                raise LimitExceededError(f"{work.what} took longer than {work.limit_s:g} s; {work.instead}") from None
        else:
            return

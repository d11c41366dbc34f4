"""Pictures are drawn in a process each, so that no library that draws is part of the service, nor of its memory."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import tuner_service
from trials.wire.variables import is_inherited
from tuner_service.domain.errors import LimitExceededError, NotInstalledError, UnavailableError
from tuner_service.service.questions import Check

DRAWING_LIMIT_S = 30.0
LOOK_S = 0.05
ERROR_SHOWN = 300  # characters of what the process said last


def require_matplotlib() -> None:
    """NotInstalledError that names the extra."""
    if importlib.util.find_spec("matplotlib") is None:
        raise NotInstalledError(
            "pictures need matplotlib, which is not installed beside the service: pip install 'tuner-service[plot]'"
        )


def draw_apart(asked: dict[str, Any], check: Check) -> bytes:
    """The picture of ``{"kind", "form", "views"}``. ``check`` as questions.Analyst.ask has it."""
    require_matplotlib()
    root = str(Path(tuner_service.__file__).resolve().parent.parent)
    kept = {name: value for name, value in os.environ.items() if is_inherited(name)}
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**kept, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    # Files and no pipes: nobody has to read and write at the same time.
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as told, tempfile.TemporaryFile() as errors:
        given.write(json.dumps(asked).encode())
        given.seek(0)
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "tuner_service.figures.main"],
                stdin=given,
                stdout=told,
                stderr=errors,
                env=environment,
                start_new_session=True,
            )
        except OSError as exc:
            raise UnavailableError(f"no process for a picture can be started ({exc.strerror}); try again") from exc
        try:
            _wait(process, check)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        told.seek(0)
        data = told.read()
        if process.returncode != 0 or not data:
            errors.seek(0)
            said = errors.read().decode(errors="replace").strip().rpartition("\n")[2][-ERROR_SHOWN:]
            raise LimitExceededError(
                f"the picture cannot be drawn ({said or process.returncode}); take the data instead"
            )
        return data


def _wait(process: subprocess.Popen[bytes], check: Check) -> None:
    deadline = time.monotonic() + DRAWING_LIMIT_S
    while True:
        try:
            process.wait(LOOK_S)
        except subprocess.TimeoutExpired:
            check()
            if time.monotonic() > deadline:
                raise LimitExceededError(
                    f"the picture took longer than {DRAWING_LIMIT_S:g} s; take the data instead"
                ) from None
        else:
            return

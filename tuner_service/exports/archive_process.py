"""Runs ``exports.archive`` for the service, one at a time, and reads what it tells."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import tuner_service
from tuner_service.archive_ports import ArchivedFile, MetricKey, MovedMetrics
from tuner_service.domain.errors import StorageError, UnavailableError
from tuner_service.exports.process import Form, require_library
from tuner_service.storage.reader_variables import reader_variables

ERROR_SHOWN = 300  # characters of what the process said last


class ArchiveProcess:
    """Implements ``archive_ports.ArchiveFiles``. ``database`` may hold a password, which no process list shows."""

    def __init__(self, database: str) -> None:
        self._database = database
        self._closing = threading.Event()
        self._process: subprocess.Popen[str] | None = None

    def require(self) -> None:
        require_library(Form.PARQUET)

    def write(self, moved: Sequence[MovedMetrics], file: Path) -> ArchivedFile:
        (told,) = self._lines({"do": "write", "file": str(file)} | self._order(moved))
        return ArchivedFile(rows=told["rows"], digest=told["digest"], size=told["size"], pieces=tuple(told["pieces"]))

    def compare(self, moved: Sequence[MovedMetrics]) -> tuple[int, str]:
        (told,) = self._lines({"do": "compare"} | self._order(moved))
        return told["rows"], told["digest"]

    def read(self, file: Path, *, rows: int, digest: str, after: MetricKey) -> Iterator[list[list[Any]]]:
        order = {"do": "read", "file": str(file), "rows": rows, "digest": digest, "after": after}
        for told in self._lines(order):
            if isinstance(told, list):
                yield told

    def close(self) -> None:
        self._closing.set()
        process = self._process
        if process is not None:
            with suppress(OSError):
                process.kill()

    def _order(self, moved: Sequence[MovedMetrics]) -> dict[str, Any]:
        return {
            "database": self._database,
            "experiment": moved[0].experiment_id,
            "ranges": [(one.first, one.last) for one in moved],
            "upto": moved[0].upto,
        }

    def _lines(self, order: dict[str, Any]) -> Iterator[Any]:
        """What it says, line by line as it comes. StorageError with its last words where it fails."""
        root = str(Path(tuner_service.__file__).resolve().parent.parent)
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**reader_variables(), "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
        with tempfile.TemporaryFile() as errors, tempfile.TemporaryFile() as given:
            given.write(json.dumps(order).encode() + b"\n")
            given.seek(0)
            command = [sys.executable, "-P", "-m", "tuner_service.exports.archive"]
            pipe = subprocess.PIPE
            try:
                process = subprocess.Popen(
                    command,
                    stdin=given,
                    stdout=pipe,
                    stderr=errors,
                    encoding="utf-8",
                    errors="replace",  # it may say anything
                    env=environment,
                    start_new_session=True,
                )
            except OSError as exc:
                raise UnavailableError(f"no process for an archive can be started: {exc.strerror}") from exc
            self._process = process
            assert process.stdout is not None  # noqa: S101  # it is a pipe
            try:
                if self._closing.is_set():
                    process.kill()
                for line in process.stdout:
                    if (found := _answer(line)) is not None:
                        yield found
                    elif line.endswith("\n") or process.wait() == 0:  # else it died in the midst of it
                        said = repr(line[:ERROR_SHOWN])
                        raise StorageError(f"the process of the archive said what is no answer: {said}")
                if process.wait() != 0:
                    raise StorageError(self._last_words(process.returncode, errors))
            finally:
                self._process = None
                process.kill()
                process.wait()
                process.stdout.close()

    def _last_words(self, code: int, errors: Any) -> str:
        if self._closing.is_set():
            return "the service ends"
        errors.seek(max(0, errors.seek(0, os.SEEK_END) - (4 << 10)))
        said = errors.read().decode(errors="replace").strip().rpartition("\n")[2]
        return said.removeprefix("ValueError: ")[-ERROR_SHOWN:] or f"the process ended with {code}"


def _answer(line: str) -> dict[str, Any] | list[Any] | None:
    """None: it is none."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict | list) else None

"""Exports that take a library are made in a process each, so that neither pyarrow nor Optuna is part of the service."""

from __future__ import annotations

import importlib.util
import json
import tempfile
from collections.abc import Iterable
from enum import StrEnum
from typing import IO, Any

from tuner_service.domain.errors import NotInstalledError
from tuner_service.executors.one_off import PieceOfWork, run_apart
from tuner_service.service.questions import Check

EXPORT_LIMIT_S = 600.0
_CHECKED_EVERY = 1_000  # rows


class Form(StrEnum):
    PARQUET = "parquet"
    OPTUNA = "optuna"


def require_library(form: Form) -> None:
    """NotInstalledError that names the extra. Optuna always is there."""
    if form is Form.PARQUET and importlib.util.find_spec("pyarrow") is None:
        raise NotInstalledError(
            "parquet files need pyarrow, which is not installed beside the service: "
            "pip install 'tuner-service[parquet]'"
        )


def make_apart(head: dict[str, Any], rows: Iterable[dict[str, Any]], check: Check) -> IO[bytes]:
    """The file that ``head`` asks for, of ``rows``: see ``main``. The caller closes it; nobody else sees it."""
    work = PieceOfWork(
        module="tuner_service.exports.main",
        what=f"the export as {head['form']}",
        limit_s=EXPORT_LIMIT_S,
        instead="csv and jsonl have the same without a bound",
    )
    with tempfile.TemporaryFile() as given:
        given.write(json.dumps(head).encode() + b"\n")
        for place, row in enumerate(rows):
            if place % _CHECKED_EVERY == 0:
                check()
            # A row of an earlier version may hold text that is none; an export does not break off at it.
            given.write(json.dumps(row, ensure_ascii=False).encode(errors="replace") + b"\n")
        given.flush()
        return run_apart(work, given, check)

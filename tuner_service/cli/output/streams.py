"""The three standard streams, whatever the command was started with: closed, full, or of another encoding."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from typing import Any

STANDARD_OUTPUT = "standard output"


class _StandardOutput(io.FileIO):
    """Its errors say that it is the standard output that cannot be written; those of the system name nothing."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as exc:
            raise OSError(exc.errno, exc.strerror, STANDARD_OUTPUT) from exc


def prepare_streams() -> None:
    """Called once, before anything is opened or printed.

    A stream that was closed is opened again: its number would go to the next file or socket, and
    Python would print to the standard output what is meant for a closed standard error.
    Signs that the encoding does not have are written as escapes.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # Nothing can be written to this standard output, so that a lost answer is told as any other is.
            os.open(os.devnull, os.O_RDWR if number == 2 else os.O_RDONLY)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")  # whoever reads says what is wrong with it
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stdout is sys.__stdout__:
        sys.stdout = _standard_output("utf-8" if sys.stdout is None else sys.stdout.encoding)


def print_for_programs(text: str) -> None:
    """Formats that programs read are UTF-8, whatever a terminal can show."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    sys.stdout.write(text)


def _standard_output(encoding: str) -> io.TextIOWrapper:
    buffered = io.BufferedWriter(_StandardOutput(1, "wb", closefd=False))
    terminal = False
    with suppress(OSError):
        terminal = os.isatty(1)
    return io.TextIOWrapper(buffered, encoding=encoding, errors="backslashreplace", line_buffering=terminal)

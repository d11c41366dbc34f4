"""Compiled scripts of a fork server: the trials of an experiment run the same one, and it is compiled once.

What is compiled depends on the bytes alone, but for the path that tracebacks show. A script that cannot be compiled, or
not without a warning, is left to the trial, which says so as the interpreter would.
"""

from __future__ import annotations

import warnings
from types import CodeType

from trials.agent.forks.script import NotForkableError, script_of
from trials.agent.supervision.starting import Start
from trials.files import read_bytes

CODES_MAX = 16  # scripts; the one that was used longest ago is compiled anew
SCRIPT_BYTES_MAX = 1 << 20  # longer ones are left to the trial


class Codes:
    """By the bytes of the script."""

    def __init__(self) -> None:
        self._known: dict[bytes, CodeType | None] = {}

    def find(self, start: Start) -> CodeType | None:
        """The code of the script, its path that of this attempt; None where the trial is to compile it itself."""
        try:
            script = script_of(start.command)
            path = f"{start.work}/{script.name}"
            source = read_bytes(path) if script.kind == "file" and script.name[:1] != "/" else b""
        except (OSError, NotForkableError):
            return None  # the trial says so itself
        if not 0 < len(source) <= SCRIPT_BYTES_MAX:
            return None
        code = self._known.pop(source) if source in self._known else _compiled(source)
        self._known[source] = code
        while len(self._known) > CODES_MAX:
            del self._known[next(iter(self._known))]
        return None if code is None else _moved(code, path)


def _compiled(source: bytes) -> CodeType | None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            code: CodeType = compile(source, "script.py", "exec", dont_inherit=True)
        except (SyntaxError, ValueError, Warning, MemoryError, RecursionError):
            return None
    return code


def _moved(code: CodeType, path: str) -> CodeType:
    constants = tuple(_moved(item, path) if isinstance(item, CodeType) else item for item in code.co_consts)
    return code.replace(co_filename=path, co_consts=constants)

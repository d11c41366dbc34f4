"""How far bytes on the move are: a bar in a terminal, a line every few seconds elsewhere, on standard error."""

from __future__ import annotations

import shutil
import sys
import time
from types import TracebackType

TERMINAL_S = 0.1  # between two drawings
LINES_S = 5.0
BAR_WIDTH = 30
_MIB = 1 << 20


class ByteBar:
    """Says nothing of what takes no time."""

    def __init__(self, *, is_shown: bool | None = True) -> None:
        """``is_shown`` None: in a terminal alone."""
        self._is_terminal = sys.stderr is not None and sys.stderr.isatty()
        self._is_shown = self._is_terminal if is_shown is None else is_shown
        self._next = time.monotonic() + (TERMINAL_S if self._is_terminal else LINES_S)
        self._begun = time.monotonic()
        self._what = ""
        self._is_drawn = False

    def told(self, what: str, done: int, total: int) -> None:
        """Called by whatever thread moves them, one at a time."""
        now = time.monotonic()
        if what != self._what:
            self._what, self._begun = what, now
        if now < self._next or not self._is_shown:
            return
        self._next = now + (TERMINAL_S if self._is_terminal else LINES_S)
        share = done / total if total else 1.0
        rate = done / max(now - self._begun, 1e-6) / _MIB
        text = f"{what} {done / _MIB:.0f} of {total / _MIB:.0f} MiB, {rate:.0f} MiB/s"
        if self._is_terminal:
            filled = round(BAR_WIDTH * share)
            line = f"{'█' * filled}{'░' * (BAR_WIDTH - filled)} {text}"
            sys.stderr.write(f"\r\x1b[K{line[: shutil.get_terminal_size().columns - 1]}")
            self._is_drawn = True
        else:
            sys.stderr.write(f"{text}\n")
        sys.stderr.flush()

    def __enter__(self) -> ByteBar:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        if self._is_drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

"""The end of a fork: it never goes on in the program of its parent, whatever happens in it."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

UNHEARD = 70  # no exit code of pytest, nor of tuner


def flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()


def end_with(
    work: Callable[[], int], *, failed: int = UNHEARD, errors: int = 2, last: Callable[[], object] = flush
) -> NoReturn:
    """In a fork: do ``work``, and end with the code that it returns, or with which it exits.

    Where it raises, the code is ``failed``, and the descriptor ``errors`` is told why. ``last`` is called in any case,
    before the end.
    """
    code = failed
    try:
        try:
            code = work()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        except BaseException:  # noqa: BLE001  # it ends here
            os.write(errors, traceback.format_exc().encode(errors="replace"))
        last()
    finally:
        os._exit(code)

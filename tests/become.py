"""A fork that goes on as another program of Python would: what that imports, this process has imported already."""

from __future__ import annotations

import atexit
import os
import runpy
import sys
import threading
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

UNHEARD = 70  # no exit code of pytest, nor of tuner


def become(module: str, arguments: Sequence[str], *, streams: tuple[int, int, int]) -> NoReturn:
    """In a fork: be ``python -m module arguments`` to its end, with these descriptors for input, output and errors.

    Whatever else the caller has open stays so, unless it closes it before.
    """
    code = UNHEARD
    try:
        for descriptor, stream in enumerate(streams):
            os.dup2(stream, descriptor)
        sys.argv[1:] = arguments
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as ended:
        code = int(ended.code or 0)
    except BaseException:  # noqa: BLE001  # a fork must not go on in this program
        traceback.print_exc()
    finally:
        _end(code)


def _end(code: int) -> NoReturn:
    """As an interpreter does that ends: threads that are no daemons are waited for, and who asked for it is called."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]  # there is no public way to ask for it
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
    finally:
        os._exit(code)

"""A fork that goes on as another program of Python would: what that imports, this process has imported already."""

from __future__ import annotations

import atexit
import os
import runpy
import sys
import threading
from collections.abc import Sequence
from typing import NoReturn

from tests.fork_ends import end_with, flush


def become(module: str, arguments: Sequence[str], *, streams: tuple[int, int, int]) -> NoReturn:
    """In a fork: be ``python -m module arguments`` to its end, with these descriptors for input, output and errors.

    Whatever else the caller has open stays so, unless it closes it before.
    """

    def be() -> int:
        for descriptor, stream in enumerate(streams):
            os.dup2(stream, descriptor)
        sys.argv[1:] = arguments
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        return 0

    end_with(be, last=_tidy)


def _tidy() -> None:
    """As an interpreter does that ends: threads that are no daemons are waited for, and who asked for it is called."""
    threading._shutdown()  # type: ignore[attr-defined]  # there is no public way to ask for it
    atexit._run_exitfuncs()
    flush()

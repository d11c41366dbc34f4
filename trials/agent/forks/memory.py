"""The memory of a fork server: laid out so that a fork is quick."""
# This module does without pathlib: the page tables of all that a fork server has imported are copied for each trial.
# ruff: noqa: PTH123

from __future__ import annotations

import ctypes
import gc
import sys

from trials.processes.libc import LIBC

_HUGE_PAGE_BYTES = 2 << 20
_MADV_COLLAPSE = 25  # Linux 6.1; refused by older ones
_HEAP = "[heap]"


def settle() -> None:
    """Make forks quick. From now on the collector runs only when it is asked to, and never looks at what exists now.

    A collection writes into the head of every object that it looks at, so that a forked child would copy nearly all of
    the memory that it shares. A fork copies the page table, which is 512 times as long for pages of 4 KiB as for pages
    of 2 MiB; the kernel collapses small pages into large ones where it can. docs/speed.md has both figures.
    """
    weakref = sys.modules.get("weakref")
    for finalizer in [] if weakref is None else list(weakref.finalize._registry):  # noqa: SLF001  no public way to name them all
        # What was made before the fork is the server's: a trial that ends must not take it apart.
        finalizer.atexit = False
    gc.collect()
    gc.freeze()
    gc.disable()
    for line in mappings():
        fields = line.split(maxsplit=5)
        if fields[1][:2] != "rw" or (len(fields) > 5 and fields[5] != _HEAP):
            continue
        begin, end = (int(text, 16) for text in fields[0].split("-"))
        begin = -(-begin // _HUGE_PAGE_BYTES) * _HUGE_PAGE_BYTES
        end = end // _HUGE_PAGE_BYTES * _HUGE_PAGE_BYTES
        if end > begin:
            LIBC.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _MADV_COLLAPSE)


def mappings() -> list[str]:
    """What is where in the memory of this process: a line each, as the kernel writes them."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        return file.read().splitlines()

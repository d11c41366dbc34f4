"""The memory of a fork server: laid out so that a fork is quick."""

from __future__ import annotations

import ctypes
import gc
import weakref
from pathlib import Path

_HUGE_PAGE_BYTES = 2 << 20
_MADV_COLLAPSE = 25  # Linux 6.1; refused by older ones
_HEAP = "[heap]"


def settle() -> None:
    """Make forks quick. From now on the collector runs only when it is asked to, and never looks at what exists now.

    A fork copies a table of pages, 512 times as long for small pages as for large ones: the large ones are best effort.
    """
    for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]  # noqa: SLF001  no public way to name them all
        # What was made before the fork is the server's: a trial that ends must not take it apart.
        finalizer.atexit = False
    gc.collect()
    gc.freeze()
    gc.disable()
    libc = ctypes.CDLL(None, use_errno=True)
    for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines():
        fields = line.split(maxsplit=5)
        if fields[1][:2] != "rw" or (len(fields) > 5 and fields[5] != _HEAP):
            continue
        begin, end = (int(text, 16) for text in fields[0].split("-"))
        begin = -(-begin // _HUGE_PAGE_BYTES) * _HUGE_PAGE_BYTES
        end = end // _HUGE_PAGE_BYTES * _HUGE_PAGE_BYTES
        if end > begin:
            libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _MADV_COLLAPSE)

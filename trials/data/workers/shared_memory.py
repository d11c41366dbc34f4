"""Anonymous shared memory (memfd): passed on by its descriptor, so a process that is killed leaves nothing behind."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os

import numpy as np

from trials.data.core.sample_layout import Bytes, rounded_up

PAGE = mmap.PAGESIZE
_MADV_POPULATE_WRITE = 23  # since Linux 5.14
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 512 << 20  # of freed memory that a process keeps for its next sample
_MMAP_BYTES = 32 << 20  # the most that glibc accepts; a larger block is mapped anew each time


class SharedMemory:
    """A memfd and its mapping. Only pages that are written take memory, so it may be much larger than what is in it.

    Arrays of it keep the mapping alive; the descriptor is closed by ``close``.
    """

    def __init__(self, descriptor: int, size: int, *, access: int = mmap.ACCESS_WRITE) -> None:
        self.descriptor = descriptor
        self.size = size
        self._mapping = mmap.mmap(descriptor, size, access=access)

    @classmethod
    def create(cls, size: int, *, name: str = "trials-data") -> SharedMemory:
        """Of at least ``size`` bytes, all zero; it can neither grow nor shrink any more."""
        size = rounded_up(max(size, 1), PAGE)
        descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(descriptor, size)
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
            return cls(descriptor, size)
        except BaseException:
            os.close(descriptor)
            raise

    @classmethod
    def attach(cls, descriptor: int, *, writable: bool = True, private: bool = False) -> SharedMemory:
        """What another process created; the descriptor belongs to the result. ``private``: writes stay here."""
        access = mmap.ACCESS_COPY if private else mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        return cls(descriptor, os.fstat(descriptor).st_size, access=access)

    def bytes(self, begin: int = 0, length: int | None = None) -> Bytes:
        """A view, not a copy. Each call makes an object of its own, so its end can be noticed by a weak reference."""
        count = self.size - begin if length is None else length
        return np.frombuffer(self._mapping, dtype=np.uint8, count=count, offset=begin)

    def populate(self, begin: int, length: int) -> None:
        """Have the pages there at once, which is quicker than one after the other when they are written to."""
        start = begin // PAGE * PAGE
        try:
            self._mapping.madvise(_MADV_POPULATE_WRITE, start, begin + length - start)
        except OSError:
            return  # a kernel that does not know it

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def keep_freed_memory() -> None:
    """Tell glibc not to give memory back in this process: the pages of a sample serve the next one, too.

    It halves the time of decoding a photograph. Other C libraries do not know it.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _MMAP_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)

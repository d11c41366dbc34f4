"""The shared ring buffer of a producer: windows of samples, each mapped twice back to back, and a cache.

One memfd without a name: it is gone when the last process that has it is. A slot holds a sample; its *key* says
which: a reader looks at the key, copies, and looks at the key again (a seqlock), so that it never believes a copy
that the server wrote into. Members map it read-only, and the seals keep them from mapping it otherwise.
"""

from __future__ import annotations

import ctypes
import fcntl
import math
import mmap
import os
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trials.data.core.sample_layout import ALIGNMENT, Array, Bytes, Layout, Leaf, rounded_up
from trials.data.errors import SharingError
from trials.data.sharing.producer_protocol import Geometry
from trials.data.workers.shared_memory import PAGE

EMPTY = 0  # key of a slot that holds nothing
WINDOWS_MAX = 16
SLOTS_MAX = 1 << 32
SMALL_ROW_BYTES = 2 << 10
_SEAL_FUTURE_WRITE = 0x10  # Linux 5.1; the standard library has no name for it yet
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | _SEAL_FUTURE_WRITE
_MAP_FAILED = ctypes.c_void_p(-1).value
_PROT_NONE = 0
_MAP_FIXED, _MAP_NORESERVE = 0x10, 0x4000
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_ORDERING = threading.Lock()


def fence() -> None:
    """No load or store before it is seen after one behind it.

    A release and an acquire on one lock: that is what orders them where the processor does not (x86 does anyway).
    """
    with _ORDERING:
        pass
    with _ORDERING:
        pass


def window_key(position: int) -> int:
    return position + 1


def cache_key(epoch: int) -> int:
    return epoch + 1


# ── sizes ───────────────────────────────────────────────────────────────────────────────────────
def stride(leaf: Leaf) -> int:
    """Bytes from one sample's to the next one's."""
    return rounded_up(max(leaf.size, 1), ALIGNMENT)


def slot_bytes(leaves: Sequence[Leaf]) -> int:
    return sum(stride(leaf) for leaf in leaves)


def page_slots(leaves: Sequence[Leaf]) -> int:
    """So many slots are whole pages of every leaf: a window has a multiple of it, to be mapped back to back."""
    return max((math.lcm(stride(leaf), PAGE) // stride(leaf) for leaf in leaves), default=1)


def ring_bytes(geometry: Geometry) -> int:
    return _cache_offset(geometry, len(geometry.leaves))


def _slots(geometry: Geometry) -> int:
    return geometry.windows * geometry.capacity + geometry.cached


def _window_offset(geometry: Geometry, window: int, leaf: int) -> int:
    before = slot_bytes(geometry.leaves[:leaf])
    keys = rounded_up(_slots(geometry) * 8, PAGE)
    return keys + (window * slot_bytes(geometry.leaves) + before) * geometry.capacity


def _cache_offset(geometry: Geometry, leaf: int) -> int:
    start = _window_offset(geometry, geometry.windows, 0)
    return start + sum(rounded_up(stride(found) * geometry.cached, PAGE) for found in geometry.leaves[:leaf])


def require_possible(geometry: Geometry) -> None:
    """SharingError unless a ring can be laid out by it; what a peer sends is looked at before it is believed."""
    fine = (
        1 <= geometry.windows <= WINDOWS_MAX
        and geometry.leaves
        and 1 <= geometry.capacity <= SLOTS_MAX
        and 0 <= geometry.cached <= SLOTS_MAX
        and geometry.capacity % page_slots(geometry.leaves) == 0
    )
    if not fine:
        raise SharingError("the server's ring has impossible sizes")


# ── memory ──────────────────────────────────────────────────────────────────────────────────────
def make_ring(geometry: Geometry) -> int:
    """A descriptor of empty memory; pages take room only once they are written."""
    descriptor = os.memfd_create("tuner-shared-data", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, ring_bytes(geometry))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def seal_ring(descriptor: int) -> None:
    """From now on nobody maps it writable or changes its size; what is mapped already stays writable."""
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)


def require_sealed(descriptor: int, geometry: Geometry) -> None:
    """SharingError when the memory could shrink under a reader, or is too small."""
    seals = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)
    if not seals & fcntl.F_SEAL_SHRINK or os.fstat(descriptor).st_size < ring_bytes(geometry):
        raise SharingError("the server's ring is not what it says")


class Ring:
    """The mapped memory. Arrays made of it keep it mapped, whoever closes the ring."""

    def __init__(self, geometry: Geometry, descriptor: int, *, is_writer: bool = False) -> None:
        self.geometry = geometry
        self._protection = mmap.PROT_READ | (mmap.PROT_WRITE if is_writer else 0)
        self._first_cached = geometry.windows * geometry.capacity
        slots = _slots(geometry)
        self.keys: NDArray[np.uint64] = self._map(descriptor, 0, rounded_up(slots * 8, PAGE)).view(np.uint64)[:slots]
        self._windows = [
            [self._map_window(descriptor, window, number) for number in range(len(geometry.leaves))]
            for window in range(geometry.windows)
        ]
        self._cache = [self._map_cache(descriptor, number) for number in range(len(geometry.leaves))]

    def slot(self, window: int, position: int) -> int:
        return window * self.geometry.capacity + position % self.geometry.capacity

    def cache_slot(self, index: int) -> int | None:
        if index >= self.geometry.cached:
            return None
        return self._first_cached + index

    def rows(self, slot: int) -> list[Bytes]:
        """One row of ``stride`` bytes for each leaf."""
        window, place = divmod(slot, self.geometry.capacity)
        if window < self.geometry.windows:
            return [leaf[place] for leaf in self._windows[window]]
        return [leaf[slot - self._first_cached] for leaf in self._cache]

    def write(self, slot: int, layout: Layout, values: Sequence[Any]) -> None:
        """``values`` as ``layout.values`` gives them."""
        for row, leaf, value in zip(self.rows(slot), layout.leaves, values, strict=True):
            np.copyto(row[: leaf.size].view(leaf.storage).reshape(leaf.shape), value)

    def copy(self, source: int, target: int) -> None:
        for row, found in zip(self.rows(target), self.rows(source), strict=True):
            row[:] = found

    def run(self, window: int, position: int, count: int) -> list[Array]:
        """The leaves of ``count`` consecutive positions in place, (count, *shape) each: a slice, over the end, too."""
        place = position % self.geometry.capacity
        return [
            _typed(rows[place : place + count, : leaf.size], leaf)
            for leaf, rows in zip(self.geometry.leaves, self._windows[window], strict=True)
        ]

    def gather(self, slots: NDArray[np.int64], out: Sequence[Bytes]) -> None:
        """The leaves of the samples in ``slots``, copied: a (samples, bytes) of ``out`` for each leaf."""
        regions, places = np.divmod(slots, self.geometry.capacity)
        regions = np.minimum(regions, self.geometry.windows)
        places = np.where(regions < self.geometry.windows, places, slots - self._first_cached)
        for region in range(int(regions.min()), int(regions.max()) + 1):
            chosen = np.flatnonzero(regions == region)
            whole = len(chosen) == len(slots)
            sources = self._windows[region] if region < self.geometry.windows else self._cache
            for leaf, rows, target in zip(self.geometry.leaves, sources, out, strict=True):
                if whole:
                    _copy_rows(target, rows[:, : leaf.size], places)
                else:
                    for number in chosen.tolist():
                        target[number] = rows[places[number], : leaf.size]

    # ── mapping ───────────────────────────────────────────────────────────────────────────────
    def _map_window(self, descriptor: int, window: int, leaf: int) -> Bytes:
        size, capacity = stride(self.geometry.leaves[leaf]), self.geometry.capacity
        found = self._map(descriptor, _window_offset(self.geometry, window, leaf), size * capacity, times=2)
        return found.reshape(2 * capacity, size)

    def _map_cache(self, descriptor: int, leaf: int) -> Bytes:
        size, cached = stride(self.geometry.leaves[leaf]), self.geometry.cached
        if not cached:
            return np.empty((0, size), dtype=np.uint8)
        found = self._map(descriptor, _cache_offset(self.geometry, leaf), rounded_up(size * cached, PAGE))
        return found[: size * cached].reshape(cached, size)

    def _map(self, descriptor: int, offset: int, size: int, *, times: int = 1) -> Bytes:
        """``size`` bytes (whole pages) of the memory, ``times`` in a row."""
        private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
        base = _checked_mapping(_LIBC.mmap(None, size * times, _PROT_NONE, private, -1, 0))
        # A ctypes array takes no weak reference, and an instance of a subclass does: the mapping is unmapped by a
        # finalizer once no array refers to it.
        kind: Any = type("Mapping", (ctypes.c_ubyte * (size * times),), {})
        try:
            for number in range(times):
                flags = mmap.MAP_SHARED | _MAP_FIXED
                _checked_mapping(_LIBC.mmap(base + number * size, size, self._protection, flags, descriptor, offset))
        except OSError:
            _LIBC.munmap(base, size * times)
            raise
        memory = kind.from_address(base)
        weakref.finalize(memory, _LIBC.munmap, base, size * times).atexit = False
        return np.frombuffer(memory, dtype=np.uint8)


def _typed(data: Bytes, leaf: Leaf) -> Array:
    """(count, bytes), the rows with gaps between them, as (count, *shape) without a copy."""
    shape = (data.shape[0], *leaf.shape)
    return data.view(leaf.storage).reshape(shape) if leaf.size else np.empty(shape, dtype=leaf.storage)


def _copy_rows(target: Bytes, source: Bytes, places: NDArray[np.int64]) -> None:
    """Rows of ``source`` at ``places``, to consecutive rows of ``target``; both (rows, bytes)."""
    begin, count = int(places[0]), len(places)
    if np.array_equal(places, np.arange(begin, begin + count)):
        np.copyto(target, source[begin : begin + count])
    elif target.shape[1] <= SMALL_ROW_BYTES:
        target[:] = source[places]
    else:  # one memcpy each, several times as fast as indexing
        for number, place in enumerate(places.tolist()):
            target[number] = source[place]


def _checked_mapping(address: int | None) -> int:
    if address is None or address == _MAP_FAILED:
        number = ctypes.get_errno()
        raise OSError(number, f"mapping the ring: {os.strerror(number)}")
    return address

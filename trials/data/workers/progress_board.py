"""The progress board, in shared memory: each worker writes down the sample it is at before it begins it.

So a worker that hangs or dies can be named with its sample. It costs one store a sample."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trials.data.workers.shared_memory import SharedMemory

IDLE = -1
_UNNAMED = -2  # what it loads has no number
_TOGETHER = -3  # less the number of the first of those that are loaded by one call
_CLOSING = 0  # the first word: 1 when the loader is being closed
_INT64_MAX = (1 << 63) - 1


class ProgressBoard:
    """Words of 64 bits: one for all, then one for each worker."""

    def __init__(self, memory: SharedMemory | None, words: NDArray[np.int64], worker: int) -> None:
        self._memory = memory
        self._words = words.data  # a third of the time of the array's own access
        self._own = 1 + worker

    @classmethod
    def create(cls, workers: int) -> ProgressBoard:
        memory = SharedMemory.create(8 * (1 + workers), name="trials-data-board")
        words = memory.bytes().view(np.int64)
        words[1:] = IDLE
        return cls(memory, words, 0)

    @classmethod
    def attach(cls, descriptor: int, worker: int) -> ProgressBoard:
        memory = SharedMemory.attach(descriptor)
        return cls(memory, memory.bytes().view(np.int64), worker)

    @classmethod
    def nowhere(cls) -> ProgressBoard:
        return cls(None, np.zeros(2, dtype=np.int64), 0)

    @property
    def descriptor(self) -> int:
        assert self._memory is not None
        return self._memory.descriptor

    # ── the worker's side ───────────────────────────────────────────────────────────────────────
    def begin(self, index: object) -> bool:
        """The worker begins a sample. True when the loader is being closed, so that it need not."""
        self._words[self._own] = index if type(index) is int and 0 <= index <= _INT64_MAX else _UNNAMED
        return self._words[_CLOSING] != 0

    def begin_together(self, first: int) -> bool:
        """The same, of several samples that are loaded by one call."""
        self._words[self._own] = _TOGETHER - first if 0 <= first <= _INT64_MAX + _TOGETHER else _UNNAMED
        return self._words[_CLOSING] != 0

    def idle(self) -> None:
        self._words[self._own] = IDLE

    # ── the loader's side ───────────────────────────────────────────────────────────────────────
    def index_of(self, worker: int) -> int | None:
        value = int(self._words[1 + worker])
        return value if value >= 0 else None

    def first_of(self, worker: int) -> int | None:
        """Of the samples that it loads by one call."""
        value = int(self._words[1 + worker])
        return _TOGETHER - value if value <= _TOGETHER else None

    def forget(self, worker: int) -> None:
        self._words[1 + worker] = IDLE

    def closing(self) -> None:
        self._words[_CLOSING] = 1

    def close(self) -> None:
        if self._memory is not None:
            self._memory.close()

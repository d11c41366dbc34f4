"""Batch assembly: from the pieces that workers made to the batch as the trial gets it, without a copy where possible.

An error stands in the place of its sample."""

from __future__ import annotations

import pickle
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from trials.data.core.chunk_size import HELD
from trials.data.core.in_order_pipeline import RETRIES, Batch
from trials.data.core.sample_layout import Bytes, Layout, as_value, copied
from trials.data.core.worker_messages import Failure, Piece
from trials.data.errors import SampleError, WorkerDied
from trials.data.workers.pickling import decode
from trials.data.workers.shared_memory import SharedMemory


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembled:
    """``value`` is None, and ``empty`` true, where every sample was left out."""

    value: Any
    empty: bool = False
    skipped: tuple[Failure, ...] = ()
    samples: int = 0
    source_state: bytes | None = None  # of an iterable, pickled, after this batch


class BatchAssembly:
    """Batches are views of their slots while the trial holds few of them; a slot is freed with the last view of it."""

    def __init__(
        self, ring: SharedMemory, slot_size: int, layout: Layout | None, collate: Callable[[list[Any]], Any]
    ) -> None:
        self._ring = ring
        self._slot_size = slot_size
        self._layout = layout
        self._collate = collate
        self._views: dict[int, weakref.ref[Bytes]] = {}
        # A deque and no lock, because weak-reference callbacks fill it: they run in whichever thread drops the last
        # reference to a batch, in the middle of anything, and could wait for a lock that this very thread holds.
        # Appending to a deque is atomic.
        self._freed: deque[int] = deque()
        self.copies = 0

    def freed(self) -> list[int]:
        """The slots that came free since this was last asked."""
        found = []
        while self._freed:
            slot = self._freed.popleft()
            self._views.pop(slot, None)
            found.append(slot)
        return found

    def assemble(self, batch: Batch, *, skip: bool) -> Assembled:
        """Raises SampleError or WorkerDied; the slot is then free."""
        if batch.death is not None:
            death, items = batch.death
            raise WorkerDied(signal_number=death.signal, exit_code=death.exit_code, indices=items, tries=RETRIES + 1)
        if batch.error is not None:
            raise batch.error
        if batch.plan.ready:
            return Assembled(value=self._collate(list(batch.plan.items)), samples=len(batch.plan.items))
        if not batch.plan.items:  # a batch sampler gave an empty batch
            self._freed.append(batch.slot)
            return Assembled(value=None, empty=True)
        failures = sorted((f for piece in batch.pieces for f in piece.failures), key=lambda f: f.row)
        # An iterable that raised has ended: to skip that would be to leave out the rest of it.
        may_skip = skip and all(p.kind != "collate" and not p.ended for p in batch.pieces)
        if failures and not may_skip:
            self._freed.append(batch.slot)
            raise_failure(failures[0], batch.worker)
        left = len(batch.plan.items) - len(failures)
        memory = self._ring.bytes(batch.slot * self._slot_size, self._slot_size)
        try:
            value, empty = self._value(batch, memory, {f.row for f in failures})
        except BaseException:
            self._freed.append(batch.slot)
            raise
        if empty or len(self._views) >= HELD:
            self.copies += 0 if empty else 1
            value = None if empty else copied(value)
            self._freed.append(batch.slot)
        else:
            slot, freed = batch.slot, self._freed
            self._views[slot] = weakref.ref(memory, lambda _: freed.append(slot))
        state = batch.pieces[0].source_state
        return Assembled(value=value, empty=empty, skipped=tuple(failures), samples=left, source_state=state)

    def _value(self, batch: Batch, memory: Bytes, bad_rows: set[int]) -> tuple[Any, bool]:
        count = len(batch.plan.items)
        if batch.pieces[0].kind == "batch":
            piece = batch.pieces[0]
            if not piece.spans:
                return None, True
            return decode(self._memory_of(batch, piece, memory), piece.spans), False
        if len(bad_rows) == count:
            return None, True
        assert self._layout is not None
        if all(piece.kind == "rows" for piece in batch.pieces):
            columns = self._layout.columns(memory, count)
            if bad_rows:
                good = [row for row in range(count) if row not in bad_rows]
                columns = [column[good] for column in columns]
            return self._layout.batch(columns), False
        return self._collate(self._samples(batch, memory, bad_rows)), False

    def _samples(self, batch: Batch, memory: Bytes, bad_rows: set[int]) -> list[Any]:
        """Some did not fit the layout, so torch's own collate sees them all, and says what it says of such a batch."""
        layout = self._layout
        assert layout is not None
        in_rows = any(piece.kind == "rows" for piece in batch.pieces)
        columns = layout.columns(memory, len(batch.plan.items)) if in_rows else []
        samples: list[Any] = []
        for piece in sorted(batch.pieces, key=lambda p: p.row):
            if piece.kind == "samples":
                samples += decode(self._memory_of(batch, piece, memory), piece.spans)
                continue
            for row in range(piece.row, piece.row + piece.covered):
                if row not in bad_rows:
                    leaves = [as_value(c[row], leaf) for c, leaf in zip(columns, layout.leaves, strict=True)]
                    samples.append(layout.rebuilt(leaves))
        return samples

    @staticmethod
    def _memory_of(batch: Batch, piece: Piece, memory: Bytes) -> Bytes:
        if not piece.outside:
            return memory
        found: Bytes = next(held for owner, held in batch.memories if owner is piece)
        return found


def raise_failure(failed: Failure, worker: int | str, original: BaseException | None = None) -> NoReturn:
    """SampleError, from the error that the sample raised."""
    error = SampleError(index=failed.index, worker=worker, cause=failed.text, trace=failed.trace)
    if original is None and failed.error is not None:
        original = pickle.loads(failed.error)  # noqa: S301  # our own worker's
    raise error from original

"""Batches of samples that trials share: the same bytes whether the producer decoded them or this trial did."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np

from trials.data.core.randomness import GlobalGenerators, SampleGenerator, SampleKeys
from trials.data.core.ranks import ALONE, Ranks, Share, known_ranks
from trials.data.core.sample_layout import Array, Bytes, Layout, as_value
from trials.data.core.sampling import drawn_items
from trials.data.errors import SampleError, SharingError, StateError
from trials.data.loader import Loaded
from trials.data.loader_state import Position
from trials.data.sharing.alone import AloneBatches
from trials.data.sharing.group_order import GroupOrder, GroupSamples, Positions
from trials.data.sharing.producer_client import Link, LinkLostError, Wanted

BUFFERS_KEPT = 3  # batches of memory
RECONNECT_S = 5.0  # between two looks for a server
PAUSES = 10.0  # and so many times as long as the last one took: an agent or a server that hangs costs a tenth at most
REPORT_S = 10.0  # between two reports of where the time went
Transform = Callable[[Any, np.random.Generator], Any]
Collate = Callable[[list[Any]], Any]


@dataclass(slots=True, kw_only=True)
class SharingStats:
    """Of one loader since it was made. ``wait_s`` is what the training loop lost to waiting for the producer."""

    wait_s: float = 0.0
    decode_s: float = 0.0  # decoded here
    copy_s: float = 0.0
    transform_s: float = 0.0  # the trial's transform, and collating
    hits: int = 0  # samples from the producer
    misses: int = 0  # samples decoded here
    connections: int = 0

    def as_numbers(self) -> dict[str, float]:
        samples = self.hits + self.misses
        return {**asdict(self), "hit_rate": self.hits / samples if samples else 0.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Making:
    """How this trial makes its batches of the shared samples. ``collate`` None: as torch's default_collate does."""

    order: GroupOrder
    samples: GroupSamples
    seed: int
    own_order: bool = True
    transform: Transform | None = None
    collate: Collate | None = None
    zero_copy: bool = False
    workers: int = 0  # processes of the trial's own, for while there is no server
    batch_size: int = 1
    drop_last: bool = False
    sampler: Any = None  # the trial's own choice of samples, instead of the group's order
    ranks: Ranks | None = None  # as the script says it
    place: Callable[[Any], Any] | None = None  # where a finished batch goes: to pinned memory, to a device

    @property
    def the_ranks(self) -> Ranks:
        """Among which an epoch is split; a sampler says itself what its rank gets."""
        return self.ranks or (known_ranks() if self.sampler is None else ALONE)


class SharedBatches:
    """A source of batches (see ``loader.py``). ``connect`` gives a link, or None while there is no server; it is asked
    again every RECONNECT_S at most. ``report`` is told the statistics, every REPORT_S and at the end of an epoch."""

    def __init__(
        self,
        making: Making,
        *,
        connect: Callable[[Layout], Link | None],
        report: Callable[[Mapping[str, float]], None] | None = None,
    ) -> None:
        self._making = making
        self._connect = connect
        self._report = report
        self._reported_at = time.monotonic()
        self._epoch = 0
        self._position = 0  # in the epoch, of the next batch
        self._ranks = making.the_ranks
        self._chosen: Positions | None = None  # indices of the epoch, where a sampler chooses them
        self._layout: Layout | None = None
        self._link: Link | None = None
        self._look_at = 0.0
        self._lent: Wanted | None = None
        self._generators = GlobalGenerators()
        self._own = SampleGenerator()
        self._alone: AloneBatches | None = None
        self._buffers = _Buffers()
        self._stats = SharingStats()

    @property
    def is_sharing(self) -> bool:
        return self._link is not None

    @property
    def order_name(self) -> str:
        sampler = self._making.sampler
        if sampler is not None:
            return f"sampler {type(sampler).__name__}"[:60]
        return self._making.order.name(is_own=self._making.own_order)

    @property
    def has_state(self) -> bool:
        return False

    def batches(self) -> int:
        making = self._making
        length = making.order.length if making.sampler is None else len(making.sampler)
        return making.the_ranks.batches(length=length, batch_size=making.batch_size, drop_last=making.drop_last)

    def stats(self) -> dict[str, float]:
        return self._stats.as_numbers()

    # ── a source of batches ───────────────────────────────────────────────────────────────────
    def require_reachable(self, position: Position, state: Mapping[str, Any]) -> None:  # noqa: ARG002  # a source's signature
        if self._making.sampler is None and position.delivered > self._making.order.length:
            raise StateError(f"the state has {position.delivered} samples delivered of {self._making.order.length}")

    def restore(self, source_state: Any) -> None:
        """Nothing but the position says where it goes on."""

    def begin(self, position: Position, source_state: Any) -> None:  # noqa: ARG002  # a source's signature
        if position.seed != self._making.seed:
            self._making = replace(self._making, seed=position.seed)
            self._end_alone()  # what it has prefetched is of another order
        self._epoch, self._position = position.epoch, position.delivered
        ranks = self._making.the_ranks
        if ranks != self._ranks:
            self._ranks = ranks
            self._end_alone()  # what it has prefetched is another rank's
        if self._making.sampler is not None:
            self._chosen = self._choice_of(position)
            self._end_alone()

    def next(self) -> Loaded | None:
        """After an error the next call tries the same batch again."""
        making = self._making
        share = next(self._shares(self._position), None)
        if share is None:
            self._check_lent()
            self._tell(is_due=True)
            return None
        batch = self.batch(self._epoch, share.begin, share.end)
        if making.place is not None:
            batch = making.place(batch)
        self._position = share.behind
        self._tell(is_due=time.monotonic() - self._reported_at >= REPORT_S)
        return Loaded(batch, share.behind)

    def _shares(self, begin: int) -> Iterator[Share]:
        making = self._making
        length = making.order.length if self._chosen is None else len(self._chosen)
        return self._ranks.shares(begin, length=length, batch_size=making.batch_size, drop_last=making.drop_last)

    def _choice_of(self, position: Position) -> Positions:
        """What the sampler gives in this epoch. ValueError names what is no index of the dataset."""
        length = self._making.order.length
        given = list(drawn_items(self._making.sampler, seed=position.seed, epoch=position.epoch))
        for item in given:
            if not isinstance(item, Integral) or not -length <= int(item) < length:
                raise ValueError(
                    f"the sampler gave {item!r}, which is no index of a dataset of {length}; "
                    "shared() takes samplers of indices"
                )
        return np.asarray(given, dtype=np.int64) % length

    def abandon(self) -> None:
        """What was prefetched may be wanted still: the next iteration often goes on where this one ends."""

    def close(self, timeout_s: float = 0.0) -> None:  # noqa: ARG002  # nothing here can take long
        """Leave the producer, which ends when its last trial has left."""
        if self._is_overwritten():
            # It may be long since it was used: the trial may have worked on something else. So it is no error.
            sys.stderr.write(
                "the last batch, which was lent by zero_copy, has been overwritten since; if that was while it was "
                "used, training has seen wrong data\n"
            )
        self._lent = None
        self._unlink()
        self._end_alone()

    def _tell(self, *, is_due: bool) -> None:
        if is_due and self._report is not None:
            self._reported_at = time.monotonic()
            self._report(self.stats())

    def _unlink(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    def _end_alone(self) -> None:
        if self._alone is not None:
            self._alone.close()
            self._alone = None

    def batch(self, epoch: int, begin: int, end: int) -> Any:
        """Of the trial's positions ``begin`` to ``end`` of the epoch.

        Blocks until it is there. SampleError names a sample that raised; SharingError when a batch that was lent by
        ``zero_copy`` was overwritten while it was used.
        """
        self._check_lent()
        wanted = self._wanted(epoch, begin, end)
        self._look_for_server()
        if self._making.zero_copy:
            lent = self._lend(wanted)
            if lent is not None:
                return lent
        if self._link is None and self._making.workers:
            return self._collated(self._by_workers(epoch, begin), wanted)
        self._end_alone()
        return self._made(wanted)

    def _by_workers(self, epoch: int, begin: int) -> list[Any]:
        making = self._making
        if self._alone is None:
            self._alone = AloneBatches(
                making.samples,
                making.order,
                workers=making.workers,
                items=lambda epoch, begin, end: self._wanted(epoch, begin, end).indices.tolist(),
            )
        began = time.perf_counter()
        samples = self._alone.batch(epoch, begin, lambda: self._shares(self._position))
        self._stats.wait_s += time.perf_counter() - began
        self._stats.misses += len(samples)
        return samples

    def _wanted(self, epoch: int, begin: int, end: int) -> Wanted:
        making = self._making
        order = making.order
        if self._chosen is not None:
            # No window of the group's order holds them: what the cache does not have, the trial decodes.
            nowhere = np.full(end - begin, -1, dtype=np.int64)
            return Wanted(epoch=epoch, positions=nowhere, indices=self._chosen[begin:end], first=-1, last=-1)
        own = making.seed if making.own_order else None
        places = order.places(epoch, begin, end, own_seed=own)
        start = epoch * order.length
        # With an order of its own inside each block, the trial may still want any sample of the block it is in.
        needed = begin if own is None else begin - begin % order.block
        return Wanted(
            epoch=epoch,
            positions=places + start,
            indices=order.indices(epoch, places),
            first=start + needed,
            last=start + int(places.max()) + 1,
        )

    # ── the server ────────────────────────────────────────────────────────────────────────────
    def _look_for_server(self) -> None:
        if self._link is not None or time.monotonic() < self._look_at:
            return
        if self._layout is None:
            with self._own_generators_kept():
                self._layout = Layout.of(self._decode(0, 0))
        began = time.monotonic()
        if self._layout is not None and self._layout.leaves:
            self._link = self._connect(self._layout)
        ended = time.monotonic()
        self._look_at = ended + max(RECONNECT_S, PAUSES * (ended - began))
        self._stats.connections += self._link is not None

    def _lose_link(self, error: LinkLostError) -> None:
        sys.stderr.write(f"{error}; this trial decodes for itself until there is another one\n")
        self._unlink()
        self._look_at = time.monotonic() + RECONNECT_S

    def _fetch(self, wanted: Wanted, columns: Sequence[Array]) -> Any:
        """Which samples were copied."""
        if self._link is None:
            return np.zeros(len(wanted.indices), dtype=np.bool_)
        began, waited = time.perf_counter(), self._link.wait_s
        link = self._link
        try:
            return link.fetch(wanted, [_rows(column) for column in columns])
        except LinkLostError as error:
            self._lose_link(error)
            return np.zeros(len(wanted.indices), dtype=np.bool_)
        finally:
            waited = link.wait_s - waited
            self._stats.wait_s += waited
            self._stats.copy_s += time.perf_counter() - began - waited

    # ── lending ───────────────────────────────────────────────────────────────────────────────
    def _lend(self, wanted: Wanted) -> Any:
        if self._link is None or self._layout is None:
            return None
        try:
            columns = self._link.in_place(wanted)
        except LinkLostError as error:
            self._lose_link(error)
            return None
        if columns is None:
            return None
        self._lent = wanted
        self._stats.hits += len(wanted.indices)
        return self._layout.batch(columns)

    def _is_overwritten(self) -> bool:
        return self._lent is not None and self._link is not None and not self._link.still_there(self._lent)

    def require_unharmed(self) -> None:
        if self._is_overwritten():
            raise SharingError(
                "the batch before was used for so long that the producer has overwritten it; it was lent by zero_copy, "
                "so training has seen wrong data: go back to the last checkpoint, without zero_copy"
            )

    def _check_lent(self) -> None:
        """The batch before is used no more."""
        self.require_unharmed()
        self._lent = None

    # ── making ────────────────────────────────────────────────────────────────────────────────
    def _made(self, wanted: Wanted) -> Any:
        layout = self._layout
        if layout is None or not layout.leaves:
            with self._own_generators_kept():
                samples = [self._decode(wanted.epoch, index) for index in wanted.indices.tolist()]
            return self._collated(samples, wanted)
        columns = self._buffers.take(layout, len(wanted.indices))
        there = self._fetch(wanted, columns)
        self._stats.hits += int(there.sum())
        odd = {} if there.all() else self._decode_missing(wanted, there, layout, columns)
        if not odd and self._making.transform is None and self._making.collate is None:
            return layout.batch(columns)
        return self._collated([odd.get(row, _NOTHING) for row in range(len(there))], wanted, layout, columns)

    def _decode_missing(self, wanted: Wanted, there: Any, layout: Layout, columns: Sequence[Array]) -> dict[int, Any]:
        """Into ``columns``; returns those of another form, by their row."""
        odd: dict[int, Any] = {}
        with self._own_generators_kept():
            for row in np.flatnonzero(~there).tolist():
                sample = self._decode(wanted.epoch, int(wanted.indices[row]))
                values = layout.values(sample)
                if values is None:
                    odd[row] = sample
                    continue
                for column, value in zip(columns, values, strict=True):
                    column[row] = value
        return odd

    def _collated(
        self, samples: list[Any], wanted: Wanted, layout: Layout | None = None, columns: Sequence[Array] = ()
    ) -> Any:
        began = time.perf_counter()
        for row, sample in enumerate(samples):
            if sample is _NOTHING:
                assert layout is not None
                leaves = [as_value(column[row], leaf) for column, leaf in zip(columns, layout.leaves, strict=True)]
                samples[row] = layout.rebuilt(leaves)
        transform = self._making.transform
        if transform is not None:
            keys = SampleKeys(seed=self._making.seed, epoch=wanted.epoch)
            with self._own_generators_kept():
                samples = [
                    self._transformed(transform, sample, keys, index)
                    for sample, index in zip(samples, wanted.indices.tolist(), strict=True)
                ]
        batch = (self._making.collate or _default_collate)(samples)
        self._stats.transform_s += time.perf_counter() - began
        return batch

    def _transformed(self, transform: Transform, sample: Any, keys: SampleKeys, index: int) -> Any:
        key = keys.of(index)
        self._generators.seed(key)
        try:
            return transform(sample, self._own.at(key))
        except Exception as error:
            raise SampleError(index=index, worker="transform", cause=repr(error)) from error

    def _decode(self, epoch: int, index: int) -> Any:
        began = time.perf_counter()
        try:
            return self._making.samples.load(epoch, index)
        except Exception as error:
            raise SampleError(index=index, worker="this process", cause=repr(error)) from error
        finally:
            self._stats.misses += 1
            self._stats.decode_s += time.perf_counter() - began

    @contextmanager
    def _own_generators_kept(self) -> Iterator[None]:
        """The training script's own randomness must not depend on where samples come from."""
        captured = self._generators.capture()
        try:
            yield
        finally:
            self._generators.put_back(captured)


_NOTHING = object()


class _Buffers:
    """Memory of batches that the trial has let go of, used again: new memory costs more than the copy into it."""

    def __init__(self) -> None:
        self._sets: deque[tuple[Array, ...]] = deque(maxlen=BUFFERS_KEPT)

    def take(self, layout: Layout, rows: int) -> tuple[Array, ...]:
        """For each leaf an array of ``rows`` samples that nobody else refers to."""
        for found in self._sets:
            if len(found[0]) == rows and all(sys.getrefcount(column) == _UNUSED_REFERENCES for column in found):
                return found
        made = tuple(np.empty((rows, *leaf.shape), dtype=leaf.storage) for leaf in layout.leaves)
        self._sets.append(made)
        return made


_UNUSED_REFERENCES = 3  # the set's, the loop's, and the one that asks


def _rows(column: Array) -> Bytes:
    """(samples, bytes) of the same memory."""
    if not column.size:
        return np.empty((column.shape[0], 0), dtype=np.uint8)
    return column.reshape(-1).view(np.uint8).reshape(column.shape[0], -1)


def _default_collate(samples: list[Any]) -> Any:
    from trials.data.core.collating import collated

    return collated(samples)

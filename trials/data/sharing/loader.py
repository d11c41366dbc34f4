"""The loader of a trial that shares its node's producer; it iterates as AsyncDataLoader does."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from trials.data.core.fingerprint import fingerprint
from trials.data.core.sample_layout import Layout
from trials.data.errors import LoaderClosed, StateError
from trials.data.sharing.group_order import GroupSamples
from trials.data.sharing.producer_client import Link, greeting
from trials.data.sharing.shared_batches import Making, SharedBatches
from trials.data.sharing.start import SharedOrder, order_of
from trials.data.state import Position
from trials.wire.files import ENV_SEED

REPORT_S = 10.0  # between two reports of where the time went
LAGS = ("detach", "wait")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """With whom. ``locate`` gives the producer's socket; None while there is none: then the loader goes on alone."""

    order: SharedOrder = field(default_factory=SharedOrder)
    locate: Callable[[], Path | None] = lambda: None
    report: Callable[[Mapping[str, float]], None] | None = None


class SharedDataLoader:
    """Batches of a dataset that other trials of the node read, too; each sample is decoded once for all of them.

    The bytes of a batch depend on the dataset, ``sharing.order``, ``seed``, the epoch and ``batch_size`` alone: not on
    who shares, on how fast the others are, or on whether there is a producer at all.

    - ``seed``: of the order inside each block and of ``transform``; the trial's own where it is not given.
    - ``transform(sample, rng)``: after decoding, in the trial, with a generator keyed by (seed, epoch, index); the
      dataset's own ``transform`` where it has one. ``decode(index)`` of the dataset is what is shared, else
      ``dataset[index]``, keyed by (group_seed, epoch, index).
    - ``lag="detach"``: a trial that falls behind decodes for itself; ``"wait"``: the others wait for it.
    - ``own_order=False``: the group's order instead of one's own inside each block.
    - ``zero_copy``: batches are views of the producer's memory, valid until the next one; never write to them. Needs
      ``lag="wait"`` and the group's order.
    - ``num_workers``: of the trial itself, for while there is no producer.
    """

    def __init__(  # noqa: PLR0913  # torch's names, by keyword
        self,
        dataset: Any,
        batch_size: int = 1,
        *,
        sharing: Sharing | None = None,
        drop_last: bool = False,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        transform: Callable[..., Any] | None = None,
        seed: int | None = None,
        lag: str = "detach",
        own_order: bool = True,
        zero_copy: bool = False,
        num_workers: int = 0,
        timeout: float = 30.0,
    ) -> None:
        self._sharing = sharing or Sharing()
        shuffled = self._sharing.order.shuffle and own_order
        transform = transform or getattr(dataset, "transform", None)
        _require_sound(batch_size=batch_size, lag=lag, num_workers=num_workers, timeout=timeout)
        if zero_copy and (lag != "wait" or shuffled or transform is not None or collate_fn is not None):
            raise ValueError(
                "zero_copy needs lag='wait' and own_order=False (or shuffle=False), and neither transform nor "
                "collate_fn: only then a batch is one piece of the producer's memory that nobody overwrites"
            )
        self.dataset = dataset
        self.batch_size = batch_size
        self._drop_last = drop_last
        self._seed = int(os.environ.get(ENV_SEED, "0")) if seed is None else seed
        self._own_order = own_order
        self._fingerprint = fingerprint(dataset)
        self._group = order_of(dataset, self._sharing.order)
        self._hello = greeting(self._group.fingerprint, is_waited_for=lag == "wait")
        self._timeout_s = timeout
        self._making = Making(
            order=self._group,
            samples=GroupSamples(dataset, group_seed=self._sharing.order.group_seed),
            seed=self._seed,
            own_order=own_order,
            transform=transform,
            collate=collate_fn,
            zero_copy=zero_copy,
            workers=num_workers,
            batch_size=batch_size,
        )
        self._batches = SharedBatches(self._making, connect=self._connect)
        self._epoch = 0
        self._delivered = 0
        self._iteration: _Iteration | None = None
        self._closed = False
        self._reported_at = time.monotonic()

    # ── iterating ─────────────────────────────────────────────────────────────────────────────
    def __iter__(self) -> Iterator[Any]:
        """The rest of the epoch after ``load_state_dict``, else a whole one. An iteration under way ends."""
        if self._closed:
            raise LoaderClosed
        if self._iteration is not None and self._iteration.begun:
            self._next_epoch()
        self._iteration = _Iteration(self)
        return self._iteration

    def __len__(self) -> int:
        """Batches of a whole epoch."""
        return self._group.length // self.batch_size if self._drop_last else -(-self._group.length // self.batch_size)

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def is_sharing(self) -> bool:
        """Whether there is a producer at present."""
        return self._batches.is_sharing

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is this epoch, from its beginning; the epoch that is under way goes on where it is."""
        if epoch < 0:
            raise ValueError(f"an epoch is at least 0, not {epoch}")
        if epoch != self._epoch:
            self._iteration = None
            self._epoch, self._delivered = epoch, 0

    # ── state ─────────────────────────────────────────────────────────────────────────────────
    def state_dict(self) -> dict[str, Any]:
        """The position after the batch delivered last, under 300 bytes; the same with and without a producer."""
        return Position(
            dataset=self._fingerprint,
            seed=self._seed,
            epoch=self._epoch,
            delivered=self._delivered,
            batch_size=self.batch_size,
            order=self._order_name,
        ).to_state()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next iteration goes on after the batch that ``state`` was taken with.

        DatasetMismatch for a state of another dataset, StateError for one that does not fit otherwise.
        """
        position = Position.of_state(state, dataset=self._fingerprint, order=self._order_name)
        if position.delivered > self._group.length:
            raise StateError(f"the state has {position.delivered} samples delivered of {self._group.length}")
        self._iteration = None
        if position.seed != self._seed:
            self._seed = position.seed
            self._batches.close()
            self._making = replace(self._making, seed=position.seed)
            self._batches = SharedBatches(self._making, connect=self._connect)
        self._epoch, self._delivered = position.epoch, position.delivered

    @property
    def _order_name(self) -> str:
        shared = self._sharing.order
        if not shared.shuffle:
            return "sequential"
        own = "" if self._own_order else " of the group"
        return f"blocks{own} {shared.block_size} {shared.group_seed}"

    # ── ending ────────────────────────────────────────────────────────────────────────────────
    def close(self, timeout: float = 5.0) -> None:  # noqa: ARG002  # as AsyncDataLoader's; nothing here can take long
        """Leave the producer, which ends when its last trial has left; nothing of the loader is left here."""
        self._closed = True
        self._batches.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()

    def stats(self) -> dict[str, float]:
        """Seconds waited, decoded here and copied, samples from the producer (hits) and not (misses), ``hit_rate``."""
        return self._batches.stats.as_numbers()

    # ── inside ────────────────────────────────────────────────────────────────────────────────
    def _connect(self, layout: Layout) -> Link | None:
        path = self._sharing.locate()
        if path is None:
            return None
        try:
            return Link.open(path, layout, self._hello, patience_s=self._timeout_s)
        except (FileNotFoundError, ConnectionError):
            return None  # it is not there yet, or has just ended

    def _next_epoch(self) -> None:
        self._epoch += 1
        self._delivered = 0

    def _next(self) -> Any:
        """The next batch, or StopIteration at the end of the epoch."""
        if self._closed:
            raise LoaderClosed
        begin = self._delivered
        end = min(begin + self.batch_size, self._group.length)
        if begin >= end or (self._drop_last and end - begin < self.batch_size):
            self._iteration = None
            self._report(is_due=True)
            self._next_epoch()
            raise StopIteration
        batch = self._batches.batch(self._epoch, begin, end)
        self._delivered = end
        self._report(is_due=time.monotonic() - self._reported_at >= REPORT_S)
        return batch

    def _report(self, *, is_due: bool) -> None:
        if is_due and self._sharing.report is not None:
            self._reported_at = time.monotonic()
            self._sharing.report(self.stats())


class _Iteration(Iterator[Any]):
    """One pass; it ends when the loader begins another."""

    def __init__(self, loader: SharedDataLoader) -> None:
        self._loader = loader
        self._exhausted = False
        self.begun = False

    def __next__(self) -> Any:
        loader = self._loader
        if self._exhausted:
            raise StopIteration
        if loader._iteration is not self:  # noqa: SLF001  # the two are one, in two lives
            raise LoaderClosed("this iterator ended when the loader began another iteration, or its position was set")
        self.begun = True
        try:
            return loader._next()  # noqa: SLF001  # likewise
        except StopIteration:
            self._exhausted = True
            raise


def _require_sound(*, batch_size: int, lag: str, num_workers: int, timeout: float) -> None:
    if batch_size < 1:
        raise ValueError(f"batch_size is at least 1, not {batch_size}")
    if lag not in LAGS:
        raise ValueError(f"lag is {' or '.join(map(repr, LAGS))}, not {lag!r}")
    if num_workers < 0:
        raise ValueError(f"num_workers is at least 0, not {num_workers}")
    if timeout <= 0:
        raise ValueError(f"timeout is more than 0 seconds, not {timeout}")

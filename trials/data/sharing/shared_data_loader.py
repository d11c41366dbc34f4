"""SharedDataLoader: the loader of a trial that takes its samples from the node's producer."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trials.arguments import seconds, whole_number
from trials.data.core.ranks import given_ranks
from trials.data.core.sample_layout import Layout
from trials.data.loader import Loader
from trials.data.loader_options import COUNT_LIMIT, WORKERS_LIMIT, given_seed
from trials.data.sharing.group_order import GroupSamples
from trials.data.sharing.producer_client import Link, greeting
from trials.data.sharing.producer_main import SharedOrder, order_of
from trials.data.sharing.shared_batches import Making, SharedBatches
from trials.data.workers.device_prefetch import batch_placement, feed_device
from trials.files import may_pass
from trials.wire.files import ENV_SEED

LAGS = ("detach", "wait")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """With whom. ``locate`` gives the producer's socket; None while there is none: then the loader goes on alone."""

    order: SharedOrder = field(default_factory=SharedOrder)
    locate: Callable[[], Path | None] = lambda: None
    report: Callable[[Mapping[str, float]], None] | None = None


class SharedDataLoader(Loader):
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
    - ``sampler``: gives indices instead of the group's order; the producer's cache has some of them, and the others are
      decoded in the trial.
    - ``pin_memory``, ``device``: batches arrive in pinned memory, or on this CUDA device.
    - ``rank``, ``world_size``: as AsyncDataLoader's; the epoch is split among them, unless there is a sampler.

    ``stats()``: seconds waited, decoded here and copied, samples from the producer (hits) and not (misses),
    ``hit_rate``.
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
        sampler: Any = None,
        pin_memory: bool = False,
        device: Any = None,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        self._sharing = sharing or Sharing()
        ranks = given_ranks(rank, world_size)
        shuffled = self._sharing.order.shuffle and own_order
        transform = transform or getattr(dataset, "transform", None)
        batch_size = whole_number(batch_size, what="batch_size", least=1, most=COUNT_LIMIT)
        num_workers = whole_number(num_workers, what="num_workers", most=WORKERS_LIMIT)
        timeout = seconds(timeout, what="timeout", may_be_zero=False)
        _require_lag(lag)
        if sampler is not None and (ranks is not None or zero_copy):
            raise ValueError(
                "a sampler says itself what each rank gets, and what it gives lies nowhere in one piece: "
                "leave rank, world_size and zero_copy out"
            )
        if zero_copy and (lag != "wait" or shuffled or transform is not None or collate_fn is not None):
            raise ValueError(
                "zero_copy needs lag='wait' and own_order=False (or shuffle=False), and neither transform nor "
                "collate_fn: only then a batch is one piece of the producer's memory that nobody overwrites"
            )
        order = order_of(dataset, self._sharing.order)
        self._hello = greeting(order.fingerprint, is_waited_for=lag == "wait")
        self._timeout_s = timeout
        making = Making(
            order=order,
            samples=GroupSamples(dataset, group_seed=self._sharing.order.group_seed),
            seed=int(os.environ.get(ENV_SEED, "0")) if seed is None else given_seed(seed),
            own_order=own_order,
            transform=transform,
            collate=collate_fn,
            zero_copy=zero_copy,
            workers=num_workers,
            batch_size=batch_size,
            drop_last=drop_last,
            sampler=sampler,
            ranks=ranks,
            place=batch_placement(feed_device(device), pin_memory=pin_memory),
        )
        self._batches = SharedBatches(making, connect=self._connect, report=self._sharing.report)
        super().__init__(self._batches, dataset=dataset, batch_size=batch_size, seed=making.seed)

    @property
    def is_sharing(self) -> bool:
        """Whether there is a producer at present."""
        return self._batches.is_sharing

    def _connect(self, layout: Layout) -> Link | None:
        path = self._sharing.locate()
        if path is None:
            return None
        try:
            return Link.open(path, layout, self._hello, patience_s=self._timeout_s)
        except (FileNotFoundError, ConnectionError, TimeoutError):
            return None  # it is not there yet, has as many trials as it takes, hangs, or has just ended
        except OSError as error:
            if may_pass(error):  # this process has no descriptor or memory to spare
                return None
            raise


def _require_lag(lag: str) -> None:
    if lag not in LAGS:
        raise ValueError(f"lag is {' or '.join(map(repr, LAGS))}, not {lag!r}")

"""Which samples make up each batch of an epoch, from any position on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np

from trials.data.core.in_order_pipeline import Plan
from trials.data.core.keys import derive
from trials.data.core.randomness import GlobalGenerators, SampleKey
from trials.data.core.ranks import ALONE, Ranks
from trials.data.core.sample_order import Order

WINDOW = 4096  # positions that are permuted at once
WRAPPED = ("sampler", "batch_sampler", "base_sampler")  # where a sampler keeps the one that it asks
WRAPPED_MOST = 8  # samplers that are looked at
ENDLESS_LEAST, ENDLESS_TIMES = 1 << 20, 64  # items of a sampler, and times its length: with more it has no end


def indexed_plans(
    order: Order, *, begin: int, batch_size: int, drop_last: bool, ranks: Ranks = ALONE
) -> Iterator[Plan]:
    """Batches of ``batch_size`` from position ``begin``, this rank's part of each; the last one may be short."""
    shares = ranks.shares(begin, length=order.length, batch_size=batch_size, drop_last=drop_last)
    while window := list(islice(shares, max(1, WINDOW // batch_size))):
        positions = np.concatenate([np.arange(share.begin, share.end, dtype=np.int64) for share in window])
        items = order.indices(positions).tolist()
        row = 0
        for share in window:
            size = share.end - share.begin
            yield Plan(share.begin, share.behind, items[row : row + size])
            row += size


def sampled_plans(items: Iterable[Any], *, begin: int, batch_size: int, drop_last: bool) -> Iterator[Plan]:
    """Batches of what a sampler gives, leaving out its first ``begin`` items."""
    iterator = iter(items)
    position = begin
    for _ in islice(iterator, begin):
        pass
    while chosen := list(islice(iterator, batch_size)):
        if len(chosen) == batch_size or not drop_last:
            yield Plan(position, position + len(chosen), chosen)
        position += len(chosen)


def batch_plans(batches: Iterable[Any], *, begin: int) -> Iterator[Plan]:
    """What a batch sampler gives, leaving out its first ``begin`` batches; positions count batches."""
    for number, chosen in enumerate(islice(batches, begin, None), start=begin):
        if isinstance(chosen, str | bytes) or not isinstance(chosen, Iterable):
            raise TypeError(
                f"the batch sampler gave {chosen!r:.60} as batch {number}: each of its batches is a list of indices; "
                "what gives one index at a time is a sampler="
            )
        yield Plan(number, number + 1, list(chosen))


def counted_plans(*, begin: int, batch_size: int) -> Iterator[Plan]:
    """For a source without an index: numbers for the randomness of its samples, without end."""
    position = begin
    while True:
        yield Plan(position, position + batch_size, range(position, position + batch_size))
        position += batch_size


def _counted(sampler: Any) -> list[Any]:
    """All of an epoch. ValueError for one that goes on and on beside its length, for which memory would be taken."""
    most = max(ENDLESS_LEAST, ENDLESS_TIMES * len(sampler))
    found = list(islice(sampler, most + 1))
    if len(found) > most:
        raise ValueError(
            f"the {type(sampler).__name__} says that it has {len(sampler)} items, and gave more than {most}: a sampler "
            "without an end has no __len__; it is then asked batch by batch"
        )
    return found


def is_asked_at_once(sampler: Any) -> bool:
    """Whether an epoch of it is a list. One without a length may have no end, or be used up by being asked; one that
    learns priorities is asked when it has learnt."""
    return hasattr(sampler, "__len__") and not hasattr(sampler, "update_priorities")


def _own_generators(sampler: Any) -> list[Any]:
    """The torch generators of the sampler and of those that it asks, as a BatchSampler asks its sampler; each once."""
    found: dict[int, Any] = {}
    asked = [sampler]
    for one in asked:  # those that are appended, too
        own = getattr(one, "generator", None)
        if hasattr(own, "manual_seed"):
            found.setdefault(id(own), own)
        inner = [getattr(one, name, None) for name in WRAPPED]
        asked += [other for other in inner if other is not None][: WRAPPED_MOST - len(asked)]
    return list(found.values())


def drawn_items(sampler: Any, *, seed: int, epoch: int) -> Iterable[Any]:
    """What the sampler gives in this epoch, as a function of (``seed``, ``epoch``).

    A sampler with a length is asked for all of it at once, while the global generators (and its own torch
    ``generator``, and those of samplers that it asks) are seeded for it; afterwards the trial's go on where they
    were. One without a length, or one that learns priorities, is asked batch by batch, and answers for itself.
    """
    if hasattr(sampler, "set_epoch"):
        sampler.set_epoch(epoch)
    if not is_asked_at_once(sampler):
        lazily: Iterator[Any] = iter(sampler)
        return lazily
    key = derive("sampler", seed, epoch)
    generators = GlobalGenerators()
    before = generators.capture()
    try:
        generators.seed(SampleKey(key >> 64, key & ((1 << 64) - 1)))
        for number, own in enumerate(_own_generators(sampler)):
            own.manual_seed((key >> 65) ^ number)
        return _counted(sampler)
    finally:
        generators.put_back(before)

"""Batches of the trial's own: made by its workers, or in the calling process where it has none."""

from __future__ import annotations

import os
import pickle
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from trials.data.core.in_order_pipeline import Plan
from trials.data.core.loader_stats import Stats
from trials.data.core.sample_layout import mapped
from trials.data.core.sample_order import SequentialOrder, shuffle_named
from trials.data.core.sampling import (
    batch_plans,
    counted_plans,
    drawn_items,
    indexed_plans,
    is_asked_at_once,
    sampled_plans,
)
from trials.data.core.worker_messages import IterableBegin
from trials.data.errors import LoaderClosed, StateError
from trials.data.loader import CLOSE_TIMEOUT_S, Loaded
from trials.data.loader_options import LoaderOptions
from trials.data.loader_state import Position
from trials.data.workers.data_sources import AheadPlans, AskedPlans, called
from trials.data.workers.device_prefetch import CudaStream, DevicePrefetcher, DirectToDevice
from trials.data.workers.inline import InlineBatches
from trials.data.workers.prefetcher import Prefetcher, PrefetcherOptions
from trials.data.workers.sample_maker import Recipe
from trials.data.workers.together import Together, loads_single, loads_together

BatchMaker = Prefetcher | InlineBatches
CHEAP_SAMPLE_S = 50e-6  # with num_workers="auto", samples quicker than this are made in the calling process
CHEAP_BATCH_S = (
    5e-3  # … where the whole batch is quicker than this, too: a larger one is worth being made beside the trial
)
AUTO_WORKERS_LIMIT = 8
_LOOK_SAMPLES = 16
_DRAW_SAMPLES = 2
_SLOW_LOOK_S = 0.1


class OwnBatches:
    """A source of batches (see ``loader.py``) for what ``options`` ask for.

    Processes, threads and memory begin with the first iteration, stay for those after it, and end with ``close``, or
    when nobody refers to the source any more.
    """

    def __init__(self, options: LoaderOptions) -> None:
        self._options = options
        self._stats = Stats()
        self._maker: BatchMaker | None = None
        self._maker_seed = options.the_seed
        self._to_device: DevicePrefetcher | DirectToDevice | None = None
        self._feeds: list[DevicePrefetcher] = []  # of the iteration under way; for who ends it when this is gone
        self._finalizer: Any = None
        self._drawn: tuple[int, int, list[Any]] | None = None  # seed, epoch and items of a sampler, not begun yet

    @property
    def order_name(self) -> str:
        return self._options.order_name

    @property
    def has_state(self) -> bool:
        return self._options.kind != "index"

    @property
    def workers(self) -> BatchMaker | None:
        """What loads the batches; None before the first iteration."""
        return self._maker

    @property
    def pins(self) -> bool:
        """Whether batches are copied to pinned memory: on request, where there is a device to pin for."""
        return self._options.pin_memory and self._options.device is None and _has_cuda()

    def batches(self) -> int:
        options = self._options
        if options.batch_sampler is not None:
            return len(options.batch_sampler)
        samples = len(options.dataset if options.sampler is None else options.sampler)
        return options.the_ranks.batches(
            length=samples, batch_size=options.batch_size or 1, drop_last=options.drop_last
        )

    def stats(self) -> dict[str, Any]:
        return self._stats.to_dict()

    # ── going on ────────────────────────────────────────────────────────────────────────────────
    def require_reachable(self, position: Position, state: Mapping[str, Any]) -> None:  # noqa: ARG002  # a source's signature
        if self.has_state and "source" not in state:
            raise StateError("the state has nothing of its source: it was taken with a dataset that has an index")

    def require_unharmed(self) -> None:
        """They are copies."""

    def restore(self, source_state: Any) -> None:
        if self._options.kind == "source" and source_state is not None:
            self._options.dataset.load_state_dict(source_state)

    # ── iterating ───────────────────────────────────────────────────────────────────────────────
    def begin(self, position: Position, source_state: Any) -> None:
        begin = None
        if self._options.kind == "iterable":
            state = None if source_state is None else pickle.dumps(source_state)
            begin = IterableBegin(position.epoch, state, position.delivered if state is None else 0)
        maker = self._maker_of(position)
        maker.begin(position.epoch, self._plans(position, maker), begin)
        if self._options.device is not None:
            stream = CudaStream(self._options.device)
            if isinstance(maker, Prefetcher):
                maker.pin()
                feed = DevicePrefetcher(maker, stream)
                self._to_device, self._feeds[:] = feed, [feed]
            else:
                self._to_device = DirectToDevice(maker, stream)

    def next(self) -> Loaded | None:
        maker = self._maker
        if maker is None:
            raise LoaderClosed  # by a signal handler, since it began
        found = (self._to_device or maker).next()
        if found is None:
            if self._to_device is not None:
                self._to_device.stop()
            return None
        plan, assembled = found
        state = None
        if self._options.kind == "iterable":
            # That came with the batch: with a device, more may have been read since.
            pickled = assembled.source_state
            state = None if pickled is None else pickle.loads(pickled)  # noqa: S301  # our own
        elif self._options.kind == "source":
            state = plan.source_state
        self._stats.batches += 0 if assembled.empty else 1
        self._stats.samples += assembled.samples
        self._stats.skipped += len(assembled.skipped)
        value = assembled.value
        if self._options.pin_memory and self.pins and not assembled.empty:
            value = mapped(value, _pinned)
        return Loaded(value, plan.end, plan.items, state, assembled.empty)

    def abandon(self) -> None:
        if self._to_device is not None:
            self._to_device.stop()
        if self._maker is not None:
            self._maker.abandon()

    def close(self, timeout_s: float) -> None:
        if self._to_device is not None:
            self._to_device.stop()
        if self._maker is not None:
            if self._finalizer is not None:
                self._finalizer.detach()
            self._maker.close(timeout_s)
            self._maker = None

    # ── what makes them ──────────────────────────────────────────────────────────────────────────────
    def _maker_of(self, position: Position) -> BatchMaker:
        if isinstance(self._maker, Prefetcher) and not self._maker.is_own:
            self._finalizer.detach()
            self._maker = None  # of the process that this one was forked from
        if position.seed != self._maker_seed:
            self.close(CLOSE_TIMEOUT_S)  # its workers draw from streams of another seed
        if self._maker is None:
            self._maker = self._new_maker(position)
            self._maker_seed = position.seed
            self._finalizer = weakref.finalize(self, _let_go, self._feeds, self._maker)
        return self._maker

    def _plans(self, position: Position, maker: BatchMaker | None) -> Iterator[Plan]:
        options, begin = self._options, position.delivered
        size = options.batch_size or 1
        if options.kind == "iterable":
            return counted_plans(begin=begin, batch_size=size)
        if options.kind == "source":
            asked = AskedPlans(
                options.dataset,
                begin=begin,
                batch_size=size,
                drop_last=options.drop_last,
                iteration=position.iteration or 0,
            )
            return AheadPlans(asked, maker.poke) if isinstance(maker, Prefetcher) else asked
        for sampler in (options.batch_sampler, options.sampler):
            if sampler is not None:
                items = self._items(sampler, position.seed, position.epoch)
                self._drawn = None
                if sampler is options.batch_sampler:
                    return batch_plans(items, begin=begin)
                return sampled_plans(items, begin=begin, batch_size=size, drop_last=options.drop_last)
        length = len(options.dataset)
        shuffled = shuffle_named(options.order, dataset=position.dataset)
        order = shuffled(length=length, seed=position.seed, epoch=position.epoch) if options.shuffle else None
        chosen = SequentialOrder(length=length) if order is None else order
        ranks = options.the_ranks
        return indexed_plans(chosen, begin=begin, batch_size=size, drop_last=options.drop_last, ranks=ranks)

    def _new_maker(self, position: Position) -> BatchMaker:
        options, recipe = self._options, self._recipe(position.seed)
        inline = InlineBatches(recipe, self._stats)
        look = () if options.num_workers == 0 else self._look(position.seed)
        workers, worker_type = options.num_workers, options.worker_type
        if workers == "auto":
            workers = self._worth_workers(inline, look, self._largest_batch(position))
        if workers == 0 or (worker_type == "thread" and self._draws(inline, look)):
            return inline
        batch_size = self._largest_batch(position)
        asked = PrefetcherOptions(
            workers=int(workers),
            worker_type=worker_type,
            batch_size=batch_size,
            chunk_size=options.chunk_size,
            prefetch_factor=options.prefetch_factor,
            timeout_s=options.timeout,
            whole_batches=not recipe.rows,
            look=look,
            on_demand=options.kind == "source",
        )
        return Prefetcher(recipe, asked, self._stats)

    def _items(self, sampler: Any, seed: int, epoch: int) -> Iterable[Any]:
        """What the sampler gives. A list is kept until the epoch begins, so that it is asked for that once, as without
        workers."""
        if self._drawn is not None and self._drawn[:2] == (seed, epoch):
            return self._drawn[2]
        items = drawn_items(sampler, seed=seed, epoch=epoch)
        if not is_asked_at_once(sampler):
            return items
        found = list(items)
        if sampler is self._options.batch_sampler:  # a batch that can be gone through once is gone through twice
            found = [list(chosen) if isinstance(chosen, Iterator) else chosen for chosen in found]
        self._drawn = (seed, epoch, found)
        return found

    def _largest_batch(self, position: Position) -> int:
        """As far as that is known: a batch that has no room in a slot travels outside of it."""
        sampler = self._options.batch_sampler
        if sampler is None:
            return self._options.batch_size or 1
        if is_asked_at_once(sampler):
            items = self._items(sampler, position.seed, position.epoch)
            return max((len(plan.items) for plan in batch_plans(items, begin=0)), default=1)
        said = getattr(sampler, "batch_size", None)
        return said if isinstance(said, int) and said > 0 else 1

    def _recipe(self, seed: int) -> Recipe:
        options = self._options
        load: Any = {"index": getattr(options.dataset, "__getitem__", None), "source": called}.get(options.kind)
        collate, rows = _collate(options)
        together = None
        if options.kind == "index" and options.makes_batches and loads_together(options.dataset):
            together = Together(options.dataset)
            load = load if loads_single(options.dataset) else together.single
        return Recipe(
            load=load,
            together=together,
            iterable=options.dataset if options.kind == "iterable" else None,
            transform=options.transform,
            collate=collate,
            rows=rows and options.kind == "index",
            seed=seed,
            skip_errors=options.on_error == "skip",
            drop_last=options.drop_last,
            dataset=None if options.kind == "source" else options.dataset,
            worker_init=options.worker_init_fn,
        )

    def _look(self, seed: int) -> Sequence[Any]:
        """A few items to try: of the beginning, wherever the loader goes on, so that it decides the same way."""
        options = self._options
        if options.kind != "index":
            return ()
        for sampler in (options.batch_sampler, options.sampler):
            if sampler is not None:
                if not is_asked_at_once(sampler):
                    return ()
                few = list(islice(self._items(sampler, seed, 0), _LOOK_SAMPLES))
                if sampler is options.sampler:
                    return few
                return [item for plan in batch_plans(few, begin=0) for item in plan.items][:_LOOK_SAMPLES]
        return range(min(_LOOK_SAMPLES, len(options.dataset)))

    def _draws(self, inline: InlineBatches, look: Sequence[Any]) -> bool:
        """Whether samples draw from the global generators, which threads share with the trial. Then the calling process
        makes them itself: slower, and exact."""
        drawn = inline.draws(look[:_DRAW_SAMPLES])
        if drawn:
            sys.stderr.write(
                "samples draw from the global generators, which threads share: they are made in the calling process; "
                "transform(sample, rng) or worker_type='process' is faster\n"
            )
        return drawn

    def _worth_workers(self, inline: InlineBatches, look: Sequence[Any], batch_size: int) -> int:
        """None where a batch costs less than handing it over, else one for each core."""
        if not look:
            return 1
        first_s = inline.time_of(look)  # it opens files and fills caches
        if first_s < _SLOW_LOOK_S:
            sample_s = inline.time_of(look) / len(look)
            if sample_s < CHEAP_SAMPLE_S and sample_s * batch_size < CHEAP_BATCH_S:
                return 0
        return min(len(os.sched_getaffinity(0)), AUTO_WORKERS_LIMIT)


def _let_go(feeds: list[DevicePrefetcher], maker: BatchMaker) -> None:
    """Nobody refers to the source any more. The collector says so in any thread, perhaps in the feed itself or in one
    that holds a lock that the feed waits for; the feed is then waited for by a thread of its own."""
    if not feeds or threading.current_thread() is threading.main_thread():
        _end(feeds, maker)
    else:
        threading.Thread(target=_end, args=(feeds, maker), name="data end", daemon=True).start()


def _end(feeds: list[DevicePrefetcher], maker: BatchMaker) -> None:
    for feed in feeds:  # first, since it copies out of the maker's memory
        feed.stop()
    maker.close(CLOSE_TIMEOUT_S)


def _has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()


def _pinned(leaf: Any) -> Any:
    return leaf.pin_memory() if hasattr(leaf, "pin_memory") else leaf


def _collate(options: LoaderOptions) -> tuple[Callable[[list[Any]], Any], bool]:
    """The function that makes a batch of samples, and whether it is torch's own."""
    from torch.utils.data import default_collate, default_convert

    from trials.data.core.collating import collated

    if not options.makes_batches:
        return _Single(options.collate_fn or default_convert), False
    if options.collate_fn in {None, default_collate}:
        return collated, True
    return options.collate_fn, False


class _Single:
    """``batch_size=None``: each sample is delivered by itself."""

    def __init__(self, convert: Callable[[Any], Any]) -> None:
        self._convert = convert

    def __call__(self, samples: list[Any]) -> Any:
        return self._convert(samples[0])

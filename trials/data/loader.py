"""The loader of a trial: torch's DataLoader by its names; exact in order and randomness, resumable to the sample."""

from __future__ import annotations

import os
import pickle
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from trials.data.core.fingerprint import fingerprint
from trials.data.core.in_order_pipeline import Plan
from trials.data.core.sample_layout import mapped
from trials.data.core.sample_order import SequentialOrder, shuffle_named
from trials.data.core.sampling import batch_plans, counted_plans, drawn_items, indexed_plans, sampled_plans
from trials.data.core.stats import Stats
from trials.data.core.worker_messages import IterableBegin
from trials.data.errors import LoaderClosed, StateError
from trials.data.options import LoaderOptions
from trials.data.state import Position
from trials.data.workers.batch_assembly import Assembled
from trials.data.workers.data_sources import AheadPlans, AskedPlans, called
from trials.data.workers.device_prefetch import CudaStream, DeviceFeed, feed_device
from trials.data.workers.inline import InlineEngine
from trials.data.workers.prefetcher import Engine, EngineOptions
from trials.data.workers.sample_maker import Recipe

CLOSE_TIMEOUT_S = 5.0
CHEAP_SAMPLE_S = 50e-6  # with num_workers="auto", samples quicker than this are made in the calling process
AUTO_WORKERS_LIMIT = 8
_LOOK_SAMPLES = 16
_DRAW_SAMPLES = 2
_SLOW_LOOK_S = 0.1


class AsyncDataLoader:
    """Batches of a dataset, in an order and with a randomness that depend on (seed, epoch) alone.

    The arguments are torch's, with its defaults. ``dataset`` is a dataset with an index, an iterable, or a data
    source: a callable that is asked with ``batch_size`` and returns samples, or functions that the workers run.
    The keyword arguments of its own:

    - ``seed``: of order and randomness; the trial's own where it is not given, 0 outside a trial.
    - ``transform(sample, rng)``: after loading, with a NumPy generator keyed by (seed, epoch, index).
    - ``order``: ``"keyed"``, or ``"torch"`` for torch's own permutation of ``seed + epoch``.
    - ``chunk_size``: samples of one unit of work; found by measuring where it is not given.
    - ``worker_type``: ``"process"``, ``"thread"``, or ``"auto"``: threads where two load nearly twice as fast as one.
    - ``num_workers="auto"``: none for samples that cost nothing, else one for each core.
    - ``on_error="skip"``: samples that raise are left out and counted.
    - ``device``: batches arrive on this CUDA device, copied beside the computation; ``"cpu"`` leaves them in memory.

    Each iteration is one epoch; the first goes on where ``load_state_dict`` says.
    """

    def __init__(  # noqa: PLR0913, PLR0917  # torch's signature
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,  # noqa: FBT001  # likewise
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int | str = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,  # noqa: FBT001, FBT002  # likewise
        drop_last: bool = False,  # noqa: FBT001, FBT002  # likewise
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = True,  # noqa: ARG002  # accepted for torch's sake: they always stay
        pin_memory_device: str = "",
        in_order: bool = True,
        seed: int | None = None,
        chunk_size: int | None = None,
        worker_type: str = "auto",
        device: Any = None,
        on_error: str = "raise",
        order: str = "keyed",
        transform: Callable[..., Any] | None = None,
    ) -> None:
        if multiprocessing_context is not None or not in_order:
            raise ValueError(
                "workers come from the loader's own fork server, and batches in order: leave those two out"
            )
        if seed is None and generator is not None:
            seed = generator.initial_seed()
        self._options = LoaderOptions(
            dataset=dataset,
            batch_size=batch_size,
            shuffle=bool(shuffle),
            sampler=sampler,
            batch_sampler=batch_sampler,
            num_workers=num_workers,
            collate_fn=collate_fn,
            pin_memory=pin_memory,
            drop_last=drop_last,
            timeout=timeout,
            worker_init_fn=worker_init_fn,
            prefetch_factor=prefetch_factor,
            seed=seed,
            chunk_size=chunk_size,
            worker_type=worker_type,
            device=feed_device(pin_memory_device if device is None and pin_memory_device else device),
            on_error=on_error,
            order=order,
            transform=transform,
        )
        self.dataset = dataset
        self.batch_size = batch_size
        self._fingerprint = fingerprint(dataset)
        self._seed = self._engine_seed = self._options.the_seed
        self._forget_all()

    def _forget_all(self) -> None:
        """Nothing was delivered, nothing runs."""
        self._epoch = 0
        self._delivered = 0
        self._source_state: Any = None
        self._last_items: Sequence[Any] = ()
        self._stats = Stats()
        self._engine: Engine | InlineEngine | None = None
        self._iteration: _Iteration | None = None
        self._closed = False
        self._finalizer: Any = None

    # ── iterating ───────────────────────────────────────────────────────────────────────────────
    def __iter__(self) -> Iterator[Any]:
        """The rest of the epoch after ``load_state_dict``, else a whole one. An iteration under way ends."""
        if self._closed:
            raise LoaderClosed
        if self._iteration is not None:
            self._iteration.stop()
            if self._iteration.begun:
                self._next_epoch()
        self._iteration = _Iteration(self)
        return self._iteration

    def __len__(self) -> int:
        """Batches of a whole epoch."""
        options = self._options
        if options.batch_sampler is not None:
            return len(options.batch_sampler)
        samples = len(options.dataset if options.sampler is None else options.sampler)
        size = options.batch_size or 1
        return samples // size if options.drop_last else -(-samples // size)

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def pins(self) -> bool:
        """Whether batches are copied to pinned memory: on request, where there is a device to pin for."""
        return self._options.pin_memory and self._options.device is None and _has_cuda()

    @property
    def last_indices(self) -> Sequence[Any]:
        """What the batch delivered last was made of: indices, or what the sampler gave."""
        return self._last_items

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is this epoch, from its beginning; the epoch that is under way goes on where it is."""
        if epoch < 0:
            raise ValueError(f"an epoch is at least 0, not {epoch}")
        if epoch != self._epoch:
            self._end_iteration()
            self._epoch, self._delivered, self._source_state = epoch, 0, None

    def update_priorities(self, indices: Sequence[Any], priorities: Sequence[float]) -> None:
        """What the trial learnt, told to the sampler or data source; TypeError when it has no ``update_priorities``."""
        options = self._options
        for holder in (options.batch_sampler, options.sampler, options.dataset):
            if hasattr(holder, "update_priorities"):
                holder.update_priorities(indices, priorities)
                return
        raise TypeError("neither the sampler nor the data source has update_priorities(indices, priorities)")

    # ── state ───────────────────────────────────────────────────────────────────────────────────
    def state_dict(self) -> dict[str, Any]:
        """The position after the batch delivered last, in under 300 bytes; beside it the state of a source without an
        index, as that gave it."""
        state = self._position().to_state()
        if self._options.kind != "index":
            state["source"] = self._source_state
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next iteration goes on after the batch that ``state`` was taken with, with any number of workers.

        Another ``batch_size`` than the state's cuts the rest of the epoch into its own batches.
        DatasetMismatch for a state of another dataset, StateError for one that does not fit otherwise;
        the loader is then as before.
        """
        options = self._options
        position = Position.of_state(state, dataset=self._fingerprint, order=options.order_name)
        if options.kind != "index" and "source" not in state:
            raise StateError("the state has nothing of its source: it was taken with a dataset that has an index")
        self._end_iteration()
        if position.seed != self._engine_seed:
            self._shut_engine(CLOSE_TIMEOUT_S)
        self._seed, self._epoch, self._delivered = position.seed, position.epoch, position.delivered
        self._source_state = state.get("source")
        if options.kind == "source" and self._source_state is not None:
            options.dataset.load_state_dict(self._source_state)

    def _position(self) -> Position:
        return Position(
            dataset=self._fingerprint,
            seed=self._seed,
            epoch=self._epoch,
            delivered=self._delivered,
            batch_size=self._options.batch_size or 0,
            order=self._options.order_name,
        )

    # ── ending ──────────────────────────────────────────────────────────────────────────────────
    def close(self, timeout: float = CLOSE_TIMEOUT_S) -> None:
        """Nothing of the loader is left: no process, descriptor or shared memory beside batches still in use.

        Workers may finish their sample for ``timeout`` seconds; then they are stopped, within half a second more.
        """
        self._closed = True
        self._end_iteration()
        self._shut_engine(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self.close()

    def stats(self) -> dict[str, Any]:
        """Counts and seconds since the loader was made: where its time went."""
        return self._stats.to_dict()

    @property
    def workers(self) -> Engine | InlineEngine | None:
        """What loads the batches; None before the first iteration."""
        return self._engine

    def _taken(self, plan: Plan, assembled: Assembled, engine: Engine | InlineEngine) -> None:
        """A batch was handed to the trial: from here on a state says so."""
        self._delivered = plan.end
        self._last_items = plan.items
        if self._options.kind == "iterable":
            self._source_state = None if engine.source_state is None else pickle.loads(engine.source_state)  # noqa: S301  # our own
        elif self._options.kind == "source":
            self._source_state = plan.source_state
        self._stats.batches += 0 if assembled.empty else 1
        self._stats.samples += assembled.samples
        self._stats.skipped += len(assembled.skipped)

    # ── inside ──────────────────────────────────────────────────────────────────────────────────
    def _next_epoch(self) -> None:
        self._epoch += 1
        self._delivered, self._source_state = 0, None

    def _end_iteration(self) -> None:
        if self._iteration is not None:
            self._iteration.stop()
            self._iteration = None

    def _shut_engine(self, timeout_s: float) -> None:
        if self._engine is not None:
            if self._finalizer is not None:
                self._finalizer.detach()
            self._engine.close(timeout_s)
            self._engine = None

    def _begin(self) -> Engine | InlineEngine:
        """The engine, at the beginning of an iteration from the present position."""
        begin = None
        if self._options.kind == "iterable":
            state = None if self._source_state is None else pickle.dumps(self._source_state)
            begin = IterableBegin(self._epoch, state, self._delivered if state is None else 0)
        if self._engine is None:
            self._engine = self._made_engine()
            self._engine_seed = self._seed
            self._finalizer = weakref.finalize(self, self._engine.close, CLOSE_TIMEOUT_S)
        self._engine.begin(self._epoch, self._plans(self._engine), begin)
        return self._engine

    def _plans(self, engine: Engine | InlineEngine | None) -> Iterator[Plan]:
        options, begin = self._options, self._delivered
        size = options.batch_size or 1
        if options.kind == "iterable":
            return counted_plans(begin=begin, batch_size=size)
        if options.kind == "source":
            asked = AskedPlans(options.dataset, begin=begin, batch_size=size, drop_last=options.drop_last)
            return AheadPlans(asked, engine.poke) if isinstance(engine, Engine) else asked
        for sampler in (options.batch_sampler, options.sampler):
            if sampler is not None:
                items: Iterable[Any] = drawn_items(sampler, seed=self._seed, epoch=self._epoch)
                if sampler is options.batch_sampler:
                    return batch_plans(items, begin=begin)
                return sampled_plans(items, begin=begin, batch_size=size, drop_last=options.drop_last)
        length = len(options.dataset)
        shuffled = shuffle_named(options.order, dataset=self._fingerprint)
        order = shuffled(length=length, seed=self._seed, epoch=self._epoch) if options.shuffle else None
        chosen = SequentialOrder(length=length) if order is None else order
        return indexed_plans(chosen, begin=begin, batch_size=size, drop_last=options.drop_last)

    def _made_engine(self) -> Engine | InlineEngine:
        options, recipe = self._options, self._recipe()
        inline = InlineEngine(recipe, self._stats)
        look = () if options.num_workers == 0 else self._look()
        workers, worker_type = options.num_workers, options.worker_type
        if workers == "auto":
            workers = self._worth_workers(inline, look)
        if workers == 0 or (worker_type == "thread" and self._draws(inline, look)):
            return inline
        batch_size = options.batch_size or 1
        if options.batch_sampler is not None:
            batch_size = max((len(plan.items) for plan in self._plans(None)), default=1)
        asked = EngineOptions(
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
        return Engine(recipe, asked, self._stats)

    def _recipe(self) -> Recipe:
        options = self._options
        load: Any = {"index": getattr(options.dataset, "__getitem__", None), "source": called}.get(options.kind)
        collate, rows = _collate(options)
        return Recipe(
            load=load,
            iterable=options.dataset if options.kind == "iterable" else None,
            transform=options.transform,
            collate=collate,
            rows=rows and options.kind == "index",
            seed=self._seed,
            skip_errors=options.on_error == "skip",
            drop_last=options.drop_last,
            dataset=None if options.kind == "source" else options.dataset,
            worker_init=options.worker_init_fn,
        )

    def _look(self) -> Sequence[Any]:
        """A few items to try: of the beginning, wherever the loader goes on, so that it decides the same way."""
        options = self._options
        if options.kind != "index":
            return ()
        for sampler in (options.batch_sampler, options.sampler):
            if sampler is not None:
                items = drawn_items(sampler, seed=self._seed, epoch=0)
                few = list(items[:_LOOK_SAMPLES]) if isinstance(items, list) else []
                return few if sampler is options.sampler else [item for batch in few for item in batch][:_LOOK_SAMPLES]
        return range(min(_LOOK_SAMPLES, len(options.dataset)))

    def _draws(self, inline: InlineEngine, look: Sequence[Any]) -> bool:
        """Whether samples draw from the global generators, which threads share with the trial. Then the calling process
        makes them itself: slower, and exact."""
        drawn = inline.draws(look[:_DRAW_SAMPLES])
        if drawn:
            sys.stderr.write(
                "samples draw from the global generators, which threads share: they are made in the calling process; "
                "transform(sample, rng) or worker_type='process' is faster\n"
            )
        return drawn

    def _worth_workers(self, inline: InlineEngine, look: Sequence[Any]) -> int:
        """None where a batch costs less than handing it over, else one for each core."""
        if not look:
            return 1
        first_s = inline.time_of(look)  # it opens files and fills caches
        if first_s < _SLOW_LOOK_S and inline.time_of(look) / len(look) < CHEAP_SAMPLE_S:
            return 0
        return min(len(os.sched_getaffinity(0)), AUTO_WORKERS_LIMIT)


class _Iteration(Iterator[Any]):
    """One pass; it ends when the loader begins another."""

    def __init__(self, loader: AsyncDataLoader) -> None:
        self._loader = loader
        self._engine: Engine | InlineEngine | None = None
        self._feed: DeviceFeed | None = None
        self._stopped = False
        self._exhausted = False
        self.begun = False

    def __next__(self) -> Any:
        loader = self._loader
        if self._exhausted:
            raise StopIteration
        if loader._closed:  # noqa: SLF001  # the two are one, in two lives
            raise LoaderClosed
        if self._stopped:
            raise LoaderClosed("this iterator ended when the loader began another iteration, or its position was set")
        if self._engine is None:
            self._engine = loader._begin()  # noqa: SLF001  # likewise
            self.begun = True
            if loader._options.device is not None:  # noqa: SLF001  # likewise
                if isinstance(self._engine, Engine):
                    self._engine.pin()
                self._feed = DeviceFeed(self._engine, CudaStream(loader._options.device))  # noqa: SLF001  # likewise
        return self._following()

    def stop(self) -> None:
        self._stopped = True
        if self._feed is not None:
            self._feed.stop()
        if self._engine is not None and not self._exhausted:
            self._engine.abandon()

    def _following(self) -> Any:
        loader, engine = self._loader, self._engine
        assert engine is not None
        while True:
            found = (self._feed or engine).next()
            if found is None:
                self._exhausted = True
                if self._feed is not None:
                    self._feed.stop()
                loader._iteration = None  # noqa: SLF001  # likewise
                loader._next_epoch()  # noqa: SLF001  # likewise
                raise StopIteration
            plan, assembled = found
            loader._taken(plan, assembled, engine)  # noqa: SLF001  # likewise
            if not assembled.empty:
                return assembled.value if not loader.pins else mapped(assembled.value, _pinned)


def _has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()


def _pinned(leaf: Any) -> Any:
    return leaf.pin_memory() if hasattr(leaf, "pin_memory") else leaf


def _collate(options: LoaderOptions) -> tuple[Callable[[list[Any]], Any], bool]:
    """The function that makes a batch of samples, and whether it is torch's own."""
    from torch.utils.data import default_collate, default_convert

    from trials.data.core.collating import collated

    if options.batch_size is None and options.batch_sampler is None:
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

"""What a loader was asked for: torch's rules of what goes with what, checked once."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from trials.arguments import whole_number
from trials.data.core.fingerprint import length_of
from trials.data.core.ranks import ALONE, Ranks, known_ranks
from trials.data.core.sample_order import shuffle_named
from trials.data.workers.data_sources import is_source
from trials.wire.files import ENV_SEED

WORKERS_LIMIT = 1024
COUNT_LIMIT = 1 << 31  # of samples in a batch or a chunk, and of batches ahead
SEED_LEAST, SEED_MOST = -(1 << 63), (1 << 64) - 1  # as torch takes them
_TYPES = ("auto", "process", "thread")


@dataclass(frozen=True, kw_only=True)
class LoaderOptions:
    dataset: Any
    batch_size: int | None = 1
    shuffle: bool = False
    sampler: Any = None
    batch_sampler: Any = None
    num_workers: int | str = 0
    collate_fn: Callable[[list[Any]], Any] | None = None
    pin_memory: bool = False
    drop_last: bool = False
    timeout: float = 0.0
    worker_init_fn: Callable[[int], None] | None = None
    prefetch_factor: int | None = None
    seed: int | None = None
    chunk_size: int | None = None
    worker_type: str = "auto"
    device: Any = None
    on_error: str = "raise"
    order: str = "keyed"
    transform: Callable[..., Any] | None = None
    ranks: Ranks | None = None  # as the script says it

    def __post_init__(self) -> None:
        for wrong, why in self._rules():
            if wrong:
                raise ValueError(why)
        shuffle_named(self.order)

    @cached_property
    def kind(self) -> str:
        """index, iterable or source."""
        if is_source(self.dataset):
            return "source"
        return "index" if hasattr(self.dataset, "__getitem__") and not _torch_iterable(self.dataset) else "iterable"

    @property
    def makes_batches(self) -> bool:
        """``batch_size=None`` delivers samples one by one."""
        return self.batch_size is not None or self.batch_sampler is not None

    @property
    def order_name(self) -> str:
        """What a position means; part of a state."""
        if self.kind != "index":
            return self.kind
        for name in ("batch_sampler", "sampler"):
            if getattr(self, name) is not None:
                return f"{name} {type(getattr(self, name)).__name__}"[:60]
        return self.order if self.shuffle else "sequential"

    @property
    def the_ranks(self) -> Ranks:
        """Among which an epoch is split; looked up at each call, because scripts make loaders before they join a world.

        A sampler says itself what its rank gets, and so does whatever has no index.
        """
        if self.ranks is not None:
            return self.ranks
        if self.kind != "index" or self.sampler is not None or self.batch_sampler is not None:
            return ALONE
        return known_ranks()

    @property
    def the_seed(self) -> int:
        """As given; else the trial's; else 0."""
        return int(os.environ.get(ENV_SEED, "0")) if self.seed is None else self.seed

    def _rules(self) -> list[tuple[bool, str]]:
        batched = self.batch_size not in {1, None} or self.shuffle or self.sampler is not None or self.drop_last
        ordered = self.shuffle or self.sampler is not None or self.batch_sampler is not None
        workers = self.num_workers
        counted = isinstance(workers, int) and not isinstance(workers, bool) and 0 <= workers <= WORKERS_LIMIT
        without = workers == 0
        return [
            (
                self.kind == "iterable" and not hasattr(self.dataset, "__iter__"),
                (
                    f"{self.dataset!r:.60}, a {type(self.dataset).__name__}, is no dataset: it has no __getitem__ and "
                    "no __iter__, and it is no function that gives samples"
                ),
            ),
            (
                not (counted or workers == "auto"),
                f"num_workers is 'auto' or a number from 0 to {WORKERS_LIMIT}, not {workers!r}",
            ),
            (
                self.batch_sampler is not None and batched,
                "batch_sampler goes alone: it says what batch_size, shuffle, sampler and drop_last would",
            ),
            (self.sampler is not None and self.shuffle, "sampler goes without shuffle: the sampler is the order"),
            (self.batch_size is not None and self.batch_size < 1, f"batch_size is at least 1, not {self.batch_size}"),
            (
                self.batch_size is None and self.drop_last,
                "batch_size=None makes no batches, so drop_last has no meaning",
            ),
            (
                self.batch_size is None and self.kind == "source",
                "a data source is asked for batches, so it needs a batch_size",
            ),
            (
                self.kind != "index" and ordered,
                f"{type(self.dataset).__name__} has no index, so shuffle, sampler and batch_sampler have no meaning",
            ),
            (
                self.kind == "index" and not ordered and length_of(self.dataset) is None,
                f"{type(self.dataset).__name__} has no length; give a sampler",
            ),
            (
                self.ranks is not None
                and (self.kind != "index" or self.sampler is not None or self.batch_sampler is not None),
                (
                    "rank and world_size split the epoch of a dataset with an index; a sampler, an iterable or a data "
                    "source says itself what each rank gets: leave one or the other out"
                ),
            ),
            (self.timeout < 0, f"timeout is at least 0 (no limit), not {self.timeout}"),
            (without and self.timeout > 0, "timeout needs workers: the calling process cannot interrupt itself"),
            (without and self.prefetch_factor is not None, "prefetch_factor needs workers"),
            (self.prefetch_factor is not None and self.prefetch_factor < 1, "prefetch_factor is at least 1"),
            (self.chunk_size is not None and self.chunk_size < 1, "chunk_size is at least 1"),
            (self.worker_type not in _TYPES, f"worker_type is one of {', '.join(_TYPES)}, not {self.worker_type!r}"),
            (self.on_error not in {"raise", "skip"}, f"on_error is 'raise' or 'skip', not {self.on_error!r}"),
        ]


def given_seed(seed: Any) -> int:
    """As Python's own number: a NumPy one of the same value would name other randomness."""
    return whole_number(seed, what="seed", least=SEED_LEAST, most=SEED_MOST)


def _torch_iterable(dataset: Any) -> bool:
    """torch's IterableDataset has a ``__getitem__``, which raises."""
    bases = type(dataset).__mro__
    return any(base.__name__ == "IterableDataset" and base.__module__.startswith("torch.") for base in bases)

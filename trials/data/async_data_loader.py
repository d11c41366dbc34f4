"""The loader of a trial: torch's DataLoader by its names; exact in order and randomness, resumable to the sample."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

from trials.arguments import seconds, whole_number
from trials.data.core.ranks import given_ranks
from trials.data.ding_arguments import as_torch_calls
from trials.data.loader import Loader
from trials.data.loader_options import COUNT_LIMIT, LoaderOptions, given_seed
from trials.data.own_batches import BatchMaker, OwnBatches
from trials.data.workers.device_prefetch import feed_device


class AsyncDataLoader(Loader):
    """Batches of a dataset, in an order and with a randomness that depend on (seed, epoch) alone.

    The arguments are torch's, with its defaults. ``dataset`` is a dataset with an index, an iterable, or a data
    source: a callable that is asked with ``batch_size`` and returns samples, or functions that the workers run.
    ``__getitems__`` of a dataset that has it is called for each batch, and gives what ``__getitem__`` gives for each.
    The keyword arguments of its own:

    - ``seed``: of order and randomness; the trial's own where it is not given, 0 outside a trial.
    - ``transform(sample, rng)``: after loading, with a NumPy generator keyed by (seed, epoch, index).
    - ``order``: ``"keyed"``, or ``"torch"`` for torch's own permutation of ``seed + epoch``.
    - ``chunk_size``: samples of one unit of work; found by measuring where it is not given.
    - ``worker_type``: ``"process"``, ``"thread"``, or ``"auto"``: threads where two load nearly twice as fast as one.
    - ``num_workers="auto"``: none where a batch costs next to nothing, else one for each core, eight at most.
    - ``on_error="skip"``: samples that raise are left out and counted.
    - ``device``: batches arrive on this CUDA device, copied beside the computation; ``"cpu"`` leaves them in memory.
    - ``rank`` and ``world_size``: of data-parallel training; found by themselves where torch.distributed, torchrun or a
      task group says them. The epoch of a dataset with an index is split, unless there is a sampler.
    - ``data_source``: DI-engine's name of ``dataset``; DI-engine's arguments by position are taken, too.

    Each iteration is one epoch; the first goes on where ``load_state_dict`` says.
    """

    def __init__(  # noqa: PLR0913, PLR0917  # torch's signature
        self,
        dataset: Any = None,
        batch_size: int | None = 1,
        shuffle: bool | str | None = None,  # noqa: FBT001  # torch's signature; DI-engine's device
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int | str = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,  # noqa: FBT001, FBT002  # torch's signature
        drop_last: bool = False,  # noqa: FBT001, FBT002  # torch's signature
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = True,  # accepted for torch's sake: they always stay
        pin_memory_device: str = "",
        in_order: bool = True,
        seed: int | None = None,
        chunk_size: int | None = None,
        worker_type: str = "auto",
        device: Any = None,
        on_error: str = "raise",
        order: str = "keyed",
        transform: Callable[..., Any] | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        data_source: Any = None,
    ) -> None:
        if multiprocessing_context is not None or not in_order:
            raise ValueError(
                "workers come from the loader's own fork server, and batches in order: leave those two out"
            )
        given = as_torch_calls(dict(locals()))
        if seed is None and generator is not None:
            given["seed"] = generator.initial_seed()
        given |= _numbers(given)
        given["device"] = feed_device((pin_memory_device or None) if given["device"] is None else given["device"])
        given["ranks"] = given_ranks(rank, world_size)
        options = LoaderOptions(**{option.name: given[option.name] for option in fields(LoaderOptions)})
        self._options = options
        self._own = OwnBatches(options)
        super().__init__(self._own, dataset=options.dataset, batch_size=options.batch_size, seed=options.the_seed)

    @property
    def pins(self) -> bool:
        """Whether batches are copied to pinned memory: on request, where there is a device to pin for."""
        return self._own.pins

    @property
    def wants_priorities(self) -> bool:
        """Whether ``update_priorities`` has somebody to tell."""
        return self._learns() is not None

    @property
    def last_indices(self) -> Sequence[Any]:
        """What the batch delivered last was made of: indices, or what the sampler gave."""
        return self._last_items

    @property
    def workers(self) -> BatchMaker | None:
        """What loads the batches; None before the first iteration."""
        return self._own.workers

    def update_priorities(self, indices: Sequence[Any], priorities: Sequence[float]) -> None:
        """What the trial learnt, told to the sampler or data source; TypeError when it has no ``update_priorities``."""
        holder = self._learns()
        if holder is None:
            raise TypeError("neither the sampler nor the data source has update_priorities(indices, priorities)")
        holder.update_priorities(indices, priorities)

    def _learns(self) -> Any:
        options = self._options
        holders = (options.batch_sampler, options.sampler, options.dataset)
        return next((holder for holder in holders if hasattr(holder, "update_priorities")), None)


def _numbers(given: dict[str, Any]) -> dict[str, Any]:
    """The numbers among the arguments as Python's own, since a state holds them. Errors name the wrong one."""
    found: dict[str, Any] = {
        name: whole_number(given[name], what=name, least=1, most=COUNT_LIMIT)
        for name in ("batch_size", "chunk_size", "prefetch_factor")
        if given[name] is not None
    }
    if given["seed"] is not None:
        found["seed"] = given_seed(given["seed"])
    return found | {"timeout": seconds(given["timeout"], what="timeout")}

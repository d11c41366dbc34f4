"""The group order: in which order all trials that share want their samples, and the part of each that they share."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from trials.data.core.keys import derive
from trials.data.core.randomness import GlobalGenerators, SampleKeys
from trials.data.core.sample_order import BlockOrder

EPOCHS_KEPT = 32  # orders and keys of so many epochs are kept, which is cheap
SEGMENT = 1024  # positions that are permuted at once
SEGMENTS_KEPT = 64
Positions = NDArray[np.int64]


class Dataset(Protocol):
    """A map-style dataset. With ``decode`` (and ``transform``), that is what is shared instead of ``__getitem__``."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


class GroupSamples:
    """``decode(index)`` where the dataset has it: deterministic, the same in every epoch. Else ``dataset[index]``.

    Both with the global generators seeded from (``group_seed``, epoch, index), so that it does not matter who decodes.
    """

    def __init__(self, dataset: Any, *, group_seed: int) -> None:
        self._made_of = (dataset, group_seed)
        decode = getattr(dataset, "decode", None)
        self.per_epoch = decode is None
        self._load = dataset.__getitem__ if decode is None else decode
        self._generators = GlobalGenerators()
        self._keys = lru_cache(EPOCHS_KEPT)(lambda epoch: SampleKeys(seed=group_seed, epoch=epoch))

    def __reduce__(self) -> tuple[Any, ...]:
        return _group_samples, self._made_of

    def load(self, epoch: int, index: int) -> Any:
        """Leaves the global generators where the sample left them."""
        self._generators.seed(self._keys(epoch if self.per_epoch else 0).of(index))
        return self._load(index)


def _group_samples(dataset: Any, group_seed: int) -> GroupSamples:
    return GroupSamples(dataset, group_seed=group_seed)


class GroupOrder:
    """Which sample stands where in the stream of all epochs: position = epoch x length + place."""

    def __init__(self, *, length: int, shuffle: bool, block: int, dataset: str, group_seed: int) -> None:
        self.length = length
        self.block = block
        self._shuffle = shuffle
        self._group_seed = group_seed
        # A hash of all that the order depends on: trials with the same fingerprint agree on every position.
        self.fingerprint = f"{dataset}:{derive('shared order', length, int(shuffle), block, dataset, group_seed):032x}"
        self._of_epoch = lru_cache(EPOCHS_KEPT)(
            lambda epoch, seed: BlockOrder(
                length=length, block=block, dataset=dataset, group_seed=group_seed, seed=seed, epoch=epoch
            )
        )
        # A permutation costs nearly as much for one position as for a thousand.
        self._segment_of_indices = lru_cache(SEGMENTS_KEPT)(self._permuted_indices)
        self._segment_of_places = lru_cache(SEGMENTS_KEPT)(self._permuted_places)

    def name(self, *, is_own: bool) -> str:
        """Of a trial's order in a state; ``is_own``: inside each block it has an order of its own."""
        if not self._shuffle:
            return "sequential"
        return f"blocks{'' if is_own else ' of the group'} {self.block} {self._group_seed}"

    def indices(self, epoch: int, places: Positions) -> Positions:
        if not self._shuffle:
            return places
        segments = places // SEGMENT
        first, last = int(segments.min()), int(segments.max())
        if first == last:
            return self._segment_of_indices(epoch, first)[places - first * SEGMENT]
        found = np.empty_like(places)
        for segment in range(first, last + 1):
            chosen = segments == segment
            found[chosen] = self._segment_of_indices(epoch, segment)[places[chosen] - segment * SEGMENT]
        return found

    def places(self, epoch: int, begin: int, end: int, *, own_seed: int | None) -> Positions:
        """Of the trial's positions from ``begin`` to ``end``, permuted inside each block by ``own_seed``; without it,
        in the group's order."""
        if own_seed is None or not self._shuffle:
            return np.arange(begin, end, dtype=np.int64)
        parts = []
        for segment in range(begin // SEGMENT, (end - 1) // SEGMENT + 1):
            first = segment * SEGMENT
            found = self._segment_of_places(epoch, own_seed, segment)
            parts.append(found[max(begin - first, 0) : end - first])
        return np.concatenate(parts)

    def _permuted_indices(self, epoch: int, segment: int) -> Positions:
        return self._of_epoch(epoch, 0).indices_of_places(self._positions(segment))

    def _permuted_places(self, epoch: int, seed: int, segment: int) -> Positions:
        return self._of_epoch(epoch, seed).places(self._positions(segment))

    def _positions(self, segment: int) -> Positions:
        begin = segment * SEGMENT
        return np.arange(begin, min(begin + SEGMENT, self.length), dtype=np.int64)

    def indices_of_stream(self, first: int, count: int) -> Positions:
        """Of ``count`` consecutive positions of the stream."""
        found = np.empty(count, dtype=np.int64)
        done = 0
        while done < count:
            epoch, place = divmod(first + done, self.length)
            size = min(count - done, self.length - place)
            found[done : done + size] = self.indices(epoch, np.arange(place, place + size, dtype=np.int64))
            done += size
        return found

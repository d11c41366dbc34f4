"""Decoding without a producer: the trial's own workers decode the same samples, from any batch on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from trials.data.core.ranks import Share
from trials.data.errors import SampleError
from trials.data.loader import CLOSE_TIMEOUT_S
from trials.data.loader_options import LoaderOptions
from trials.data.loader_state import Position
from trials.data.own_batches import OwnBatches
from trials.data.sharing.group_order import GroupOrder, GroupSamples

Items = Callable[[int, int, int], list[int]]  # the indices of the trial's positions begin to end of an epoch
Rest = Callable[[], Iterable[Share]]  # the batches from the wanted one to the end of the epoch


class _Coded:
    """Samples by their number in the stream of all epochs."""

    def __init__(self, samples: GroupSamples, length: int) -> None:
        self._samples, self._length = samples, length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, code: int) -> Any:
        epoch, index = divmod(code, self._length)
        return self._samples.load(epoch, index)


class AloneBatches:
    """Lists of samples as the batches want them, prefetched by ``workers`` processes."""

    def __init__(self, samples: GroupSamples, order: GroupOrder, *, workers: int, items: Items) -> None:
        self._dataset = _Coded(samples, order.length)
        self._length, self._workers, self._items = order.length, workers, items
        self._source: OwnBatches | None = None
        self._coming: deque[tuple[int, int]] = deque()  # epoch and first position of each batch that is on its way

    def batch(self, epoch: int, begin: int, rest: Rest) -> list[Any]:
        """Decoded samples of the trial's positions; those after them are on their way."""
        source = self._source
        if source is None or not self._coming or self._coming[0] != (epoch, begin):
            source = self._restarted(epoch, list(rest()))
        self._coming.popleft()
        try:
            loaded = source.next()
        except SampleError as error:
            if isinstance(error.index, int):
                raise SampleError(
                    index=error.index % self._length, worker=error.worker, cause=repr(error.__cause__)
                ) from error.__cause__
            raise
        assert loaded is not None  # the caller asks for batches of the epoch only
        samples: list[Any] = loaded.value
        return samples

    def close(self) -> None:
        if self._source is not None:
            self._source.close(CLOSE_TIMEOUT_S)
            self._source = None
            self._coming.clear()

    def _restarted(self, epoch: int, shares: list[Share]) -> OwnBatches:
        self.close()
        self._coming.extend((epoch, share.begin) for share in shares)
        batches = [
            [epoch * self._length + index for index in self._items(epoch, share.begin, share.end)] for share in shares
        ]
        options = LoaderOptions(
            dataset=self._dataset,
            batch_sampler=batches,
            num_workers=self._workers,
            collate_fn=_kept,
            worker_type="process",
            seed=0,  # samples have the group's randomness, and batches the trial's order: nothing here draws
        )
        self._source = OwnBatches(options)
        start = Position(dataset="", seed=0, epoch=0, delivered=0, batch_size=0, order=options.order_name)
        self._source.begin(start, None)
        return self._source


def _kept(samples: list[Any]) -> list[Any]:
    return samples

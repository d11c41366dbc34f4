"""While there is no producer: the trial's own workers decode the same samples, from any batch on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from trials.data.errors import SampleError
from trials.data.loader import AsyncDataLoader
from trials.data.sharing.group_order import GroupOrder, GroupSamples

Items = Callable[[int, int, int], list[int]]  # the indices of the trial's positions begin to end of an epoch


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
        self._loader: AsyncDataLoader | None = None
        self._iterator: Iterator[list[Any]] = iter(())
        self._next: tuple[int, int] | None = None
        self._epoch = 0

    def batch(self, epoch: int, begin: int, end: int, *, size: int) -> list[Any]:
        """Decoded samples of the trial's positions; those after them are on their way."""
        if self._next != (epoch, begin):
            self._restart(epoch, begin, size)
        self._next = (epoch, end)
        try:
            return next(self._iterator)
        except SampleError as error:
            if isinstance(error.index, int):
                raise SampleError(
                    index=error.index % self._length, worker=error.worker, cause=repr(error.__cause__)
                ) from error.__cause__
            raise

    def close(self) -> None:
        if self._loader is not None:
            self._loader.close()
            self._loader = None
            self._next = None

    def _restart(self, epoch: int, begin: int, size: int) -> None:
        self.close()
        batches = [
            [epoch * self._length + index for index in self._items(epoch, first, min(first + size, self._length))]
            for first in range(begin, self._length, size)
        ]
        self._loader = AsyncDataLoader(
            self._dataset, batch_sampler=batches, num_workers=self._workers, collate_fn=_kept, worker_type="process"
        )
        self._iterator = iter(self._loader)


def _kept(samples: list[Any]) -> list[Any]:
    return samples

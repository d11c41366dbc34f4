"""Iterable datasets, which have no index: read in order by one worker, and resumed by their own ``state_dict``."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import Any

from trials.data.core.randomness import SampleKeys
from trials.data.core.worker_messages import Failure, IterableBegin, Part, failure
from trials.data.workers.sample_maker import SampleMaker

_BEGINNING = -1  # the number that names the randomness of __iter__, before the first sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    samples: list[Any]
    ended: bool
    state: bytes | None  # of the source, after these samples
    failure: Failure | None = None


class IterableReader:
    """One pass over an iterable, from where ``begin`` says.

    What it draws from the global generators is keyed by (seed, epoch, number of the sample), as that of a dataset with
    an index, so reading over what was delivered draws what was drawn the first time.
    """

    def __init__(self, iterable: Any, begin: IterableBegin) -> None:
        self._begin = begin
        self._source = iterable
        self._iterator: Any = None

    def batch(self, part: Part, maker: SampleMaker, *, drop_last: bool) -> Read:
        """Up to as many samples as the part has items. Never raises what the source raises: it is in the result."""
        count = len(part.items)
        keys = maker.keys(self._begin.epoch)
        samples: list[Any] = []
        try:
            iterator = self._started(maker, keys)
            while len(samples) < count:
                number = part.items[len(samples)]
                maker.begin(keys, number)
                try:
                    sample = next(iterator)
                except StopIteration:
                    kept = [] if drop_last else samples
                    return Read(samples=kept, ended=True, state=self._state())
                samples.append(maker.finish(keys, sample, number))
            return Read(samples=samples, ended=False, state=self._state())
        except Exception as error:  # noqa: BLE001  # a user's iterable may raise anything; the trial gets it, in order
            row = min(len(samples), count - 1)  # its state may raise, after the last one
            failed = failure(row, part.items[row], error)
            return Read(samples=[], ended=True, state=None, failure=failed)

    def _started(self, maker: SampleMaker, keys: SampleKeys) -> Any:
        if self._iterator is None:
            state = None if self._begin.state is None else pickle.loads(self._begin.state)  # noqa: S301  # our own
            if state is not None and hasattr(self._source, "load_state_dict"):
                self._source.load_state_dict(state)
            maker.begin(keys, _BEGINNING)
            self._iterator = iter(self._source)
            if state is not None and not hasattr(self._source, "load_state_dict"):
                self._iterator.load_state_dict(state)
            for number in range(self._begin.skip):
                maker.begin(keys, number)
                next(self._iterator, None)
        return self._iterator

    def _state(self) -> bytes | None:
        holder = next((h for h in (self._source, self._iterator) if hasattr(h, "state_dict")), None)
        return None if holder is None else pickle.dumps(holder.state_dict())

"""Samples that a dataset loads together: its ``__getitems__(indices)``, as torch's DataLoader calls it for a batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set, Sized
from typing import Any


class WrongAnswerError(TypeError):
    """``__getitems__`` gave something else than one sample for each index. No sample raised, so none is left out."""


class Together:
    """``dataset.__getitems__``, whose answer is looked at: a list of as many samples as it was asked for."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __call__(self, items: Sequence[Any]) -> list[Any]:
        found = self._dataset.__getitems__(list(items))
        if not isinstance(found, Sized) or not isinstance(found, Iterable) or isinstance(found, str | bytes):
            raise self._wrong(items, f"a {type(found).__name__}")
        if isinstance(found, Mapping | Set):
            raise self._wrong(items, f"a {type(found).__name__}")
        samples = list(found)
        if len(samples) != len(items):
            raise self._wrong(items, str(len(samples)))
        return samples

    def single(self, item: Any) -> Any:
        """Of a dataset that can be asked in no other way."""
        (sample,) = self([item])
        return sample

    def _wrong(self, items: Sequence[Any], given: str) -> WrongAnswerError:
        return WrongAnswerError(
            f"{type(self._dataset).__name__}.__getitems__ was asked for {len(items)} samples and gave {given}: it "
            "gives a list with the sample of each index, in their order; collate_fn makes the batch"
        )


def loads_together(dataset: Any) -> bool:
    """Whether a call for many samples is worth it. torch's own Subset and StackDataset can always be called so, and ask
    for single samples where what they hold can not."""
    from torch.utils.data import StackDataset, Subset

    if not callable(getattr(dataset, "__getitems__", None)):
        return False
    function = getattr(type(dataset), "__getitems__", None)
    if function is Subset.__getitems__:
        return loads_together(dataset.dataset)
    if function is StackDataset.__getitems__:
        held = dataset.datasets
        return any(map(loads_together, held.values() if isinstance(held, dict) else held))
    return True


def loads_single(dataset: Any) -> bool:
    """Whether the dataset has a ``__getitem__`` of its own: that of torch's Dataset only raises."""
    from torch.utils.data import Dataset

    return getattr(type(dataset), "__getitem__", None) is not Dataset.__getitem__


def named_together(items: Sequence[Any]) -> str:
    """What an error calls the samples of one call."""
    return f"{items[0]} to {items[-1]} (asking for them together)"

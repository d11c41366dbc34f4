"""Batches as torch's ``default_collate`` makes them, types that a program added to what it knows included."""

from __future__ import annotations

from array import array
from typing import Any

import torch
from torch.utils.data import default_collate

# Where torch's documentation says that types are added.
from torch.utils.data._utils.collate import collate_float_fn, collate_int_fn
from torch.utils.data._utils.collate import default_collate_fn_map as known

_NUMBERS = {collate_int_fn: ("q", torch.int64), collate_float_fn: ("d", torch.float64)}


def collated(samples: list[Any]) -> Any:
    """``default_collate(samples)``, in half the time where a sample is a plain tuple of values it knows."""
    first = samples[0]
    if type(first) is tuple and not any(isinstance(first, kind) for kind in known):
        makers = [known.get(type(value)) for value in first]
        try:
            columns = list(zip(*samples, strict=True))
        except (TypeError, ValueError):  # samples of several lengths, or no tuples: it says so
            return default_collate(samples)
        if None not in makers:
            return [_column(values, maker) for values, maker in zip(columns, makers, strict=True)]
    return default_collate(samples)


def _column(values: tuple[Any, ...], maker: Any) -> Any:
    if maker in _NUMBERS:
        code, dtype = _NUMBERS[maker]
        try:
            return torch.frombuffer(array(code, values), dtype=dtype)
        except (TypeError, OverflowError):  # of several types, or too large: torch finds a type for them, or says so
            pass
    return maker(values, collate_fn_map=known)

"""Which dataset it is: enough of it to refuse a state of another one, without loading a sample."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

import numpy as np

from trials.data.core.sample_layout import tensor_array

SAMPLED = 64  # items of a list, or bytes of an array, that are looked at
DEPTH = 3  # datasets inside datasets
_SIZE = 8  # bytes of the digest


def fingerprint(dataset: Any) -> str:
    """``dataset.fingerprint`` (a text, or a function that returns one) where it has one.

    Else a digest of its class, its length, and of the arrays, tensors and lists of names among its attributes: their
    sizes and some of their values. Of paths only the last part counts, so a dataset may move.
    """
    own = getattr(dataset, "fingerprint", None)
    if own is not None:
        return _digest([str(own() if callable(own) else own)])
    return _digest(list(_described(dataset, DEPTH)))


def _digest(words: list[str]) -> str:
    return hashlib.blake2b("\x1f".join(words).encode(), digest_size=_SIZE).hexdigest()


def _described(dataset: Any, depth: int) -> Iterator[str]:
    yield f"{type(dataset).__module__}.{type(dataset).__qualname__}"
    yield str(length_of(dataset))
    if isinstance(dataset, (list, tuple, np.ndarray)) or type(dataset).__module__ == "torch":
        yield from _content(dataset, depth)
        return
    attributes = getattr(dataset, "__dict__", {})
    for name in sorted(attributes):
        for word in _content(attributes[name], depth):
            yield f"{name}:{word}"


def _content(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, np.ndarray):
        yield f"{value.dtype.str}{value.shape}{_some_bytes(value)}"
    elif type(value).__module__ == "torch" and hasattr(value, "untyped_storage"):
        array = tensor_array(value.detach())
        yield f"{value.dtype}{tuple(value.shape)}" + ("" if array is None else _some_bytes(array))
    elif isinstance(value, (list, tuple)):
        yield str(len(value))
        for item in value[:: max(1, len(value) // SAMPLED)][:SAMPLED]:
            yield from _item(item, depth)
    elif depth > 0 and hasattr(value, "__getitem__") and hasattr(value, "__len__") and hasattr(value, "__dict__"):
        yield from _described(value, depth - 1)


def _item(item: Any, depth: int) -> Iterator[str]:
    if isinstance(item, (str, PurePath)):
        yield PurePath(item).name
    elif isinstance(item, (bool, int, np.integer)):
        yield str(int(item))
    elif depth > 0:
        yield from _content(item, depth - 1)


def _some_bytes(array: Any) -> str:
    flat = array.reshape(-1)
    chosen = np.ascontiguousarray(flat[:: max(1, flat.size // SAMPLED)][:SAMPLED])
    return "" if chosen.dtype.hasobject else chosen.tobytes().hex()


def length_of(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except (TypeError, NotImplementedError):
        return None

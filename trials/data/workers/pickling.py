"""Pickling with out-of-band buffers (protocol 5, PEP 574): one small pickle, and the large arrays beside it.

Only for what this process's own workers made: unpickling executes what the pickle says.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trials.data.core.sample_layout import ALIGNMENT, Bytes, rounded_up, tensor_array


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """What ``encode`` made of a value; ``size`` bytes are needed to ``place`` it."""

    head: bytes
    buffers: tuple[pickle.PickleBuffer, ...]

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """Begin and length of the head and of each buffer, in that order."""
        lengths = [len(self.head), *(buffer.raw().nbytes for buffer in self.buffers)]
        spans, end = [], 0
        for length in lengths:
            spans.append((end, length))
            end = rounded_up(end + length, ALIGNMENT)
        return tuple(spans)

    @property
    def size(self) -> int:
        begin, length = self.spans[-1]
        return begin + length

    def place(self, memory: Bytes) -> tuple[tuple[int, int], ...]:
        """Copied to the beginning of ``memory``; the spans, which ``decode`` wants."""
        spans = self.spans
        parts: list[Any] = [self.head, *(buffer.raw() for buffer in self.buffers)]
        for (begin, length), part in zip(spans, parts, strict=True):
            if length:
                memory[begin : begin + length] = np.frombuffer(part, dtype=np.uint8)
        return spans


def encode(value: Any) -> Encoded:
    """Arrays and plain tensors of the CPU become buffers beside the pickle. Raises what pickle raises."""
    buffers: list[pickle.PickleBuffer] = []
    file = io.BytesIO()
    _Pickler(file, protocol=5, buffer_callback=buffers.append).dump(value)
    return Encoded(head=file.getvalue(), buffers=tuple(buffers))


def decode(memory: Bytes, spans: Sequence[tuple[int, int]]) -> Any:
    """The value again; its arrays are views of ``memory``."""
    head, *rest = [memory[begin : begin + length] for begin, length in spans]
    return pickle.loads(head.tobytes(), buffers=rest)  # noqa: S301  # our own worker wrote it


class _Pickler(pickle.Pickler):
    """torch's own way would copy every tensor into the pickle."""

    def reducer_override(self, value: Any) -> Any:
        if type(value).__module__ == "torch" and hasattr(value, "untyped_storage"):
            array = tensor_array(value)
            if array is not None:
                contiguous = np.ascontiguousarray(array).reshape(array.shape)
                return _tensor, (contiguous, str(value.dtype).removeprefix("torch."))
        return NotImplemented


def _tensor(array: Any, dtype: str) -> Any:
    import torch

    return torch.from_numpy(array).view(getattr(torch, dtype))


def try_encode(value: Any, otherwise: Callable[[Exception], Any]) -> Encoded:
    """``value``, or what ``otherwise`` says of the error where it cannot be pickled."""
    try:
        return encode(value)
    except (pickle.PicklingError, TypeError, AttributeError, ValueError, RuntimeError) as error:
        return encode(otherwise(error))

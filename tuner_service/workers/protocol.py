"""Frames between service and algorithm worker: four bytes of length (big endian), then JSON by json-tricks.

A frame holds a list of objects. Beside what JSON has, NaN, infinities, tuples, NumPy scalars and NumPy arrays of
plain numbers survive the journey, by encoders and hooks of our own; those of json-tricks that rebuild classes,
dates or compressed bytes are not used, so nothing on the wire can name a class to be built. A ``__…__`` key that is
none of our markers stays what it is, a key of a dict.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from typing import Any, BinaryIO

from tuner_service.workers.tricks import import_json_tricks

json_tricks = import_json_tricks()

FRAME_LIMIT_BYTES = 64 << 20  # FrameError on either side; senders split what holds several objects
DEPTH_LIMIT = 100  # of nested values in a frame
EXIT_NO_PIPES = 4  # of a worker whose descriptors were closed
LENGTH = struct.Struct(">I")

TUPLE, MAPPING, SCALAR, ARRAY = "__tuple__", "__mapping__", "__scalar__", "__ndarray__"
DTYPES = frozenset(
    ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"]
)


class FrameError(ValueError):
    """A frame that cannot be sent or understood; its text says why."""


def pack(value: Any, depth: int = 0) -> Any:
    """``value`` with marks on what JSON would lose: tuples, NumPy, and keys that are no text or look like marks."""
    if depth > DEPTH_LIMIT:
        raise FrameError(f"nested more than {DEPTH_LIMIT} levels deep")
    kind = type(value)
    if kind is float or kind is int or kind is str or value is None or kind is bool:
        return value
    if isinstance(value, tuple):
        return {TUPLE: [pack(item, depth + 1) for item in value]}
    if isinstance(value, list):
        return [pack(item, depth + 1) for item in value]
    if isinstance(value, dict):
        if all(isinstance(key, str) and not key.startswith("__") for key in value):
            return {key: pack(item, depth + 1) for key, item in value.items()}
        return {MAPPING: [[pack(key, depth + 1), pack(item, depth + 1)] for key, item in value.items()]}
    return _encode_numpy(value)


def encode_frame(objects: list[Any]) -> bytes:
    """One frame of values that ``pack`` has seen. FrameError: too large, or something that is no plain value."""
    try:
        text: str = json_tricks.dumps(objects, obj_encoders=(_encode_numpy,), allow_nan=True, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise FrameError(f"cannot be sent: {error}") from error
    payload = text.encode()
    if len(payload) > FRAME_LIMIT_BYTES:
        raise FrameError(f"{len(payload)} bytes are more than a frame may have ({FRAME_LIMIT_BYTES})")
    return LENGTH.pack(len(payload)) + payload


def encode_frames(objects: list[Any]) -> list[bytes]:
    """As few frames as the limit allows, in order. FrameError: a single object is too large."""
    try:
        return [encode_frame(objects)]
    except FrameError:
        if len(objects) <= 1:
            raise
        middle = len(objects) // 2
        return encode_frames(objects[:middle]) + encode_frames(objects[middle:])


def decode_payload(payload: bytes, *, text: Callable[[str], str] = str) -> list[Any]:
    """What ``encode_frame`` was given. FrameError, and nothing else, for anything that is no frame."""
    try:
        objects = json_tricks.loads(
            text(payload.decode()),
            preserve_order=False,
            ignore_comments=False,
            decompression=False,
            obj_pairs_hooks=(_rebuild,),
        )
    except FrameError:
        raise
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise FrameError(f"is no frame: {type(error).__name__}: {error}"[:500]) from error
    if not isinstance(objects, list):
        raise FrameError("is no frame: must be a list of objects")
    _check_depth(objects)
    return objects


def read_frame(stream: BinaryIO, *, text: Callable[[str], str] = str) -> list[Any] | None:
    """The next frame, waiting for it; None where the stream ends. FrameError: it ends inside one, or is too long.

    ``text`` is what becomes of its JSON before that is read.
    """
    header = stream.read(LENGTH.size)
    if not header:
        return None
    if len(header) < LENGTH.size:
        raise FrameError("the stream ended inside a frame")
    (length,) = LENGTH.unpack(header)
    if length > FRAME_LIMIT_BYTES:
        raise FrameError(f"a frame of {length} bytes is announced; at most {FRAME_LIMIT_BYTES} are taken")
    payload = stream.read(length)
    if len(payload) < length:
        raise FrameError("the stream ended inside a frame")
    return decode_payload(payload, text=text)


def _encode_numpy(value: Any) -> Any:
    """json-tricks calls it for what JSON does not know. NumPy is not imported for it: no NumPy, no such value."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, numpy.ndarray | numpy.generic):
        raise FrameError(f"cannot be sent: {type(value).__module__}.{type(value).__qualname__} is no plain value")
    dtype = str(value.dtype)
    if dtype not in DTYPES:
        raise FrameError(f"cannot be sent: NumPy values of type {dtype}; those of {', '.join(sorted(DTYPES))} can")
    if isinstance(value, numpy.generic):
        return {SCALAR: value.item(), "dtype": dtype}
    return {ARRAY: value.tolist(), "dtype": dtype, "shape": list(value.shape)}


def _rebuild(found: Any) -> Any:
    """json-tricks calls it for every object, the innermost first."""
    if len(found) > 3:
        return found
    if TUPLE in found and len(found) == 1:
        return tuple(_items(found[TUPLE]))
    if MAPPING in found and len(found) == 1:
        return {_hashable(key): value for key, value in _items(found[MAPPING])}
    if SCALAR in found and found.keys() == {SCALAR, "dtype"}:
        return _numpy_array(found[SCALAR], found["dtype"], [])[()]
    if ARRAY in found and found.keys() == {ARRAY, "dtype", "shape"}:
        return _numpy_array(found[ARRAY], found["dtype"], found["shape"])
    return found


def _items(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise FrameError("is no frame: a mark without its list")
    return value


def _hashable(key: Any) -> Any:
    if isinstance(key, list | dict):
        raise FrameError("is no frame: a list or dict as the key of a dict")
    return key


def _numpy_array(values: Any, dtype: Any, shape: Any) -> Any:
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise FrameError(f"is no frame: NumPy values of type {dtype!r}"[:200])
    if not all(isinstance(length, int) and length >= 0 for length in _items(shape)):
        raise FrameError("is no frame: an array's shape must be lengths")
    import numpy as np

    # The shape never makes it larger: reshape refuses one that does not fit the values that came.
    return np.array(values, dtype=dtype).reshape(shape)


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(DEPTH_LIMIT + 2):
        level = [
            inner
            for item in level
            if isinstance(item, list | tuple | dict)
            for inner in (item.values() if isinstance(item, dict) else item)
            if isinstance(inner, list | tuple | dict)
        ]
        if not level:
            return
    raise FrameError(f"is no frame: nested more than {DEPTH_LIMIT} levels deep")

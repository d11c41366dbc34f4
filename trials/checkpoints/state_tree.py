"""A state as a tree of plain JSON values and a list of pieces of memory; and a state again.

The tree names every container and value by a closed list of kinds, so nothing in it can execute code. Tensors that are
views of one storage stay views of one: weights that were tied are tied again.
"""

from __future__ import annotations

import base64
import ctypes
import sys
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

KIND = "t"  # the field of an object in the tree that says what it is
_SCALARS = (str, int, float, bool, type(None))
_BYTES_LIMIT = 4 << 10  # longer ones are pieces of their own
_ALIGNMENT = 16  # the largest element of a tensor
_ARRAY_KINDS = "biufc"  # of NumPy's types: those that are nothing but numbers


class UnsupportedStateError(TypeError):
    """Something in the state is of no kind a tree knows; ``where`` is its place, as an expression."""

    def __init__(self, where: str, value: Any) -> None:
        super().__init__(f"{where}, a {type(value).__name__},")
        self.where = where


@dataclass(slots=True, kw_only=True)
class Piece:
    """Bytes ``low`` to ``high`` of what ``source`` (a tensor's storage, an array, bytes) holds."""

    source: Any
    low: int
    high: int

    @property
    def size(self) -> int:
        return self.high - self.low


TOO_DEEP = "the state is nested too deeply, or holds itself; save a flatter one"


@dataclass(slots=True, kw_only=True)
class Flattened:
    """``pieces`` are not copied: they are what the state holds at this moment."""

    tree: Any
    pieces: list[Piece]


def flatten(state: Any) -> Flattened:
    """UnsupportedStateError where ``state`` holds something that is not known here."""
    flattening = _Flattening()
    try:
        tree = flattening.encode(state, "state")
    except RecursionError as error:
        raise TypeError(TOO_DEEP) from error
    flattening.place_tensors()
    return Flattened(tree=tree, pieces=flattening.pieces)


@dataclass(slots=True)
class _Flattening:
    pieces: list[Piece] = field(default_factory=list)
    tensors: list[tuple[dict[str, Any], Any]] = field(default_factory=list)

    def encode(self, value: Any, where: str) -> Any:
        kind = type(value)
        if kind in _SCALARS:
            return value
        if kind is list:
            return [self.encode(item, f"{where}[{i}]") for i, item in enumerate(value)]
        if kind in _SEQUENCES:
            items = [self.encode(item, f"an item of {where}") for item in value]
            return {KIND: _SEQUENCES[kind], "v": items}
        if kind is dict or kind is OrderedDict:
            return self._mapping(value, where)
        if kind in (bytes, bytearray):
            return self._bytes(value)
        if kind is complex:
            return {KIND: "complex", "v": [value.real, value.imag]}
        encoded = self._of_torch(value, where) if "torch" in sys.modules else None
        if encoded is None and "numpy" in sys.modules:
            encoded = self._of_numpy(value)
        if encoded is None:
            raise UnsupportedStateError(where, value)
        return encoded

    def _mapping(self, value: dict[Any, Any], where: str) -> dict[str, Any]:
        encoded: dict[str, Any] = {
            KIND: "ordered" if type(value) is OrderedDict else "dict",
            "k": [self.encode(key, f"the key {key!r} of {where}") for key in value],
            "v": [self.encode(item, f"{where}[{key!r}]") for key, item in value.items()],
        }
        attributes = vars(value) if type(value) is OrderedDict else {}
        if attributes:  # a module's state_dict() carries the versions of its modules so
            encoded["a"] = self._mapping(attributes, f"vars({where})")
        return encoded

    def _bytes(self, value: bytes | bytearray) -> dict[str, Any]:
        kind = "bytes" if type(value) is bytes else "bytearray"
        if len(value) <= _BYTES_LIMIT:
            return {KIND: kind, "v": base64.b64encode(value).decode()}
        return {KIND: kind, "s": self._piece(value, 0, len(value))}

    def _piece(self, source: Any, low: int, high: int) -> int:
        self.pieces.append(Piece(source=source, low=low, high=high))
        return len(self.pieces) - 1

    # ── torch ─────────────────────────────────────────────────────────────────────────────────
    def _of_torch(self, value: Any, where: str) -> Any:
        torch = sys.modules["torch"]
        kind = type(value)
        if kind is torch.Tensor or kind is torch.nn.Parameter:
            return self._tensor(torch, value, where)
        if kind is torch.Size:
            return {KIND: "size", "v": list(value)}
        if kind is torch.dtype:
            return {KIND: "dtype", "v": str(value).removeprefix("torch.")}
        if kind is torch.device:
            return {KIND: "device", "v": str(value)}
        return None

    def _tensor(self, torch: Any, value: Any, where: str) -> dict[str, Any]:
        kind, tensor = type(value), value.detach()
        if (
            tensor.layout is not torch.strided
            or tensor.is_quantized
            or tensor.device.type == "meta"
            or tensor.is_conj()
            or tensor.is_neg()
        ):
            raise UnsupportedStateError(where, value)
        entry = {
            KIND: "tensor",
            "s": 0,  # these three are known when every view of its storage is
            "o": 0,
            "p": [],
            "d": str(tensor.dtype).removeprefix("torch."),
            "z": list(tensor.shape),
            "g": bool(value.requires_grad),
            "w": kind is torch.nn.Parameter,
        }
        self.tensors.append((entry, tensor))
        return entry

    def place_tensors(self) -> None:
        """One piece for each storage: what its tensors cover of it."""
        views: dict[tuple[str, int], list[tuple[dict[str, Any], Any]]] = {}
        for entry, tensor in self.tensors:
            address = tensor.untyped_storage().data_ptr()
            views.setdefault((str(tensor.device), address or -1 - len(views)), []).append((entry, tensor))
        for of_one in views.values():
            if len(of_one) == 1:
                # A view that covers little of a large storage is copied, so that the whole storage need not be saved.
                entry, tensor = of_one[0]
                of_one = [(entry, tensor if _extent(tensor) <= tensor.numel() else tensor.contiguous())]  # noqa: PLW2901  # the same view, smaller
            self._place(of_one)

    def _place(self, of_one: list[tuple[dict[str, Any], Any]]) -> None:
        ranges = [(t.storage_offset() * t.element_size(), _extent(t) * t.element_size()) for _, t in of_one]
        low = min(begin for begin, _ in ranges) & ~(_ALIGNMENT - 1)
        index = self._piece(of_one[0][1], low, max(begin + size for begin, size in ranges))
        for (entry, tensor), (begin, _) in zip(of_one, ranges, strict=True):
            entry["s"], entry["p"] = index, list(tensor.stride())
            entry["o"] = (begin - low) // tensor.element_size()

    # ── NumPy ─────────────────────────────────────────────────────────────────────────────────
    def _of_numpy(self, value: Any) -> Any:
        numpy = sys.modules["numpy"]
        kind = type(value)
        if kind is numpy.ndarray and value.dtype.kind in _ARRAY_KINDS:
            order = "F" if value.flags.f_contiguous and not value.flags.c_contiguous else "C"
            flat = numpy.ascontiguousarray(value.reshape(-1, order=order))  # a view where the memory is in one piece
            index = self._piece(flat, 0, flat.nbytes)
            return {KIND: "array", "s": index, "d": value.dtype.str, "z": list(value.shape), "f": order}
        if isinstance(value, numpy.generic) and value.dtype.kind in _ARRAY_KINDS:
            return {KIND: "number", "d": value.dtype.str, "v": base64.b64encode(value.tobytes()).decode()}
        return None


def _extent(tensor: Any) -> int:
    """Elements of the storage from the tensor's first to its last."""
    if not tensor.numel():
        return 0
    return 1 + sum((int(n) - 1) * int(stride) for n, stride in zip(tensor.shape, tensor.stride(), strict=True))


_SEQUENCES: dict[type[Any], str] = {tuple: "tuple", set: "set", frozenset: "frozenset"}


# ── back ────────────────────────────────────────────────────────────────────────────────────────
class Restoring:
    """``read(index, into)`` fills a writable buffer of the piece's size with its bytes."""

    def __init__(self, sizes: Sequence[int], read: Callable[[int, memoryview], None]) -> None:
        self._sizes = sizes
        self._read = read
        self._storages: dict[int, Any] = {}
        self._kinds: dict[str, Callable[[dict[str, Any]], Any]] = {
            "tuple": lambda entry: tuple(self._items(entry)),
            "set": lambda entry: set(self._items(entry)),
            "frozenset": lambda entry: frozenset(self._items(entry)),
            "dict": self._dict,
            "ordered": self._ordered,
            "bytes": lambda entry: bytes(self._raw(entry)),
            "bytearray": self._raw,
            "complex": lambda entry: complex(*entry["v"]),
            "size": lambda entry: import_module("torch").Size(entry["v"]),
            "dtype": lambda entry: _dtype(import_module("torch"), entry["v"]),
            "device": lambda entry: import_module("torch").device(entry["v"]),
            "tensor": self._tensor,
            "array": self._array,
            "number": self._number,
        }

    def decode(self, value: Any) -> Any:
        """ValueError for a kind that is not known here."""
        if isinstance(value, list):
            return [self.decode(item) for item in value]
        if not isinstance(value, dict):
            return value
        decode = self._kinds.get(value[KIND])
        if decode is None:
            raise ValueError(f"the checkpoint holds a {value[KIND]!r}, which this version does not know")
        return decode(value)

    def _items(self, entry: dict[str, Any]) -> list[Any]:
        return [self.decode(item) for item in entry["v"]]

    def _dict(self, entry: dict[str, Any]) -> dict[Any, Any]:
        return dict(zip([self.decode(key) for key in entry["k"]], self._items(entry), strict=True))

    def _ordered(self, entry: dict[str, Any]) -> OrderedDict[Any, Any]:
        found = OrderedDict(self._dict(entry))
        if "a" in entry:
            vars(found).update(self._dict(entry["a"]))
        return found

    def _raw(self, entry: dict[str, Any]) -> bytearray:
        if "v" in entry:
            return bytearray(base64.b64decode(entry["v"]))
        data = bytearray(self._sizes[entry["s"]])
        self._read(entry["s"], memoryview(data))
        return data

    def _tensor(self, entry: dict[str, Any]) -> Any:
        torch = import_module("torch")
        index = entry["s"]
        if index not in self._storages:
            memory = torch.empty(self._sizes[index], dtype=torch.uint8)
            if self._sizes[index]:
                self._read(index, memory_of(memory))
            self._storages[index] = memory.untyped_storage()
        tensor = torch.empty(0, dtype=_dtype(torch, entry["d"]))
        tensor.set_(self._storages[index], entry["o"], entry["z"], entry["p"])
        if entry["w"]:
            return torch.nn.Parameter(tensor, requires_grad=entry["g"])
        return tensor.requires_grad_(entry["g"])

    def _array(self, entry: dict[str, Any]) -> Any:
        numpy = import_module("numpy")
        array = numpy.empty(entry["z"], dtype=_plain_type(numpy, entry["d"]), order=entry["f"])
        if array.nbytes:
            self._read(entry["s"], memoryview(array.reshape(-1, order=entry["f"]).view(numpy.uint8)))
        return array

    @staticmethod
    def _number(entry: dict[str, Any]) -> Any:
        numpy = import_module("numpy")
        return numpy.frombuffer(base64.b64decode(entry["v"]), dtype=_plain_type(numpy, entry["d"]))[0]


def memory_of(tensor: Any) -> memoryview:
    """The bytes of a contiguous tensor on the CPU, writable. Keep the tensor as long as the view."""
    size = tensor.numel() * tensor.element_size()
    return memoryview((ctypes.c_ubyte * size).from_address(tensor.data_ptr())).cast("B")


def _plain_type(numpy: Any, name: str) -> Any:
    found = numpy.dtype(name)
    if found.kind not in _ARRAY_KINDS:
        raise ValueError(f"the checkpoint holds an array of {name!r}, which is not of numbers")
    return found


def _dtype(torch: Any, name: str) -> Any:
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"the checkpoint holds tensors of {name!r}, unknown to this torch")  # noqa: TRY004  the file's fault, no argument's
    return found

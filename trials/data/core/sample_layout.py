"""The memory layout of samples: found from the first one, then the same for every sample that looks like it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

ALIGNMENT = 64  # of every leaf, in bytes
_NUMBER_DTYPES = {bool: "|b1", int: "<i8", float: "<f8"}
_PLAIN_KINDS = "biufc"
_BFLOAT16 = "bfloat16"
Array = NDArray[Any]
Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """One array of a sample. ``kind``: ``tensor``, ``array``, or ``number`` (Python's or NumPy's)."""

    kind: str
    dtype: str  # as NumPy writes it, or bfloat16
    shape: tuple[int, ...]

    @property
    def storage(self) -> np.dtype[Any]:
        return np.dtype("<i2" if self.dtype == _BFLOAT16 else self.dtype)

    @property
    def size(self) -> int:
        """Bytes."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.storage.itemsize


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A container of a sample: ``type`` is its class, ``keys`` are a mapping's."""

    type: type
    children: tuple[Node | Leaf, ...]
    keys: tuple[Any, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    root: Node | Leaf
    leaves: tuple[Leaf, ...]

    @classmethod
    def of(cls, sample: Any) -> Layout | None:
        """None when the sample is not made of dicts, lists, tuples, numbers, and dense arrays or tensors of the CPU."""
        root = _described(sample)
        return None if root is None else cls(root=root, leaves=tuple(_leaves(root)))

    def offsets(self, rows: int) -> tuple[tuple[int, ...], int]:
        """Where the rows of each leaf begin, and the bytes of all, when ``rows`` samples lie together."""
        begins, end = [], 0
        for leaf in self.leaves:
            begins.append(end)
            end = rounded_up(end + rows * leaf.size, ALIGNMENT)
        return tuple(begins), end

    def columns(self, memory: Bytes, rows: int) -> list[Array]:
        """For each leaf the array of ``rows`` × its shape, as views of ``memory``."""
        begins, _ = self.offsets(rows)
        return [
            memory[begin : begin + rows * leaf.size].view(leaf.storage).reshape(rows, *leaf.shape)
            for leaf, begin in zip(self.leaves, begins, strict=True)
        ]

    def values(self, sample: Any) -> list[Any] | None:
        """The arrays and numbers of a sample, one for each leaf; None when it does not fit this layout."""
        found: list[Any] = []
        return found if _collect(self.root, sample, found) else None

    @property
    def sample_size(self) -> int:
        """Bytes of one sample."""
        return sum(leaf.size for leaf in self.leaves)

    def write_rows(self, samples: Sequence[Any], columns: Sequence[Array], row: int) -> bool:
        """Put ``samples`` into consecutive rows: quicker for small ones than one by one. False when one does not fit;
        some rows may then hold anything."""
        gathered = self._gathered(samples)
        if gathered is None:
            return False
        end = row + len(samples)
        return all(
            _stacked(leaf, values, column[row:end])
            for leaf, values, column in zip(self.leaves, gathered, columns, strict=True)
        )

    def _gathered(self, samples: Sequence[Any]) -> list[Sequence[Any]] | None:
        """The values of each leaf."""
        root = self.root
        if isinstance(root, Leaf):
            return [samples]
        flat = all(isinstance(child, Leaf) for child in root.children)
        if flat and root.keys is None:
            count = len(root.children)
            if any(type(sample) is not root.type for sample in samples) or {*map(len, samples)} != {count}:
                return None
            return list(zip(*samples, strict=True))
        collected: list[list[Any]] = []
        for sample in samples:
            leaves: list[Any] = []
            if not _raw(root, sample, leaves):
                return None
            collected.append(leaves)
        return list(zip(*collected, strict=True))

    def rebuilt(self, leaves: Sequence[Any]) -> Any:
        """A sample again, with the same containers, of one value for each leaf."""
        return _rebuilt(self.root, iter(leaves))

    def batch(self, columns: Sequence[Array]) -> Any:
        """What torch's ``default_collate`` makes of the rows: tensors that are views of ``columns``."""
        return _batched(self.root, iter([as_tensor(c, leaf) for c, leaf in zip(columns, self.leaves, strict=True)]))


def rounded_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def as_tensor(column: Array, leaf: Leaf) -> Any:
    """The torch tensor that shares ``column``'s memory."""
    import torch

    tensor = torch.from_numpy(column)
    return tensor.view(torch.bfloat16) if leaf.dtype == _BFLOAT16 else tensor


def as_value(row: Array, leaf: Leaf) -> Any:
    """A copy of one row as the sample had it: tensor, array, or number."""
    if leaf.kind == "number":
        return row.item() if leaf.dtype in _NUMBER_DTYPES.values() else row[()]
    held = np.array(row, copy=True)
    return as_tensor(held, leaf) if leaf.kind == "tensor" else held


# ── describing ──────────────────────────────────────────────────────────────────────────────────
def _described(value: Any) -> Node | Leaf | None:
    leaf = _leaf(value)
    if leaf is not None:
        return leaf
    if type(value) is dict or type(value) is OrderedDict:
        return _node(value, list(value.values()), keys=tuple(value))
    if type(value) is list or type(value) is tuple or (isinstance(value, tuple) and hasattr(value, "_fields")):
        return _node(value, value)
    return None  # other containers may need more than their items to be made again


def _node(value: Any, items: Sequence[Any], *, keys: tuple[Any, ...] | None = None) -> Node | None:
    children = [_described(item) for item in items]
    if any(child is None for child in children):
        return None
    return Node(type=type(value), children=tuple(child for child in children if child is not None), keys=keys)


def _leaf(value: Any) -> Leaf | None:
    dtype = _NUMBER_DTYPES.get(type(value))
    if dtype is not None:
        return Leaf(kind="number", dtype=dtype, shape=())
    if isinstance(value, np.generic):
        return Leaf(kind="number", dtype=value.dtype.str, shape=()) if value.dtype.kind in _PLAIN_KINDS else None
    if type(value) is np.ndarray:
        plain = value.dtype.kind in _PLAIN_KINDS and value.dtype.isnative
        return Leaf(kind="array", dtype=value.dtype.str, shape=value.shape) if plain else None
    if type(value).__module__ == "torch":
        return _tensor_leaf(value)
    return None


def _tensor_leaf(value: Any) -> Leaf | None:
    held = tensor_array(value)
    if held is None:
        return None
    dtype = _BFLOAT16 if str(value.dtype) == "torch.bfloat16" else held.dtype.str
    return Leaf(kind="tensor", dtype=dtype, shape=tuple(value.shape))


def tensor_array(value: Any) -> Array | None:
    """The array that shares a plain tensor's memory; None for what is not dense, not on the CPU, or has a gradient."""
    import torch

    if type(value) is not torch.Tensor or value.requires_grad or value.layout is not torch.strided:
        return None
    if value.device.type != "cpu" or value.is_quantized or value.is_conj() or value.is_neg():
        return None
    plain = value.view(torch.int16) if value.dtype is torch.bfloat16 else value
    try:
        array: Array = plain.numpy()
    except TypeError:  # a dtype that NumPy has not
        return None
    return array


def _leaves(node: Node | Leaf) -> list[Leaf]:
    if isinstance(node, Leaf):
        return [node]
    return [leaf for child in node.children for leaf in _leaves(child)]


# ── samples ─────────────────────────────────────────────────────────────────────────────────────
def _collect(node: Node | Leaf, value: Any, found: list[Any]) -> bool:
    if isinstance(node, Leaf):
        return _collect_leaf(node, value, found)
    items = value
    if type(value) is not node.type or len(items) != len(node.children):
        return False
    if node.keys is not None:
        if tuple(items) != node.keys:
            return False
        items = items.values()
    return all(_collect(child, item, found) for child, item in zip(node.children, items, strict=True))


def _raw(node: Node | Leaf, value: Any, found: list[Any]) -> bool:
    """The leaves of a sample as they are; false when its containers are others."""
    if isinstance(node, Leaf):
        found.append(value)
        return True
    items = value
    if type(value) is not node.type or len(items) != len(node.children):
        return False
    if node.keys is not None:
        if tuple(items) != node.keys:
            return False
        items = items.values()
    return all(_raw(child, item, found) for child, item in zip(node.children, items, strict=True))


def _stacked(leaf: Leaf, values: Sequence[Any], rows: Array) -> bool:
    try:
        if leaf.kind == "tensor":
            return _stacked_tensors(leaf, values, rows)
        if leaf.kind == "array":
            fits = all(type(v) is np.ndarray and v.dtype.str == leaf.dtype and v.shape == leaf.shape for v in values)
            if fits:
                np.stack(values, out=rows)
            return fits
        fits = (
            all(_leaf(value) == leaf for value in values)
            if len({type(v) for v in values}) > 1
            else (_leaf(values[0]) == leaf)
        )
        if fits:
            rows[:] = values
    except (OverflowError, RuntimeError, TypeError):
        return False  # a number too large, a sparse tensor: whatever torch says of it will be said
    return fits


def _stacked_tensors(leaf: Leaf, values: Sequence[Any], rows: Array) -> bool:
    import torch

    dtype, shape, tensor = getattr(torch, _torch_name(leaf.dtype)[6:]), leaf.shape, torch.Tensor
    for v in values:
        if type(v) is not tensor or v.dtype is not dtype or v.shape != shape or v.requires_grad or not v.is_cpu:
            return False
    torch.stack(list(values), out=as_tensor(rows, leaf))
    return True


def _collect_leaf(leaf: Leaf, value: Any, found: list[Any]) -> bool:
    held = value
    if leaf.kind == "tensor":
        if str(getattr(value, "dtype", "")) != _torch_name(leaf.dtype):
            return False
        held = tensor_array(value)
    elif leaf.kind == "array":
        if type(value) is not np.ndarray or value.dtype.str != leaf.dtype:
            return False
    else:
        found.append(value)
        return _leaf(value) == leaf
    if held is None or held.shape != leaf.shape:
        return False
    found.append(held)
    return True


_TORCH_NAMES: Mapping[str, str] = {
    "|b1": "bool",
    "|u1": "uint8",
    "|i1": "int8",
    "<i2": "int16",
    "<i4": "int32",
    "<i8": "int64",
    "<u2": "uint16",
    "<u4": "uint32",
    "<u8": "uint64",
    "<f2": "float16",
    "<f4": "float32",
    "<f8": "float64",
    "<c8": "complex64",
    "<c16": "complex128",
    _BFLOAT16: "bfloat16",
}


def _torch_name(dtype: str) -> str:
    return "torch." + _TORCH_NAMES.get(dtype, "?")


def _rebuilt(node: Node | Leaf, leaves: Any) -> Any:
    if isinstance(node, Leaf):
        return next(leaves)
    return _contained(node, [_rebuilt(child, leaves) for child in node.children])


def _batched(node: Node | Leaf, tensors: Any) -> Any:
    if isinstance(node, Leaf):
        return next(tensors)
    items = [_batched(child, tensors) for child in node.children]
    # default_collate makes a list of a tuple, unless it is a named one.
    return items if node.type is tuple else _contained(node, items)


def _contained(node: Node, items: list[Any]) -> Any:
    make: Any = node.type
    if node.keys is not None:
        return make(zip(node.keys, items, strict=True))
    return make(*items) if hasattr(make, "_fields") else make(items)


def copied(tree: Any) -> Any:
    """A batch of the same containers whose tensors and arrays have memory of their own."""
    return mapped(tree, _own)


def mapped(tree: Any, change: Callable[[Any], Any]) -> Any:
    """The containers of ``tree`` again, with what ``change`` makes of everything that is none."""
    if isinstance(tree, dict):
        clone = tree.copy()
        clone.update({key: mapped(item, change) for key, item in tree.items()})
        return clone
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(mapped(item, change) for item in tree))
    if type(tree) is list or type(tree) is tuple:
        return type(tree)(mapped(item, change) for item in tree)
    return change(tree)


def _own(leaf: Any) -> Any:
    if type(leaf).__module__ == "torch" and hasattr(leaf, "clone"):
        return leaf.clone()
    return leaf.copy() if isinstance(leaf, np.ndarray) else leaf

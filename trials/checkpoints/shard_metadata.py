"""The metadata of a sharded checkpoint, which torch writes as a pickle, read without executing anything.

What the pickle names is looked up in a fixed table, by its whole name; nothing of it is imported, called or changed.
Each name becomes a class of this file, made for one reading, that only records what it is given; the values are built
from these records afterwards, each of its own kind.
"""

from __future__ import annotations

import copyreg
import pickle
from collections.abc import Callable
from enum import EnumMeta
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

DEPTH_MAX = 32  # of values in values; torch's have seven
_METADATA = "torch.distributed.checkpoint.metadata"
_FILESYSTEM = "torch.distributed.checkpoint.filesystem"
_RECORDS = {  # classes whose values are their attributes, by name
    (_METADATA, "Metadata"),
    (_METADATA, "MetadataIndex"),
    (_METADATA, "TensorStorageMetadata"),
    (_METADATA, "BytesStorageMetadata"),
    (_METADATA, "ChunkStorageMetadata"),
    (_METADATA, "StorageMeta"),
    (_FILESYSTEM, "_StorageInfo"),
}
_PLAIN = (type(None), bool, int, float, str)


class MetadataError(ValueError):
    """The metadata is damaged, or names what is not loaded; the text says what."""


def read_metadata(file: BinaryIO, *, files: frozenset[str]) -> Any:
    """The ``Metadata`` in ``file``, whose data is in ``files`` of the same folder and nowhere else. MetadataError."""
    # The unpickler caches what it has found for an extension code, and gives it without calling find_class, where
    # names are checked.
    copyreg.clear_extension_cache()
    reading = _Reading(file)
    try:
        metadata = _built(reading.load())
        kind = getattr(import_module(_METADATA), "Metadata")  # noqa: B009  an Any
        if type(metadata) is not kind:
            raise MetadataError(f"it holds {type(metadata).__name__}")
        for info in (metadata.storage_data or {}).values():
            if info.relative_path not in files:
                raise MetadataError(f"it refers to {info.relative_path!r}, which is no file of the checkpoint")
    except MetadataError as error:
        raise MetadataError(f"the checkpoint's metadata cannot be loaded: {error}") from error
    except (
        pickle.UnpicklingError,
        EOFError,
        TypeError,
        ValueError,
        AttributeError,
        LookupError,
        ArithmeticError,
    ) as error:
        raise MetadataError(f"the checkpoint's metadata is damaged: {error}") from error
    return metadata


# ── reading: names become records ───────────────────────────────────────────────────────────────
class _Sealed(type):
    """Of classes that a pickle gets hold of: it may not change them."""

    def __setattr__(cls, name: str, value: Any) -> None:
        raise MetadataError(f"it changes {cls.__name__}.{name}")


class _Recorded:
    """An object of the pickle: what its class was called with, and the state it was given."""

    arguments: tuple[Any, ...]
    state: Any
    made: Any  # once it was built: other places of the pickle refer to the same object


def _recording(build: Callable[[_Recorded], Any]) -> Any:
    def new(cls: type[_Recorded], *arguments: Any) -> _Recorded:
        made = object.__new__(cls)
        made.arguments, made.state, made.made = arguments, None, None
        return made

    def set_state(self: _Recorded, state: Any) -> None:
        self.state = state

    names = {"__slots__": ("arguments", "state", "made"), "__new__": new, "__setstate__": set_state, "build": build}
    return _Sealed("_Recording", (_Recorded,), names)


class _Reading(pickle.Unpickler):
    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        self._known: dict[tuple[str, str], Any] = {}

    def find_class(self, module: str, name: str, /) -> Any:
        found = self._known.get((module, name))
        if found is None:
            found = self._known[module, name] = self._found(module, name)
        return found

    def _found(self, module: str, name: str) -> Any:
        if (module, name) in _RECORDS:
            kind = getattr(import_module(module), name)
            return _recording(lambda recorded: _with_attributes(kind, recorded))
        build = _BUILDERS.get((module, name))
        if build is not None:
            return _recording(build)
        torch = import_module("torch")
        value = vars(torch).get(name) if module == "torch" else None
        if isinstance(value, torch.dtype | torch.layout):
            return value
        raise MetadataError(f"it names {module}.{name}, which is not loaded")


# ── building: records become values ─────────────────────────────────────────────────────────────
def _built(found: Any, depth: int = 0) -> Any:
    if depth > DEPTH_MAX:
        raise MetadataError(f"it has values {DEPTH_MAX} deep")
    kind = type(found)
    if kind in _PLAIN:
        return found
    if kind is dict:
        return {_built(name, depth + 1): _built(value, depth + 1) for name, value in found.items()}
    if kind is list or kind is tuple:
        return kind(_built(item, depth + 1) for item in found)
    if isinstance(found, _Recorded):
        if found.made is None:
            found.arguments, found.state = _built(found.arguments, depth + 1), _built(found.state, depth + 1)
            found.made = type(found).build(found)  # type: ignore[attr-defined]  # each has one
        return found.made
    if isinstance(found, _Sealed):
        return found
    torch = import_module("torch")
    if isinstance(found, torch.dtype | torch.layout):
        return found
    raise MetadataError(f"it holds {kind.__name__}, which is not loaded")


def _with_attributes(kind: Any, recorded: _Recorded) -> Any:
    """An object of the data class ``kind`` with the attributes it was stored with; the others have their defaults."""
    state = recorded.state or {}
    unknown = set(state) - set(kind.__dataclass_fields__)
    if recorded.arguments or unknown:
        raise MetadataError(f"it gives {kind.__name__} {sorted(map(str, unknown)) or recorded.arguments}")
    made = object.__new__(kind)
    for name, value in state.items():
        object.__setattr__(made, name, value)
    return made


def _properties(recorded: _Recorded) -> Any:
    made = object.__new__(import_module(_METADATA).TensorProperties)
    made.__setstate__(recorded.state)
    return made


def _size(recorded: _Recorded) -> Any:
    (sizes,) = recorded.arguments
    if not all(type(size) is int for size in sizes):
        raise MetadataError(f"it gives a size as {sizes!r}")
    return import_module("torch").Size(sizes)


def _layout(recorded: _Recorded) -> Any:
    torch = import_module("torch")
    (name,) = recorded.arguments
    found = vars(torch).get(str(name).removeprefix("torch."))
    if not isinstance(found, torch.layout):
        raise MetadataError(f"it names the layout {name!r}")
    return found


def _memory_format(recorded: _Recorded) -> Any:
    kind: Any = import_module(_METADATA)._MEM_FORMAT_ENCODING  # noqa: SLF001  torch's metadata has it
    (value,) = recorded.arguments
    return kind(value)


def _member(recorded: _Recorded) -> Any:
    """``getattr(enumeration, "NAME")``, which is how Python before 3.11.4 writes a member."""
    kind, name = recorded.arguments
    if getattr(kind, "build", None) is not _memory_format:
        raise MetadataError(f"it asks for {name!r} of what is no enumeration")
    encodings: EnumMeta = import_module(_METADATA)._MEM_FORMAT_ENCODING  # noqa: SLF001
    return encodings[name]


def _path(recorded: _Recorded) -> Any:
    return Path(*recorded.arguments)


_BUILDERS: dict[tuple[str, str], Callable[[_Recorded], Any]] = {
    (_METADATA, "TensorProperties"): _properties,
    (_METADATA, "_MEM_FORMAT_ENCODING"): _memory_format,
    ("torch", "Size"): _size,
    ("torch.serialization", "_get_layout"): _layout,
    ("builtins", "getattr"): _member,
    ("pathlib", "PosixPath"): _path,
    ("pathlib._local", "PosixPath"): _path,  # as Python 3.13 calls it
}

"""States as torch writes them; read back without executing anything (``weights_only``).

Arrays are plain data, but NumPy's own way to read them back believes what is said of their type: numbers that are
said to be objects are addresses. So what a pickle calls arrays and types of NumPy is recorded here, and made from
bytes.
"""

from __future__ import annotations

import io
import pickle
import re
from importlib import import_module
from typing import Any, BinaryIO

_CORES = ("_core", "core")  # as NumPy 2 and NumPy 1 call it
_PLAIN_TYPE = re.compile(r"[biufcSU][0-9]{1,9}|[?bhilqBHILQefdFD]")


def save(state: Any, file: Any) -> None:
    """Append ``state`` to ``file``."""
    import_module("torch").save(state, file)


def require_loadable(file: BinaryIO) -> None:
    """TypeError when the state that begins where ``file`` stands could not be loaded safely again."""
    torch = import_module("torch")
    with torch.serialization.safe_globals(_numpy_stand_ins([])):
        unsafe = torch.serialization.get_unsafe_globals_in_checkpoint(io.BufferedReader(_Rest(file)))
    if unsafe:
        raise TypeError(
            f"the state holds {', '.join(sorted(unsafe))}, which cannot be loaded without executing code; "
            "save their values instead, as tensors, arrays, numbers, text, lists or dicts (a state_dict)"
        )


def load(file: BinaryIO) -> Any:
    """The state that begins where ``file`` stands. Tensors come to the CPU, whatever they were saved on."""
    torch = import_module("torch")
    recorded: list[_Array | _Type] = []
    with torch.serialization.safe_globals(_numpy_stand_ins(recorded)):
        state = torch.load(io.BufferedReader(_Rest(file)), map_location="cpu", weights_only=True)
    return _made(state, torch.Tensor, {}) if recorded else state


class _Rest(io.RawIOBase):
    """What is left of a file, as a file: torch seeks from its beginning."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._begin = file.tell()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        position = self._file.seek(self._begin + offset if whence == 0 else offset, whence)
        return position - self._begin

    def tell(self) -> int:
        return self._file.tell() - self._begin


# ── NumPy ───────────────────────────────────────────────────────────────────────────────────────
class _Type:
    """A type of numbers or text."""

    def __init__(self, code: Any, *_: Any) -> None:
        if not isinstance(code, str) or not _PLAIN_TYPE.fullmatch(code):
            raise pickle.UnpicklingError(
                f"arrays of NumPy's type {code!r} are not loaded, because they are no plain data"
            )
        self._code = code
        self._order = "="

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._order = "=" if state[1] == "|" else state[1]

    def made(self) -> Any:
        return import_module("numpy").dtype(self._code).newbyteorder(self._order)


class _Array:
    """An array: its shape, its type and its bytes."""

    def __init__(self, *_: Any) -> None:
        self._state: tuple[Any, ...] | None = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._state = state

    def made(self) -> Any:
        if self._state is None:
            raise pickle.UnpicklingError("an array has neither a type nor bytes")
        _, shape, kind, is_fortran, data = self._state
        if not isinstance(kind, _Type) or not isinstance(data, bytes):
            raise pickle.UnpicklingError("an array is made of something else than numbers or text")
        numpy = import_module("numpy")
        return numpy.ndarray(shape, kind.made(), data, order="F" if is_fortran else "C").copy("K")


def _scalar(kind: Any, data: Any) -> Any:
    if not isinstance(kind, _Type) or not isinstance(data, bytes):
        raise pickle.UnpicklingError("a number of NumPy is made of something else than its bytes")
    return import_module("numpy").frombuffer(data, kind.made(), 1)[0]


def _numpy_stand_ins(recorded: list[_Array | _Type]) -> list[Any]:
    """What stands for NumPy's names while a state is read; ``recorded`` gets what was made by them."""

    class Type(_Type):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            recorded.append(self)

    class Array(_Array):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            recorded.append(self)

    return [
        (Type, "numpy.dtype"),
        (_ArrayClass, "numpy.ndarray"),
        *((Array, f"numpy.{core}.multiarray._reconstruct") for core in _CORES),
        *((_scalar, f"numpy.{core}.multiarray.scalar") for core in _CORES),
    ]


class _ArrayClass:
    """The class of an array, which a pickle names and nobody asks anything of."""


def _made(value: Any, tensor: type, done: dict[int, Any]) -> Any:
    """``value`` with arrays and types in place of what stands for them; containers stay the same objects."""
    if isinstance(value, _Array | _Type):
        if id(value) not in done:
            done[id(value)] = value.made()
        return done[id(value)]
    if type(value) is tuple:
        return tuple(_made(item, tensor, done) for item in value)
    if id(value) in done:
        return value
    if isinstance(value, list):
        done[id(value)] = value
        value[:] = [_made(item, tensor, done) for item in value]
    elif isinstance(value, dict):
        done[id(value)] = value
        items = [(_made(name, tensor, done), _made(item, tensor, done)) for name, item in value.items()]
        value.clear()
        for name, item in items:
            value[name] = item
    elif isinstance(value, tensor):
        done[id(value)] = value
        for name, item in vars(value).items():
            setattr(value, name, _made(item, tensor, done))
    return value

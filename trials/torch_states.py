"""States as torch writes them; read back without executing anything (``weights_only``)."""

from __future__ import annotations

import io
import sys
from importlib import import_module
from typing import Any, BinaryIO


def save(state: Any, file: Any) -> None:
    """Append ``state`` to ``file``."""
    import_module("torch").save(state, file)


def require_loadable(file: BinaryIO) -> None:
    """TypeError when the state that begins where ``file`` stands could not be loaded safely again."""
    torch = import_module("torch")
    with torch.serialization.safe_globals(_numpy_types()):
        unsafe = torch.serialization.get_unsafe_globals_in_checkpoint(io.BufferedReader(_Rest(file)))
    if unsafe:
        raise TypeError(
            f"the state holds {', '.join(sorted(unsafe))}, which cannot be loaded without executing code; "
            "save their values instead, as tensors, arrays, numbers, text, lists or dicts (a state_dict)"
        )


def load(file: BinaryIO) -> Any:
    """The state that begins where ``file`` stands. Tensors come to the CPU, whatever they were saved on."""
    torch = import_module("torch")
    with torch.serialization.safe_globals(_numpy_types()):
        return torch.load(io.BufferedReader(_Rest(file)), map_location="cpu", weights_only=True)


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


def _numpy_types() -> list[Any]:
    """Arrays are plain data, but torch does not know that of itself."""
    numpy = sys.modules.get("numpy")  # torch has imported it, where it is installed
    if numpy is None:
        return []
    reconstruct = numpy.empty(0).__reduce__()[0]
    scalar = numpy.float64(0).__reduce__()[0]
    dtypes = {type(numpy.dtype(code)) for code in "?bhilqBHILQefdFD"}
    return [reconstruct, scalar, numpy.ndarray, numpy.dtype, *dtypes]

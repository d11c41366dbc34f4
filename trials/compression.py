"""How files of weights and samples are compressed, by name; ``lz4`` is an extra of the package."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from importlib import import_module
from typing import Any

COMPRESSORS = ("none", "zlib", "lz4")
_LZ4_FRAME = b"\x04\x22\x4d\x18"  # the first bytes of a frame; anything else is a block with its length before it
Bytes = Callable[[bytes], bytes]


def compressor(name: str) -> Bytes:
    """ValueError names the ones there are, ImportError says what to install."""
    match name:
        case "none":
            return bytes
        case "zlib":
            return zlib.compress
        case "lz4":
            compress: Bytes = _lz4("frame").compress
            return compress
        case _:
            raise _unknown(name)


def decompressor(name: str) -> Bytes:
    """As ``compressor``. What lz4 has compressed may be a frame or, as DI-engine writes it, a block. A damaged file is
    an error of the library."""
    match name:
        case "none":
            return bytes
        case "zlib":
            return zlib.decompress
        case "lz4":
            _lz4("frame")  # said now, not with the first file
            return _decompressed_by_lz4
        case _:
            raise _unknown(name)


def _decompressed_by_lz4(data: bytes) -> bytes:
    found: bytes = _lz4("frame" if data.startswith(_LZ4_FRAME) else "block").decompress(data)
    return found


def _lz4(part: str) -> Any:
    try:
        return import_module(f"lz4.{part}")
    except ImportError as error:
        raise ImportError(
            "compressor 'lz4' needs the package lz4: pip install 'tuner-service[lz4]', or choose 'zlib' or 'none'"
        ) from error


def _unknown(name: str) -> ValueError:
    return ValueError(f"compressor is 'none', 'zlib' or 'lz4', not {name!r}")

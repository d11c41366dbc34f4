"""Frames between a coordinator and a learner, and where the learner's socket lies.

A frame is its length, four bytes with the highest first, and one JSON object in UTF-8. Nothing that comes in is
executed, and nothing is read past FRAME_BYTES.
"""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trials.wire.plain import ProtocolError

FRAME_BYTES = 4 << 20
READ_BYTES = 1 << 16  # at once, so that one peer does not keep the thread
_LENGTH = struct.Struct(">I")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
NOT_THERE = frozenset({errno.ENOENT, errno.ECONNREFUSED, errno.EAGAIN, errno.ENOTDIR})


def encode(message: Mapping[str, Any]) -> bytes:
    """ValueError for what is longer than a frame may be, TypeError for what JSON cannot say. NaN and infinities are
    written as JavaScript does (``NaN``, ``Infinity``)."""
    data = json.dumps(message, separators=(",", ":")).encode()
    if len(data) > FRAME_BYTES:
        raise ValueError(f"a message has {len(data)} bytes, and {FRAME_BYTES} at most can be sent")
    return _LENGTH.pack(len(data)) + data


class Frames:
    """The frames of a stream of bytes, however it is cut."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def add(self, data: bytes) -> None:
        self._bytes += data

    def next(self) -> dict[str, Any] | None:
        """None where the rest has not come yet. ProtocolError says what is wrong; the stream is of no use then."""
        if len(self._bytes) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._bytes)
        if length > FRAME_BYTES:
            raise ProtocolError(f"a frame of {length} bytes; at most {FRAME_BYTES} are taken")
        end = _LENGTH.size + length
        if len(self._bytes) < end:
            return None
        data = bytes(self._bytes[_LENGTH.size : end])
        del self._bytes[:end]
        return _read(data)


def _read(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"a frame is one JSON object: {error}") from error
    if not isinstance(found, dict):
        raise ProtocolError(f"a frame is one JSON object, not {type(found).__name__}")
    return found


# ── where a learner is reached ──────────────────────────────────────────────────────────────────
def learner_name(name: str) -> str:
    """``name`` if a learner may have it; ValueError otherwise."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"a learner's name has up to 64 letters, digits, '.', '_' and '-', not {name!r}")
    return name


def socket_name(name: str) -> str:
    return f"{name}.sock"


def record_path(place: Path, name: str) -> Path:
    """What the learner was told and how it ended; also where its process is gone."""
    return place / f"{name}.task.json"


def require_own(place: Path) -> None:
    """Made where it is not there. PermissionError where others may put into it what is believed."""
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = place.stat()
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise PermissionError(f"{place} can be written by others: learners and coordinators meet in a folder of yours")


@contextmanager
def _address(place: Path, name: str) -> Iterator[str]:
    """Of the learner's socket. The path of a socket has 107 bytes at most, and that of a trial's folder more."""
    folder = os.open(place, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{socket_name(name)}"
    finally:
        os.close(folder)


def listen(place: Path, name: str) -> socket.socket:
    """A socket that this user alone reaches. The caller holds the lock of the name: what lies there is of the dead."""
    (place / socket_name(name)).unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        with _address(place, name) as address:
            listening.bind(address)
        (place / socket_name(name)).chmod(0o600)
        listening.listen(8)
    except OSError:
        listening.close()
        raise
    return listening


def connect(place: Path, name: str) -> socket.socket | None:
    """None where no learner of that name listens."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        with _address(place, name) as address:
            connection.connect(address)
    except OSError as error:
        connection.close()
        if error.errno in NOT_THERE:
            return None
        raise
    return connection

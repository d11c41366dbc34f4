"""What shows that a process belongs to an attempt, whatever it made of itself.

Two marks, because a process may shed one: a variable of its environment, which it can clear, and a limit that every
descendant inherits through fork and exec alike. The limit is of the time that real-time processes may run without a
pause, so large that it never takes effect; its number says which attempt it is.
A supervisor imports this module when it starts, so the module imports little.
"""
# This module does without pathlib, whose import would add a tenth to the start of a supervisor.
# ruff: noqa: PTH123

from __future__ import annotations

import binascii
import ctypes
import resource
from typing import Any

NONCE_PLACE_BYTES = 160  # room for a nonce in the first environment of a fork server
NONCE_VARIABLE = "TUNER_NONCE"
_LIMIT_FLAG = 1 << 61  # microseconds: seventy thousand years
_LIMIT_LINE = b"Max realtime timeout"
_ARGUMENTS, _ENVIRONMENT = 45, 47  # of /proc/PID/stat, counted after the name: where they begin; where they end follows


def limit_of(nonce: str) -> int:
    """The limit that marks the attempt; equal for equal nonces, and different for others but once in 2**60."""
    data = nonce.encode()
    low, high = binascii.crc32(data), binascii.crc32(data[::-1], 0x5EED)
    return _LIMIT_FLAG | (high & 0x0FFF_FFFF) << 32 | low


def put_limit(limit: int) -> None:
    """Mark this process and everything it will start. Without effect where the machine has a lower limit already."""
    _, hard = resource.getrlimit(resource.RLIMIT_RTTIME)
    if hard == resource.RLIM_INFINITY or hard >= limit:
        resource.setrlimit(resource.RLIMIT_RTTIME, (limit, hard))


def has_mark(pid: int, nonce: str) -> bool:
    """Whether the process was started for the attempt, by itself or by an ancestor."""
    return limit_on(pid) == limit_of(nonce) or has_nonce(pid, nonce)


def limit_on(pid: int) -> int | None:
    """The mark on a process; None where there is none, or the process is gone or another user's."""
    try:
        with open(f"/proc/{pid}/limits", "rb") as file:
            text = file.read()
    except OSError:
        return None
    begin = text.find(_LIMIT_LINE)
    fields = text[begin + len(_LIMIT_LINE) :].split(None, 1)
    if begin < 0 or not fields or not fields[0].isdigit():
        return None
    limit = int(fields[0])
    return limit if limit & _LIMIT_FLAG else None


def has_nonce(pid: int, nonce: str) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            environment = file.read()
    except OSError:
        return False  # ended, or another user's
    return f"\0{NONCE_VARIABLE}={nonce}\0".encode() in b"\0" + environment + b"\0"


class FirstMemory:
    """Arguments and environment as this process was started with them: what other processes see of it.

    A forked process still shows those of its parent. Found once, before the fork; written in the child.
    """

    def __init__(self) -> None:
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        begin, end = int(fields[_ARGUMENTS]), int(fields[_ARGUMENTS + 1])
        self._arguments = _bytes_at(begin, end - begin)
        begin, end = int(fields[_ENVIRONMENT]), int(fields[_ENVIRONMENT + 1])
        place = ctypes.string_at(begin, end - begin).find(f"{NONCE_VARIABLE}=".encode()) if begin else -1
        self._nonce = _bytes_at(begin + place + len(NONCE_VARIABLE) + 1, NONCE_PLACE_BYTES if place >= 0 else 0)
        self._shown: list[tuple[Any, bytes]] = []

    def prepare(self, *, nonce: str | None, command: list[str]) -> None:
        """Before the fork: what ``show`` will write. The less a child does itself, the less of memory is copied.

        Without a ``nonce`` the environment stays as it is.
        """
        self._shown = []
        if self._nonce is not None and nonce is not None:
            self._shown.append((self._nonce, nonce.encode()[:NONCE_PLACE_BYTES].ljust(NONCE_PLACE_BYTES, b"\0")))
        if self._arguments is not None:
            room = len(self._arguments)
            words = "\0".join(command).encode(errors="replace")
            self._shown.append((self._arguments, words[: room - 1].ljust(room, b"\0")))

    def show(self) -> None:
        """In the child: from now on the process is seen as the attempt's."""
        for place, data in self._shown:
            place.raw = data


def _bytes_at(begin: int, count: int) -> Any:
    """What is at that place of this process, to be written; None where there is nothing."""
    return (ctypes.c_char * count).from_address(begin) if begin and count > 1 else None

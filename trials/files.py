"""Writing files so that a reader sees all of them or none, also after a power loss.

Imported by the supervisor, so it stays as small as its start is quick.
"""
# Without pathlib, which would add a third to the start of a supervisor.
# ruff: noqa: PTH105, PTH108, PTH120

from __future__ import annotations

import errno
import json
import os
import stat
from typing import Any

RECORD_BYTES = 1 << 20  # of a record; what is longer is none
ATTEMPT_BYTES = 64 << 20  # of one that holds a launch, or the names of all modules of a process
_READ_BYTES = 64 << 10
_to_text = json.JSONEncoder(separators=(",", ":")).encode
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
# What is in the way stays there: a link, a folder or a pipe in a file's place, a folder that is none, no permission.
_IN_THE_WAY = frozenset(
    {
        *(errno.EACCES, errno.EEXIST, errno.EINVAL, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOTDIR),
        *(errno.ENOTEMPTY, errno.ENXIO, errno.EPERM, errno.ETXTBSY),
    }
)


def is_full_disk(error: OSError) -> bool:
    """Whether room may mend it. Errors that hold others, as of a copied tree, are known by their text only."""
    return error.errno in _NO_ROOM or any(f"[Errno {number}]" in str(error) for number in _NO_ROOM)


def is_in_the_way(error: OSError) -> bool:
    """Whether what stands at the path is the reason, so that trying again does not help."""
    return error.errno in _IN_THE_WAY


def clear_way(path: str) -> None:
    """Whatever stands at ``path`` is put aside, and its folder may be written into, as far as that can be done."""
    folder = os.path.dirname(path)
    try:
        if stat.S_ISDIR(os.lstat(folder).st_mode):
            os.chmod(folder, 0o700)  # noqa: PTH101
        if os.path.lexists(path):
            os.rename(path, f"{path}.in-the-way.{os.getpid()}")  # noqa: PTH104
    except OSError:
        return  # then writing says why


def open_file(path: str) -> int:
    """A descriptor to read the plain file that ``path`` itself is. OSError for anything else; it never waits.

    What a trial may have written may be anything: a link to an endless device, a pipe that nobody writes into.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is no plain file", path)


def write_atomically(path: str, data: bytes, *, durable: bool = False) -> None:
    """Replace ``path`` by ``data`` in one step; ``durable``: it is on the disk when this returns."""
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        _write(temporary, data, durable=durable)
        os.replace(temporary, path)
    except OSError:
        _remove(temporary)
        raise
    if durable:
        sync_folder(os.path.dirname(path))


def create_once(path: str, data: bytes, *, durable: bool = False) -> bool:
    """Make ``path`` unless it exists; True for exactly one caller. A reader never sees it incomplete.

    ``durable``: it is on the disk when this returns, so that the one caller is the only one ever. Else the machine may
    forget it when its power is lost, and with it everything that the caller did.
    """
    temporary = f"{path}.{os.getpid()}.tmp"
    _write(temporary, data, durable=durable)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        _remove(temporary)
    if durable:
        sync_folder(os.path.dirname(path))
    return True


def write_plainly(path: str, data: bytes, *, mode: int | None = None, times_ns: tuple[int, int] | None = None) -> None:
    """Where nobody looks before it is said to be complete."""
    _write(path, data, durable=False, mode=mode, times_ns=times_ns)


def read_json(path: str, *, limit: int = RECORD_BYTES) -> dict[str, Any] | None:
    """The object in ``path``; None when there is no such file or it holds something else."""
    try:
        return read_record(path, limit=limit)
    except (OSError, ValueError):
        return None


def read_record(path: str, *, limit: int = RECORD_BYTES) -> dict[str, Any]:
    """As ``read_json``; OSError where there is no such file, ValueError where it holds something else."""
    descriptor = open_file(path)
    try:
        data = os.read(descriptor, _READ_BYTES)
        if len(data) == _READ_BYTES:
            data += _rest(descriptor, limit - _READ_BYTES)
    finally:
        os.close(descriptor)
    try:
        value = json.loads(data)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(value, dict):
        raise ValueError(f"it holds no object but {type(value).__name__}")  # noqa: TRY004  as for any other content
    return value


def _rest(descriptor: int, limit: int) -> bytes:
    parts = []
    while part := os.read(descriptor, min(limit, ATTEMPT_BYTES) + 1):
        parts.append(part)
        limit -= len(part)
        if limit < 0:
            raise ValueError("it is too long")
    return b"".join(parts)


def read_bytes(path: str) -> bytes:
    """All of a file; as open() would read it, with a third of the system calls."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(descriptor, _READ_BYTES):
            parts.append(part)
            if len(part) < _READ_BYTES:
                break
    finally:
        os.close(descriptor)
    return b"".join(parts)


def to_json(value: dict[str, Any]) -> bytes:
    return _to_text(value).encode()


def sync_file(path: str) -> None:
    """What is in the file ``path``, and its name, are on the disk when this returns."""
    _sync(path, os.O_RDONLY)
    sync_folder(os.path.dirname(path))


def sync_folder(path: str) -> None:
    """Names created or removed in ``path`` are on the disk when this returns."""
    _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: str, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _write(
    path: str, data: bytes, *, durable: bool, mode: int | None = None, times_ns: tuple[int, int] | None = None
) -> None:
    # Not through a link, and not waiting for the reader of a pipe, whoever has put it there.
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(path, flags, 0o600)
    try:
        write_all(descriptor, data)
        if mode is not None:
            os.fchmod(descriptor, mode)
        if times_ns is not None:
            os.utime(descriptor, ns=times_ns)
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return  # it was never made, or its folder is gone

"""Writing files so that a reader sees all of them or none, also after a power loss. Both packages write them so.

A file is written under another name, synced, renamed, and the folder with its new name is synced: what is not synced
before it is renamed may be found empty under the new name, and a name that is not synced may be found gone.
A supervisor imports this module when it starts, so the module imports little: the standard library, and little of it.
"""
# This module does without pathlib, whose import would add a tenth to the start of a supervisor.
# ruff: noqa: PTH105, PTH108, PTH120

from __future__ import annotations

import errno
import json
import os
import stat
from _thread import get_native_id  # of threading, which a supervisor does without
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

RECORD_BYTES = 1 << 20  # of a record; what is longer is none
ATTEMPT_BYTES = 64 << 20  # of one that holds a launch, or the names of all modules of a process
OWNERS_ALONE, BY_UMASK = 0o600, 0o666  # who may use a new file: its owner, or whoever the umask lets
_READ_BYTES = 64 << 10
_LONG_NAME_BYTES, _LONG_NAME_KEPT = 220, 50  # a file system takes 255 bytes; 50 signs have 200 at most
_to_text = json.JSONEncoder(separators=(",", ":")).encode
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_SCARCE = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
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


def is_scarce(error: OSError) -> bool:
    """Whether others have used up processes, memory or descriptors, so that trying again later may help."""
    return error.errno in _SCARCE


def may_pass(error: BaseException) -> bool:
    """Whether it is for want of room, memory, processes or descriptors alone: later there may be some."""
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and (is_full_disk(error) or is_scarce(error)))


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


def is_still_there(path: str | os.PathLike[str], status: os.stat_result) -> bool:
    """Whether the file at ``path`` is the one that had ``status``: whatever tidies up may have taken it away."""
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == (status.st_dev, status.st_ino)


def open_file(path: str) -> int:
    """A descriptor to read the plain file that ``path`` itself is. OSError for anything else; it never waits.

    What a trial may have written may be anything: a link to an endless device, a pipe that nobody writes into.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is no plain file", path)


def write_atomically(path: str, data: bytes, *, durable: bool = False, access: int = OWNERS_ALONE) -> None:
    """Replace ``path`` by ``data`` in one step; ``durable``: it is on the disk when this returns."""
    draft = draft_of(path)
    try:
        _write(draft, data, durable=durable, access=access)
        os.replace(draft, path)
    except BaseException:
        _remove(draft)
        raise
    if durable:
        sync_folder(os.path.dirname(path))


def create_once(path: str, data: bytes, *, durable: bool = False, access: int = OWNERS_ALONE) -> bool:
    """Make ``path`` unless it exists; True for exactly one caller. A reader never sees it incomplete.

    ``durable``: it is on the disk when this returns, so that the one caller is the only one ever. Else the machine may
    forget it when its power is lost, and with it everything that the caller did.
    """
    draft = draft_of(path)
    try:
        _write(draft, data, durable=durable, access=access)
        os.link(draft, path)
    except FileExistsError:
        return False
    finally:
        _remove(draft)
    if durable:
        sync_folder(os.path.dirname(path))
    return True


def put_in_place(draft: str, path: str) -> None:
    """Rename a file, or a folder of synced files, that was made as ``draft``; it is on the disk when this returns.

    For what is too large to be held as bytes, or made by others. A file at ``path`` is replaced; a folder is not.
    """
    _sync(draft, os.O_RDONLY)
    os.replace(draft, path)
    sync_folder(os.path.dirname(path))


def draft_of(path: str) -> str:
    """Where ``path`` is written before it has its name: beside it, hidden, and by no other thread of the machine."""
    folder, _, name = path.rpartition("/")
    if len(name) > _LONG_NAME_KEPT and len(os.fsencode(name)) > _LONG_NAME_BYTES:
        name = name[:_LONG_NAME_KEPT]  # no two files are written by one thread at once
    draft = f".{name}.{get_native_id()}.tmp"
    return f"{folder}/{draft}" if folder else f"/{draft}" if path[:1] == "/" else draft


def write_plainly(path: str, data: bytes, *, mode: int | None = None, times_ns: tuple[int, int] | None = None) -> None:
    """Where nobody looks before it is said to be complete."""
    descriptor = _open_new(path, OWNERS_ALONE)
    try:
        write_all(descriptor, data)
        if mode is not None:
            os.fchmod(descriptor, mode)
        if times_ns is not None:
            os.utime(descriptor, ns=times_ns)
    finally:
        os.close(descriptor)


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


def sync_tree(path: str) -> None:
    """All that is in the folder ``path``, plain files in folders, is on the disk when this returns."""
    for folder, _, names in os.walk(path):
        for name in names:
            _sync(f"{folder}/{name}", os.O_RDONLY)
        sync_folder(folder)


def remove_tree(
    path: str | os.PathLike[str], *, ignore_errors: bool = False, onerror: Callable[..., object] | None = None
) -> None:
    """As ``shutil.rmtree``, and however deep the folder ``path`` is: that one calls itself, and holds a descriptor, for
    each level, and a trial may have made thousands."""
    import shutil

    is_too_deep = False

    def note(function: Callable[..., object], name: str, info: tuple[Any, BaseException, Any]) -> None:
        nonlocal is_too_deep
        is_too_deep = is_too_deep or getattr(info[1], "errno", None) == errno.EMFILE
        if onerror is not None:
            onerror(function, name, info)
        elif not ignore_errors:
            raise info[1]

    try:
        shutil.rmtree(path, onerror=note)
    except RecursionError:
        is_too_deep = True
    except OSError as error:  # the second: what ``onerror`` would have done with a name for which a path has no room
        if not is_too_deep and error.errno != errno.ENAMETOOLONG:
            raise
        is_too_deep = True
    if not is_too_deep:
        return
    try:
        _flatten(path)
        shutil.rmtree(path, ignore_errors, onerror)
    except OSError:
        if not ignore_errors:
            raise


def _flatten(root: str | os.PathLike[str]) -> None:
    """Every folder in it stands in ``root`` itself afterwards, so that nothing lies deep. No link is followed."""
    mark, moved = os.urandom(8).hex(), 0
    top = os.open(root, _FOLDER)
    try:
        os.fchmod(top, 0o700)
        waiting = ["."]
        while waiting:
            name = waiting.pop()
            folder = os.open(name, _FOLDER, dir_fd=top)
            try:
                for child in _folders_in(folder):
                    os.chmod(child, 0o700, dir_fd=folder)  # who moves a folder writes into it, too
                    if name == ".":
                        waiting.append(child)
                    else:
                        moved += 1
                        waiting.append(f".{mark}-{moved}")
                        os.rename(child, waiting[-1], src_dir_fd=folder, dst_dir_fd=top)
            finally:
                os.close(folder)
    finally:
        os.close(top)


def _folders_in(folder: int) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]


def sync_folder(path: str) -> None:
    """Names created or removed in ``path``, by default the working directory, are on the disk when this returns."""
    _sync(path or ".", os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: str, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _write(path: str, data: bytes, *, durable: bool, access: int = OWNERS_ALONE) -> None:
    descriptor = _open_new(path, access)
    try:
        write_all(descriptor, data)
        if durable:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _open_new(path: str, access: int) -> int:
    # Not through a link, and not waiting for the reader of a pipe, whoever has put it there.
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, access)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return  # it was never made, or its folder is gone

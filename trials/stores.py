"""Files kept in a folder, or behind any URL that fsspec can open: checkpoints and assets lie in such places alike.

Both packages use this: the agent for checkpoints and for what trials need, the service for assets. What is put there
is a copy, durable when the call returns; a reader verifies its digest and believes nothing else.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import re
import shutil
import stat
from _thread import get_native_id
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

from trials.files import draft_of, open_file, put_in_place, remove_tree, write_all, write_atomically
from trials.wire.remote_files import SCHEME

COPY_BYTES = 8 << 20  # at once
READ_BYTES = 1 << 20  # likewise, from behind a URL
LISTINGS = 100  # of a folder behind a URL that changes all the time
DRAFT_KEPT_S = 24 * 3600.0  # of a copy that nobody goes on with
_DRAFT = re.compile(r"\..+\.[0-9]+\.tmp")  # as draft_of() names them
_FICLONE = 0x40049409  # of linux/fs.h
_SYNC_FILE_RANGE_WRITE = 2  # of linux/fs.h


class StoreError(OSError):
    """The store cannot be used; the text says which, and why."""


class StoreUnusableError(StoreError):
    """It never can be used from here: nothing is installed that opens such a URL."""


class BrokenOffError(OSError):
    """The connection ended, or the service at its end is in trouble: worth another try."""


class FileStore:
    """``root``: an absolute path, or a URL such as s3://bucket/prefix. Every call blocks; StoreError when it fails.

    A name is relative, with forward slashes, and comes from the program, never from a person.
    """

    def __init__(self, root: str) -> None:
        self.root = root.rstrip("/")
        self.folder = None if is_url(root) else Path(self.root)  # where it is one of this machine

    def location(self, name: str) -> str:
        return f"{self.root}/{name}"

    def put(self, source: Path, name: str) -> None:
        """Copy a file. It is on the disk of the store when this returns; one of that name is replaced."""
        location = self.location(name)
        with explained(location):
            if self.folder is None:
                upload(source, location)
            else:
                place(source, self.folder / name)

    def write(self, name: str, data: bytes) -> None:
        """A small file, whole or not there; likewise."""
        location = self.location(name)
        with explained(location):
            if self.folder is None:
                fs, path = filesystem(location)
                _within_folders(fs, path, lambda: fs.pipe_file(path, data))
            else:
                (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
                write_atomically(location, data, durable=True)

    def read(self, name: str, *, offset: int = 0, length: int) -> bytes:
        """At most ``length`` bytes from ``offset``; StoreError caused by a FileNotFoundError where there is none."""
        location = self.location(name)
        with explained(location):
            if self.folder is None:
                fs, path = filesystem(location)
                found: bytes = fs.cat_file(path, start=offset, end=offset + length) if length else b""
                return found
            descriptor = open_file(location)
            with os.fdopen(descriptor, "rb") as file:
                file.seek(offset)
                return file.read(length)

    @contextlib.contextmanager
    def opened(self, name: str) -> Iterator[BinaryIO]:
        """To be read from its beginning."""
        location = self.location(name)
        file: BinaryIO
        with explained(location):
            if self.folder is None:
                fs, path = filesystem(location)
                opened = fs.open(path, "rb")
                # Files of some kinds, those of S3 among them, read no line of a bounded length by themselves.
                file = opened if isinstance(opened, io.BufferedReader) else io.BufferedReader(opened, READ_BYTES)
            else:
                file = os.fdopen(open_file(location), "rb")
        with file:
            yield file

    def size(self, name: str) -> int | None:
        """None where there is no such file."""
        location = self.location(name)
        with explained(location):
            try:
                if self.folder is None:
                    fs, path = filesystem(location)
                    fs.invalidate_cache()
                    return int(fs.info(path)["size"])
                status = os.lstat(location)
            except (FileNotFoundError, NotADirectoryError):
                return None
        return status.st_size if stat.S_ISREG(status.st_mode) else None

    def sizes(self, folder: str) -> dict[str, int]:
        """Of the plain files that lie in ``folder`` itself, by their names; nothing where there is no such folder.

        Others may put files there and take them away meanwhile: what is there all the time is among them.
        """
        location = self.location(folder)
        with explained(location):
            if self.folder is not None:
                return sizes_in(Path(location))
            fs, path = filesystem(location)
            found = _listed(fs, path)
            return {e["name"].rsplit("/", 1)[-1]: int(e["size"]) for e in found if e["type"] == "file"}

    def folders(self, folder: str) -> list[str]:
        """The names of those in ``folder``."""
        location = self.location(folder)
        with explained(location):
            if self.folder is None:
                fs, path = filesystem(location)
                found = _listed(fs, path)
                return sorted(e["name"].rstrip("/").rsplit("/", 1)[-1] for e in found if e["type"] == "directory")
            try:
                with os.scandir(location) as entries:
                    return sorted(e.name for e in entries if e.is_dir(follow_symlinks=False))
            except (FileNotFoundError, NotADirectoryError):
                return []

    def remove(self, name: str) -> None:
        """Nothing is done where there is nothing."""
        location = self.location(name)
        with explained(location):
            remove_at(location)


def sizes_in(folder: Path) -> dict[str, int]:
    """Of the plain files in a folder, which may come and go meanwhile; nothing where there is no such folder."""
    found = {}
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):  # this one alone has gone
                if entry.is_file(follow_symlinks=False):
                    found[entry.name] = entry.stat(follow_symlinks=False).st_size
    return found


def matching(folder: Path, pattern: str) -> Iterator[Path]:
    """As ``folder.glob(pattern)``, while others make and remove folders there: what stays is always among them.

    Before Python 3.12, that one raises where a folder goes away. What is none, or may not be read, has nothing in it.
    """
    first, _, rest = pattern.partition("/")
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if fnmatchcase(entry.name, first))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return
    for name in names:
        if rest:
            yield from matching(folder / name, rest)
        else:
            yield folder / name


def _listed(fs: Any, path: str) -> list[dict[str, Any]]:
    """What is in a folder behind a URL. Some kinds look at each file, and fail where one has gone."""
    for _ in range(LISTINGS):
        fs.invalidate_cache()
        try:
            found: list[dict[str, Any]] = fs.ls(path, detail=True)
        except NotADirectoryError:
            return []
        except FileNotFoundError:
            if not fs.isdir(path):
                return []
        else:
            return found
    raise OSError(errno.EAGAIN, "it could not be listed: files came and went all the time; try again", path)


def is_url(location: str) -> bool:
    return "://" in location


def _to_nobody() -> None: ...


def upload(source: Path, location: str, *, moved: Callable[[], None] = _to_nobody) -> None:
    """Behind a URL, of a plain file; what arrived has the size of ``source``. ``moved`` is called as bytes go."""
    fs, path = filesystem(location)
    with opened_file(source) as file:
        # By its descriptor: what a trial puts into its place meanwhile, a pipe without end, is not opened.
        told = {} if moved is _to_nobody else {"callback": _callback(moved)}
        _within_folders(fs, path, lambda: fs.put_file(f"/proc/self/fd/{file.fileno()}", path, **told))
        moved()
        fs.invalidate_cache()
        size, sent = fs.info(path)["size"], os.fstat(file.fileno()).st_size
    if size != sent:
        raise OSError(f"{size} of {sent} bytes arrived")


def _callback(moved: Callable[[], None]) -> Any:
    """As fsspec has it: it is told of each part."""
    return import_module("fsspec.callbacks").Callback(hooks={"moved": lambda *_, **__: moved()})


def _within_folders(fs: Any, path: str, put: Any) -> None:
    try:
        put()
    except FileNotFoundError:  # of the kinds that have folders
        fs.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
        put()


def fetch(location: str, target: Path) -> None:
    """Copy what is at ``location`` to ``target``, which is complete or not there. StoreError when it cannot be.

    Several threads may fetch to one target at once: each has a draft of its own, and the last one that is whole stays.
    """
    draft = target.with_name(f"{target.name}.{get_native_id()}.part")
    clear(draft)
    try:
        with explained(location):
            _copy_from(location, draft)
            _take_place(draft, target)
    finally:
        with contextlib.suppress(OSError):
            clear(draft)


def _copy_from(location: str, target: Path) -> None:
    if is_url(location):
        fs, path = filesystem(location)
        if fs.isdir(path):
            target.mkdir()
            for found in fs.ls(path, detail=False):
                fs.get_file(found, str(target / found.rsplit("/", 1)[-1]))
        else:
            fs.get_file(path, str(target))
    elif Path(location).is_dir():
        shutil.copytree(location, target)
    else:
        shutil.copyfile(location, target)


def _take_place(draft: Path, target: Path) -> None:
    """Rename ``draft``; a file or folder at ``target`` is replaced, also where others do the same meanwhile."""
    old = draft.with_name(f"{draft.name}.old")
    while True:
        try:
            draft.replace(target)
        except OSError as error:
            if error.errno not in {errno.EEXIST, errno.ENOTEMPTY, errno.EISDIR, errno.ENOTDIR}:
                raise
        else:
            return
        # Of a folder and whatever it replaces: first put aside, so that no half of it has the name.
        with contextlib.suppress(FileNotFoundError):
            target.rename(old)
        clear(old)


def place(source: Path, target: Path, *, moved: Callable[[], None] = _to_nobody) -> None:
    """A copy of a file or a folder of files; durable, never half of it. ``moved`` is called as bytes were copied.

    No second name of the same file: what damages one in place, a script or a disk, would have damaged both.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(draft_of(str(target)))
    clear(draft)
    try:
        if source.is_dir():
            draft.mkdir()
            for path in source.iterdir():
                copy_file(path, draft / path.name, moved=moved)
            clear(target)
        else:
            copy_file(source, draft, moved=moved)
        put_in_place(str(draft), str(target))
    except OSError:
        clear(draft)
        raise


def is_draft(path: Path) -> bool:
    """Whether it has the name of what ``place`` has begun and not finished."""
    return _DRAFT.fullmatch(path.name) is not None


def drop_draft(draft: Path, *, now: float) -> None:
    """Unless somebody wrote into it in the last DRAFT_KEPT_S. ``now``: by the clock that the times of its files are of.

    Whoever goes on with it all the same, after a day, finds it gone and copies anew: it is first put aside, so that no
    half of it takes its place. OSError where it cannot be removed, or has taken its place meanwhile.
    """
    times = [draft.lstat().st_mtime]
    if draft.is_dir() and not draft.is_symlink():
        times += [path.lstat().st_mtime for path in draft.iterdir()]
    if now - max(times) > DRAFT_KEPT_S:
        aside = Path(draft_of(str(draft.with_name("old"))))
        clear(aside)
        draft.rename(aside)
        clear(aside)


def copy_file(source: Path, target: Path, *, moved: Callable[[], None] = _to_nobody) -> None:
    """A new file with the bytes of a plain one, on the disk when this returns. Its blocks are shared where they can be:

    a file system that shares them makes a copy of them before it writes into one.
    """
    with opened_file(source) as reading, target.open("xb") as writing:
        if not clone(reading.fileno(), writing.fileno()):
            _copy_bytes(reading.fileno(), writing.fileno(), moved)
        os.fsync(writing.fileno())  # what is not on the disk stays in the page cache
        for file in (reading, writing):  # nobody is to read them soon, and others' files are in the page cache
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def clone(reading: int, writing: int) -> bool:
    """Make the file ``writing`` one that shares the blocks of ``reading``; False where the file system cannot."""
    try:
        fcntl.ioctl(writing, _FICLONE, reading)
    except OSError:
        return False
    return True


def opened_file(path: Path) -> BinaryIO:
    """To be read; it may be a link to a plain file, and nothing else."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is no plain file", str(path))


def _copy_bytes(reading: int, writing: int, moved: Callable[[], None]) -> None:
    try:
        while os.copy_file_range(reading, writing, COPY_BYTES):
            moved()
    except OSError as error:
        if error.errno not in {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM}:
            raise
        # Both go on where they are: between some file systems the kernel copies nothing by itself.
        while data := os.read(reading, COPY_BYTES):
            write_all(writing, data)
            moved()


def remove_at(location: str) -> None:
    """A file, or a folder with all in it; nothing is done where there is nothing."""
    if not is_url(location):
        clear(Path(location))
        return
    fs, path = filesystem(location)
    fs.invalidate_cache()
    with contextlib.suppress(FileNotFoundError):
        fs.rm(path, recursive=True)


def sync_filesystem(path: str) -> None:
    """All that was written to the file system of ``path`` is on its disk when this returns: thousands of files at once.

    To sync each of them would take a turn of the disk for each.
    """
    import ctypes

    from trials.processes.libc import LIBC

    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if LIBC.syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
    finally:
        os.close(descriptor)


def start_writeback(descriptor: int) -> None:
    """Let the disk begin with what was written, so that the sync later on finds little left. A hint: it never fails."""
    import ctypes

    from trials.processes.libc import LIBC

    if hasattr(LIBC, "sync_file_range"):  # Linux alone has it
        whole = ctypes.c_int64(0)
        LIBC.sync_file_range(descriptor, whole, whole, ctypes.c_uint(_SYNC_FILE_RANGE_WRITE))


def clear(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        remove_tree(path)
    else:
        path.unlink(missing_ok=True)


class _OfService:
    """What understands the files of a service elsewhere: of the one that this process's agent was joined to."""

    files: Any = None


def set_service_files(files: Any) -> None:
    _OfService.files = files


def filesystem(location: str) -> tuple[Any, str]:
    """Of fsspec, and the path in it."""
    if location.startswith(SCHEME):
        if _OfService.files is None:
            raise StoreUnusableError(f"store: {location}: this agent was not joined to a service elsewhere")
        return _OfService.files, location
    try:
        found: tuple[Any, str] = import_module("fsspec").core.url_to_fs(location)
    except (ImportError, ValueError) as error:
        raise StoreUnusableError(
            f"store: {location}: {error}; install what this kind of URL needs, as s3fs for s3://"
        ) from error
    return found


@contextlib.contextmanager
def explained(location: str) -> Iterator[None]:
    """Whatever a kind of store raises becomes a StoreError: there are as many kinds of errors as of stores.

    Its ``errno`` is that of the error it comes from, so that a full disk is known as one.
    """
    try:
        yield
    except StoreUnusableError:
        raise
    except Exception as error:  # each fsspec implementation has errors of its own, botocore's among them
        explained_error = StoreError(f"store: {location}: {error}")
        explained_error.errno = getattr(error, "errno", None)
        raise explained_error from error

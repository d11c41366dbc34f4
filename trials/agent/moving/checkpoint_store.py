"""Where checkpoints lie that are too large for the database: in a folder, or behind any URL that fsspec can open.

What is put there belongs to one attempt alone, so removing it takes nothing from another. A reader verifies the digest
and believes nothing else; so a put that was cut off does no harm.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

from trials.checkpoints.verified_files import MANIFEST, opened_file
from trials.files import draft_of, put_in_place, write_all

COPY_BYTES = 8 << 20  # at once
_FICLONE = 0x40049409  # of linux/fs.h


class StoreError(OSError):
    """The checkpoint store cannot be used; the text says which, and why."""


class StoreUnusableError(StoreError):
    """It never can be used from here: nothing is installed that opens such a URL."""


class CheckpointStore:
    """``url``: an absolute path, or a URL such as s3://bucket/prefix. Every call blocks; StoreError when it fails."""

    def __init__(self, url: str) -> None:
        self._root = url.rstrip("/")

    @property
    def is_named(self) -> bool:
        """Whether the service names a store at all."""
        return bool(self._root)

    def location(self, name: str) -> str:
        return f"{self._root}/{name}"

    def has(self, location: str) -> bool:
        """Whether ``location`` is one of this store; nothing is of the store without a name, which keeps none."""
        return self.is_named and location.startswith(f"{self._root}/") and ".." not in location.split("/")

    def put(self, source: Path, name: str) -> str:
        """Copy a file, or a folder of files, and say where it is. It is on the disk of the store when this returns."""
        location = self.location(name)
        with _explained(location):
            if is_url(location):
                for path in _files_of(source):
                    _upload(path, location if path == source else f"{location}/{path.name}")
            else:
                place(source, Path(location))
        return location

    def remove(self, location: str) -> None:
        """Nothing is done where there is nothing, or where it is not of this store."""
        if self.has(location):
            with _explained(location):
                _remove(location)


def fetch(location: str, target: Path) -> None:
    """Copy what is at ``location`` to ``target``, which is complete or not there. StoreError when it cannot be."""
    partial = target.with_name(f"{target.name}.part")
    _clear(partial)
    with _explained(location):
        if is_url(location):
            fs, path = _filesystem(location)
            if fs.isdir(path):
                partial.mkdir()
                for found in fs.ls(path, detail=False):
                    fs.get_file(found, str(partial / found.rsplit("/", 1)[-1]))
            else:
                fs.get_file(path, str(partial))
        elif Path(location).is_dir():
            shutil.copytree(location, partial)
        else:
            shutil.copyfile(location, partial)
        _clear(target)
        partial.replace(target)


def is_url(location: str) -> bool:
    return "://" in location


def _files_of(source: Path) -> list[Path]:
    """The manifest last: without it the rest is not looked at."""
    return sorted(source.iterdir(), key=lambda path: path.name == MANIFEST) if source.is_dir() else [source]


def _upload(source: Path, location: str) -> None:
    fs, path = _filesystem(location)
    try:
        fs.put_file(str(source), path)
    except FileNotFoundError:  # of the kinds that have folders
        fs.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
        fs.put_file(str(source), path)
    fs.invalidate_cache()
    size = fs.info(path)["size"]
    if size != source.stat().st_size:
        raise OSError(f"{size} of {source.stat().st_size} bytes arrived")


def place(source: Path, target: Path) -> None:
    """A copy of a file or a folder of files; durable, never half of it.

    No second name of the same file: what damages one in place, a script or a disk, would have damaged both.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(draft_of(str(target)))
    _clear(draft)
    try:
        if source.is_dir():
            draft.mkdir()
            for path in source.iterdir():
                copy_file(path, draft / path.name)
            _clear(target)
        else:
            copy_file(source, draft)
        put_in_place(str(draft), str(target))
    except OSError:
        _clear(draft)
        raise


def copy_file(source: Path, target: Path) -> None:
    """A new file with the bytes of a plain one, on the disk when this returns. Its blocks are shared where they can be:

    a file system that shares them makes a copy of them before it writes into one.
    """
    with opened_file(source) as reading, target.open("xb") as writing:
        try:
            fcntl.ioctl(writing, _FICLONE, reading.fileno())
        except OSError:
            _copy_bytes(reading.fileno(), writing.fileno())
        os.fsync(writing.fileno())  # what is not on the disk stays in the page cache
        for file in (reading, writing):  # nobody is to read them soon, and others' files are in the page cache
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _copy_bytes(reading: int, writing: int) -> None:
    try:
        while os.copy_file_range(reading, writing, COPY_BYTES):
            pass
    except OSError as error:
        if error.errno not in {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM}:
            raise
        # Both go on where they are: between some file systems the kernel copies nothing by itself.
        while data := os.read(reading, COPY_BYTES):
            write_all(writing, data)


def _remove(location: str) -> None:
    if not is_url(location):
        _clear(Path(location))
        return
    fs, path = _filesystem(location)
    fs.invalidate_cache()
    with contextlib.suppress(FileNotFoundError):
        fs.rm(path, recursive=True)


def _clear(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _filesystem(location: str) -> tuple[Any, str]:
    try:
        found: tuple[Any, str] = import_module("fsspec").core.url_to_fs(location)
    except (ImportError, ValueError) as error:
        raise StoreUnusableError(
            f"checkpoint store: {location}: {error}; install what this kind of URL needs, as s3fs for s3://"
        ) from error
    return found


@contextlib.contextmanager
def _explained(location: str) -> Any:
    """Whatever a kind of store raises becomes a StoreError: there are as many kinds of errors as of stores."""
    try:
        yield
    except StoreUnusableError:
        raise
    except Exception as error:  # each fsspec implementation has errors of its own, botocore's among them
        raise StoreError(f"checkpoint store: {location}: {error}") from error

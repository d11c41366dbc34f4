"""Zip and tar archives as sources of assets: unpacked with bounds, and nothing outside the folder is touched."""

from __future__ import annotations

import os
import posixpath
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from trials.wire.manifests import MAX_FILES
from trials.wire.paths import path_fault
from tuner_service.assets.sources import AssetSourceError

SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
MAX_UNPACKED_BYTES = 1 << 40  # of one archive; beyond: AssetSourceError
MAX_RATIO = 200  # of what is in it to the archive itself
RATIO_FROM_BYTES = 1 << 30  # less than that may be packed as well as it can be
MAX_LINK_BYTES = 4_096  # the target of a link in a zip archive
_BLOCK_BYTES = 1 << 20
_BROKEN = (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, ValueError)


def is_archive(source: Path) -> bool:
    return source.name.lower().endswith(SUFFIXES) and source.is_file()


def unpack_archive(archive: Path, target: Path) -> Path:
    """The files of ``archive`` in the new folder ``target``; AssetSourceError names what cannot be taken.

    Links to files of the archive become those files; any other link is refused.
    """
    target.mkdir(parents=True)
    try:
        unpacking = _Unpacking(archive=archive, target=target, packed=archive.stat().st_size)
        if zipfile.is_zipfile(archive) and archive.name.lower().endswith(".zip"):
            _unpack_zip(unpacking)
        else:
            _unpack_tar(unpacking)
        unpacking.settle_links()
    except _BROKEN as error:
        raise AssetSourceError(f"{archive} cannot be unpacked: {error}; make it anew, or name the folder") from error
    except OSError as error:
        raise AssetSourceError(
            f"{archive} cannot be unpacked: {error.strerror}; TMPDIR names another folder for it"
        ) from error
    return target


@dataclass(kw_only=True)
class _Unpacking:
    archive: Path
    target: Path
    packed: int
    count: int = 0
    size: int = 0
    links: dict[str, str] = field(default_factory=dict)  # path → the path that is meant

    def place(self, name: str) -> str:
        """Where the entry goes, relative to the target."""
        path = name.removeprefix("./").rstrip("/")
        fault = path_fault(path)
        if fault is not None:
            raise AssetSourceError(f"{self.archive}: the path {name!r:.200} {fault}")
        self.count += 1
        if self.count > MAX_FILES:
            raise AssetSourceError(f"{self.archive} has more than {MAX_FILES} entries, the most that are taken")
        return path

    def folder(self, path: str) -> None:
        (self.target / path).mkdir(parents=True, exist_ok=True)

    def write(self, path: str, content: IO[bytes], *, executable: bool) -> None:
        with self._new(path, executable=executable) as file:
            while block := content.read(_BLOCK_BYTES):
                self._count(len(block))
                file.write(block)

    def link(self, path: str, target: str) -> None:
        """``target`` as it is written in the link, or relative to the root where it begins with a slash here."""
        meant = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        if target.startswith("/") or meant.startswith("../") or path_fault(meant):
            raise AssetSourceError(f"{self.archive}: {path} is a link that leads out of the archive ({target!r:.200})")
        self.links[path] = meant

    def settle_links(self) -> None:
        for path in self.links:
            target, seen = path, set()
            while target in self.links:
                if target in seen:
                    raise AssetSourceError(f"{self.archive}: {path} is a link to itself")
                seen.add(target)
                target = self.links[target]
            source = self.target / target
            if not source.is_file() or source.is_symlink():
                raise AssetSourceError(
                    f"{self.archive}: {path} is a link to {target!r}, which is no file of the archive"
                )
            with source.open("rb") as content:
                self.write(path, content, executable=bool(source.stat().st_mode & stat.S_IXUSR))

    def _count(self, size: int) -> None:
        self.size += size
        if self.size > MAX_UNPACKED_BYTES:
            raise AssetSourceError(
                f"{self.archive} holds more than {MAX_UNPACKED_BYTES} bytes, the most that are taken"
            )
        if self.size > RATIO_FROM_BYTES and self.size > MAX_RATIO * self.packed:
            raise AssetSourceError(
                f"{self.archive} holds more than {MAX_RATIO} times its own size, which looks like a mistake or an "
                "attack; unpack it yourself and name the folder"
            )

    @contextmanager
    def _new(self, path: str, *, executable: bool) -> Iterator[IO[bytes]]:
        place = self.target / path
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(
                place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o700 if executable else 0o600
            )
        except (FileExistsError, NotADirectoryError) as error:
            raise AssetSourceError(f"{self.archive}: {path} is in it twice, or a file and a folder") from error
        with os.fdopen(descriptor, "wb") as file:
            yield file


def _unpack_zip(unpacking: _Unpacking) -> None:
    with zipfile.ZipFile(unpacking.archive) as archive:
        for entry in archive.infolist():
            mode = entry.external_attr >> 16
            path = unpacking.place(entry.filename)
            if entry.is_dir():
                unpacking.folder(path)
            elif stat.S_ISLNK(mode):
                with archive.open(entry) as content:
                    target = content.read(MAX_LINK_BYTES + 1)
                unpacking.link(path, os.fsdecode(target))
            elif stat.S_IFMT(mode) not in {0, stat.S_IFREG}:
                raise AssetSourceError(f"{unpacking.archive}: {path} is no file (a pipe, a socket or a device)")
            else:
                with archive.open(entry) as content:
                    unpacking.write(path, content, executable=bool(mode & stat.S_IXUSR))


def _unpack_tar(unpacking: _Unpacking) -> None:
    with tarfile.open(unpacking.archive) as archive:
        for entry in archive:
            if entry.name in {".", "./"}:
                continue
            path = unpacking.place(entry.name)
            if entry.isdir():
                unpacking.folder(path)
            elif entry.issym():
                unpacking.link(path, entry.linkname)
            elif entry.islnk():  # named from the root of the archive
                unpacking.links[path] = unpacking.place(entry.linkname)
            elif (content := archive.extractfile(entry) if entry.isreg() else None) is not None:
                with content:
                    unpacking.write(path, content, executable=bool(entry.mode & stat.S_IXUSR))
            else:
                raise AssetSourceError(f"{unpacking.archive}: {path} is no file (a pipe or a device)")

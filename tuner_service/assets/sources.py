"""The files of a folder that become an asset, as they are now."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from trials.wire.manifests import MAX_FILES
from trials.wire.paths import path_fault
from tuner_service.client import ClientError

IsIgnored = Callable[[str, bool], bool]  # of a path relative to the root, and whether it is a folder


class AssetSourceError(ClientError):
    """A file or folder cannot be made an asset; the text names it and says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """By which a file that did not change is known: it was written to where one of these differs."""

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Fingerprint:
        return cls(inode=status.st_ino, size=status.st_size, mtime_ns=status.st_mtime_ns, ctime_ns=status.st_ctime_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """``path`` inside the asset; ``location`` of this machine, links followed."""

    path: str
    location: str
    executable: bool
    fingerprint: Fingerprint

    @property
    def size(self) -> int:
        return self.fingerprint.size


def list_files(source: Path, *, is_ignored: IsIgnored | None = None) -> list[SourceFile]:
    """Of a folder, or the one file that ``source`` is. AssetSourceError names what cannot be part of an asset."""
    try:
        root = Path(os.path.realpath(source, strict=True))
        if root.is_dir():
            return list(_walk(root, is_ignored or (lambda path, is_folder: False)))  # noqa: ARG005  # leaves nothing out
        status = root.stat()
        _require_plain(status, source.name, root)
        return [_file(_checked(source.name), str(root), status)]
    except FileNotFoundError as error:
        raise AssetSourceError(
            f"there is no {error.filename}; name a folder, a file, or a zip or tar archive"
        ) from error
    except OSError as error:
        raise AssetSourceError(f"{error.filename or source} cannot be read: {error.strerror}") from error


def _walk(root: Path, is_ignored: IsIgnored) -> Iterator[SourceFile]:
    count = 0
    folders = [""]
    while folders:
        folder = folders.pop()
        with os.scandir(root / folder) as entries:
            for entry in entries:
                path = f"{folder}/{entry.name}" if folder else entry.name
                is_folder = entry.is_dir(follow_symlinks=False)
                if is_ignored(path, is_folder):
                    continue
                if is_folder:
                    folders.append(path)
                    continue
                count += 1
                if count > MAX_FILES:
                    raise AssetSourceError(
                        f"{root} has more than {MAX_FILES} files, the most of an asset: pack some together"
                    )
                yield _entry(root, _checked(path), entry)


def _entry(root: Path, path: str, entry: os.DirEntry[str]) -> SourceFile:
    if not entry.is_symlink():
        status = entry.stat(follow_symlinks=False)
        _require_plain(status, path, root)
        return _file(path, entry.path, status)
    target = Path(os.path.realpath(entry.path))  # which ends also where links lead to one another
    if not target.is_relative_to(root):
        raise AssetSourceError(
            f"{entry.path} is a link to {target}, outside the folder; copy it there, or leave it "
            "out (a .tunerignore file)"
        )
    try:
        status = target.stat()
    except OSError as error:
        raise AssetSourceError(f"{entry.path} is a link to nothing ({target}); remove it, or leave it out") from error
    if stat.S_ISDIR(status.st_mode):
        raise AssetSourceError(
            f"{entry.path} is a link to a folder; copy it there, or leave it out (a .tunerignore file)"
        )
    _require_plain(status, path, root)
    return _file(path, str(target), status)


def _require_plain(status: os.stat_result, path: str, root: Path) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise AssetSourceError(
            f"{path} of {root} is no plain file (a pipe, a socket or a device); remove it, or leave it out"
        )


def _file(path: str, location: str, status: os.stat_result) -> SourceFile:
    executable = bool(status.st_mode & stat.S_IXUSR)
    return SourceFile(path=path, location=location, executable=executable, fingerprint=Fingerprint.of(status))


def _checked(path: str) -> str:
    fault = path_fault(path)
    if fault is not None:
        raise AssetSourceError(f"{path!r} {fault}; rename it, or leave it out")
    return path

"""Weights that others read while they are trained: published in one step, and never seen half.

A place is a folder, or a URL that fsspec knows, and belongs to one publisher. Each version is a file of its own, whose
name holds its digest; ``newest.json`` names the newest and is replaced in one step. A reader believes a file only if
its digest is the one that stands there.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from trials.arguments import seconds, whole_number
from trials.checkpoints import torch_states
from trials.checkpoints.verified_files import replace_file
from trials.compression import compressor as compressor_named
from trials.compression import decompressor

NEWEST = "newest.json"
KEPT = 3  # versions a place keeps; one that is being read may be removed, and then a newer one is read
READ_ATTEMPTS = 50  # of a reader that finds a file gone or torn, before it says so
READ_PAUSE_S = 0.02
WAIT_PAUSE_S = 0.05
_PREFIX, _SUFFIX, _TEMPORARY = "weights-", ".bin", ".tmp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One version of weights, as ``newest.json`` names it."""

    version: int
    file: str
    digest: str
    size: int
    encoding: str
    at: float
    compressor: str = "none"


class WeightsUnreadableError(OSError):
    """A place names weights that are not there or damaged, again and again."""


class Place(Protocol):
    """Where weights are published. ``put`` is all or nothing to a reader."""

    def put(self, name: str, data: bytes) -> None: ...

    def get(self, name: str) -> bytes:
        """FileNotFoundError when there is none."""
        ...

    def remove(self, name: str) -> None: ...

    def names(self) -> list[str]: ...


def place_of(where: str | os.PathLike[str]) -> Place:
    """The folder or the fsspec URL ``where``."""
    text = os.fspath(where)
    if "://" not in text:
        return FolderPlace(Path(text))
    if text.startswith(("file://", "local://")):
        return FolderPlace(Path(text.partition("://")[2]))
    return UrlPlace(text)


class FolderPlace:
    """A folder on this machine or a shared file system; made when the first version is put there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, name: str, data: bytes) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        replace_file(self._folder / name, data)

    def get(self, name: str) -> bytes:
        try:
            return (self._folder / name).read_bytes()
        except OSError as error:
            if error.errno == errno.ESTALE:  # on NFS: another machine has removed it while it was read
                raise FileNotFoundError(errno.ENOENT, "it was removed meanwhile", name) from error
            raise

    def remove(self, name: str) -> None:
        (self._folder / name).unlink(missing_ok=True)

    def names(self) -> list[str]:
        return [path.name for path in self._folder.iterdir()]


class UrlPlace:
    """What fsspec reaches, such as ``s3://bucket/folder``. A file that is being put is known by its digest."""

    def __init__(self, url: str) -> None:
        try:
            fsspec: Any = import_module("fsspec")
        except ImportError as error:
            raise ImportError(f"{url} needs the package fsspec; install it, or give a folder") from error
        self._files, self._root = fsspec.core.url_to_fs(url)

    def put(self, name: str, data: bytes) -> None:
        self._files.makedirs(self._root, exist_ok=True)
        self._files.pipe_file(f"{self._root}/{name}", data)

    def get(self, name: str) -> bytes:
        self._files.invalidate_cache()
        data: bytes = self._files.cat_file(f"{self._root}/{name}")
        return data

    def remove(self, name: str) -> None:
        try:
            self._files.rm_file(f"{self._root}/{name}")
        except FileNotFoundError:
            return

    def names(self) -> list[str]:
        self._files.invalidate_cache()
        return [str(path).rpartition("/")[2] for path in self._files.ls(self._root, detail=False)]


# ── publishing ──────────────────────────────────────────────────────────────────────────────────
def publish_weights(
    state: Any,
    *,
    version: int,
    to: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    keep: int = KEPT,
    compressor: str = "none",
) -> Published:
    """Put ``state`` into every place; a reader there has it, whole, when this returns.

    A place that fails keeps the version before and does not keep the others from the new one; its error is raised at
    the end. TypeError when ``state`` could not be read back as it is. ``compressor`` is "none", "zlib" or, where the
    extra of that name is installed, here and at the readers', "lz4".
    """
    compress = compressor_named(compressor)
    version, keep = whole_number(version, what="version"), whole_number(keep, what="keep", least=1)
    places = [to] if isinstance(to, str | os.PathLike) else list(to)
    if not places:
        raise ValueError("to names no place: give a folder or an fsspec URL, or several")
    encoding, data = _encoded(state)
    data = compress(data)
    digest = hashlib.sha256(data).hexdigest()
    published = Published(
        version=version,
        file=f"{_PREFIX}{version:012d}-{digest[:12]}{_SUFFIX}",
        digest=digest,
        size=len(data),
        encoding=encoding,
        at=time.time(),
        compressor=compressor,
    )
    failures: list[tuple[str, OSError]] = []
    for where in places:
        try:
            _put(place_of(where), published, data, keep=keep)
        except OSError as error:
            failures.append((os.fspath(where), error))
    if failures:
        failed, reason = failures[0]
        raise OSError(f"version {version} was not published to {failed}: {reason}") from reason
    return published


def _put(place: Place, published: Published, data: bytes, *, keep: int) -> None:
    place.put(published.file, data)
    place.put(NEWEST, json.dumps(asdict(published)).encode())
    names = place.names()
    files = sorted(n for n in names if n.startswith(_PREFIX) and n.endswith(_SUFFIX) and n != published.file)
    unfinished = [n for n in names if n.endswith(_TEMPORARY)]  # of a publisher that was killed
    for name in (*unfinished, *files[: max(0, len(files) - (keep - 1))]):
        place.remove(name)


def _encoded(state: Any) -> tuple[str, bytes]:
    if isinstance(state, bytes):
        return "bytes", state
    if "torch" in sys.modules:
        buffer = io.BytesIO()
        torch_states.save(state, buffer)
        buffer.seek(0)
        torch_states.require_loadable(buffer)
        return "torch", buffer.getvalue()
    text = json.dumps(state, separators=(",", ":"))
    if json.loads(text) != state:
        raise TypeError("the weights change when they are saved as JSON; use dicts with text keys, lists and numbers")
    return "json", text.encode()


def _decoded(encoding: str, data: bytes) -> Any:
    if encoding == "torch":
        return torch_states.load(io.BytesIO(data))
    return data if encoding == "bytes" else json.loads(data)


# ── reading ─────────────────────────────────────────────────────────────────────────────────────
class WeightsReader:
    """Follows one place. Nothing that is read is executed."""

    def __init__(self, where: str | os.PathLike[str]) -> None:
        self._where = os.fspath(where)
        self._place = place_of(where)
        self.seen: Published | None = None

    def poll(self) -> Any:
        """The newest weights if they are others than the last ones given; None if there is nothing new."""
        for attempt in range(READ_ATTEMPTS):
            if attempt:
                time.sleep(READ_PAUSE_S)
            newest = self._newest()
            if newest is None or (self.seen is not None and newest.digest == self.seen.digest):
                self.seen = newest or self.seen
                return None
            data = self._bytes_of(newest)
            if data is not None:
                self.seen = newest
                return _decoded(newest.encoding, decompressor(newest.compressor)(data))
        raise WeightsUnreadableError(
            f"{self._where} names weights that are missing or damaged; publish them again, or remove its {NEWEST}"
        )

    def wait(self, timeout_s: float) -> Any:
        """As ``poll``, waiting for something new; TimeoutError when nothing comes."""
        deadline = time.monotonic() + seconds(timeout_s, what="timeout_s")
        while (found := self.poll()) is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"nothing new was published to {self._where} within {timeout_s:g} s")
            time.sleep(WAIT_PAUSE_S)
        return found

    def _newest(self) -> Published | None:
        """None where nothing was published, or where its name is just being written."""
        try:
            return Published(**json.loads(self._place.get(NEWEST)))
        except (FileNotFoundError, ValueError, TypeError, RecursionError):
            return None

    def _bytes_of(self, newest: Published) -> bytes | None:
        try:
            data = self._place.get(newest.file)
        except FileNotFoundError:
            return None  # a newer one has taken its place meanwhile
        return data if hashlib.sha256(data).hexdigest() == newest.digest else None

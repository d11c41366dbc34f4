"""A disk that forgets what was not synced: what a folder would hold after a power loss, at every moment.

While ``SimulatedDisk`` is entered it listens to the calls by which this process syncs, renames, links and removes. Two
pictures of a power loss are made, since a file system may do either:

- ``kept_names=False``: nothing is left but what was synced. A file has the bytes of its last fsync, a folder the names
  of its last fsync, and those under which files in it were synced since, as on journaling file systems; so a name that
  a file is given after its last fsync is lost unless the folder is synced, too.
- ``kept_names=True``: names are as they are now, and files still have the bytes of their last fsync only: the renamed
  file of zero bytes.
"""
# It stands below pathlib, which calls what it listens to.
# ruff: noqa: PTH115, PTH116, PTH118, PTH120

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from trials.processes.libc import LIBC


@dataclass(eq=False, slots=True)
class _File:
    """One file or folder, whatever its names are."""

    synced: bytes | None = None  # of a file: the bytes of its last fsync
    names: dict[str, _File] | None = None  # of a folder: those of its last fsync
    is_folder: bool = False


@dataclass(slots=True)
class Event:
    """One call, as it was made: ``fsync``, ``syncfs``, ``rename``, ``link`` or ``unlink``, of names inside the root."""

    call: str
    path: Path
    target: Path | None = None


class SimulatedDisk:
    """Of everything below ``root``; what is there already counts as synced.

    ``at_every_event``: called after each event, so that a test may look at the picture of that moment.
    """

    def __init__(self, root: Path, *, at_every_event: Callable[[SimulatedDisk], None] = lambda _: None) -> None:
        self._root = root.resolve()
        self._at_every_event = at_every_event
        self._files: dict[tuple[int, int] | None, _File] = {}
        self._lock = threading.RLock()
        self._patches = pytest.MonkeyPatch()
        self.events: list[Event] = []

    def __enter__(self) -> Self:
        self._note_all()
        for name, call in (("fsync", self._fsync), ("fdatasync", self._fsync)):
            self._patches.setattr(os, name, self._listening(getattr(os, name), call))
        self._patches.setattr(os, "link", self._listening(os.link, self._linked))
        for name in ("replace", "rename"):
            self._patches.setattr(os, name, self._moving(getattr(os, name)))
        for name in ("unlink", "remove"):
            self._patches.setattr(os, name, self._forgetting(getattr(os, name)))
        self._patches.setattr(LIBC, "syncfs", self._syncfs)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._patches.undo()

    # ── pictures ────────────────────────────────────────────────────────────────────────────────
    def after_power_loss(self, into: Path, *, kept_names: bool) -> Path:
        """The root as it would be found; ``into`` is made anew."""
        with self._lock:
            shutil.rmtree(into, ignore_errors=True)
            if kept_names:
                self._copy_named(self._root, into)
            else:
                self._copy_synced(self._known(self._root), into)
        return into

    def _copy_synced(self, file: _File, into: Path) -> None:
        if not file.is_folder:
            into.write_bytes(file.synced or b"")
            return
        into.mkdir()
        for name, inner in (file.names or {}).items():
            self._copy_synced(inner, into / name)

    def _copy_named(self, path: Path, into: Path) -> None:
        if path.is_dir():
            into.mkdir()
            for inner in path.iterdir():
                self._copy_named(inner, into / inner.name)
        elif path.is_file():
            into.write_bytes(self._known(path).synced or b"")

    # ── listening ───────────────────────────────────────────────────────────────────────────────
    def _listening(self, call: Any, note: Callable[..., None]) -> Any:
        def listened(*arguments: Any, **options: Any) -> Any:
            with self._lock:
                result = call(*arguments, **options)
                note(*arguments)
            return result

        return listened

    def _moving(self, call: Any) -> Any:
        def listened(source: Any, target: Any, **options: Any) -> Any:
            with self._lock:
                gone = self._last_name(target)
                result = call(source, target, **options)
                self._files.pop(gone, None)
                if self._inside(target):
                    self._said("rename", Path(source), Path(target))
            return result

        return listened

    def _forgetting(self, call: Any) -> Any:
        def listened(path: Any, *arguments: Any, **options: Any) -> Any:
            with self._lock:
                inside = not options and self._inside(path)
                gone = self._last_name(path) if inside else None
                result = call(path, *arguments, **options)
                self._files.pop(gone, None)
                if inside:
                    self._said("unlink", Path(path))
            return result

        return listened

    def _last_name(self, path: Any) -> tuple[int, int] | None:
        """What is known of a file whose last name goes is forgotten: its number may be another file's next."""
        try:
            return self._key(path) if os.stat(path, follow_symlinks=False).st_nlink == 1 else None
        except FileNotFoundError:
            return None

    def _fsync(self, descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if self._inside(path):
            self._note_sync(path)
            self._said("fsync", Path(path))

    def _syncfs(self, descriptor: int) -> int:
        """All of the file system. In place of the call, which would wait for whatever else the machine writes."""
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if self._inside(path):
            with self._lock:
                self._note_all()
                self._said("syncfs", Path(path))
        return 0

    def _linked(self, source: Any, target: Any) -> None:
        if self._inside(target):
            self._said("link", Path(source), Path(target))

    def _said(self, call: str, path: Path, target: Path | None = None) -> None:
        self.events.append(Event(call, path, target))
        self._at_every_event(self)

    def _inside(self, path: Any) -> bool:
        resolved = os.path.realpath(os.path.dirname(os.fspath(path)))
        return (os.path.lexists(path) and (resolved + os.sep).startswith(f"{self._root}{os.sep}")) or (
            os.path.realpath(path) == str(self._root)
        )

    # ── what is synced ──────────────────────────────────────────────────────────────────────────
    def _note_all(self) -> None:
        for folder, _, files in os.walk(self._root):
            for name in files:
                self._note_sync(os.path.join(folder, name))
        for folder, _, _ in os.walk(self._root, topdown=False):
            self._note_sync(folder)

    def _note_sync(self, path: str) -> None:
        known = self._known(Path(path))
        if known.is_folder:
            known.names = {entry.name: self._known(Path(entry.path)) for entry in os.scandir(path)}
        else:
            known.synced = Path(path).read_bytes()
        inner = Path(path)
        while inner != self._root:
            parent = self._known(inner.parent)
            parent.names = {**(parent.names or {}), inner.name: self._known(inner)}
            inner = inner.parent

    def _known(self, path: Path) -> _File:
        key = self._key(path)
        if key not in self._files:
            self._files[key] = _File(is_folder=path.is_dir())
        return self._files[key]

    @staticmethod
    def _key(path: Any) -> tuple[int, int]:
        found = os.stat(path, follow_symlinks=False)
        return found.st_dev, found.st_ino

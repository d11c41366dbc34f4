"""Where checkpoints lie that are too large for the database: in a folder, or behind any URL that fsspec can open.

What is put there belongs to one attempt alone, so removing it takes nothing from another. A reader verifies the digest
and believes nothing else; so a put that was cut off does no harm, and what it leaves in a folder goes in time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from trials.stores import DRAFT_KEPT_S, drop_draft, explained, is_draft, is_url, matching, place, remove_at, upload
from trials.wire.shards import MANIFEST

LOOKED_AT = ".looked-at"  # in a folder that is a store: its time is when somebody began to look for old drafts
DRAFTS_THREAD = "old-drafts"
_DRAFTS = "*/[0-9]*/[0-9]*-*/.*.tmp"  # EXPERIMENT/NUMBER/ATTEMPT-NONCE/


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

    @property
    def root(self) -> str:
        return self._root

    def put(self, source: Path, name: str, *, moved: Callable[[], None] = lambda: None) -> str:
        """Copy a file, or a folder of files, and say where it is. It is on the disk of the store when this returns.

        ``moved`` is called again and again while bytes arrive there.
        """
        location = self.location(name)
        with explained(location):
            if is_url(location):
                for path in _files_of(source):
                    upload(path, location if path == source else f"{location}/{path.name}", moved=moved)
            else:
                self._look_for_drafts()
                place(source, Path(location), moved=moved)
        return location

    def remove(self, location: str) -> None:
        """Nothing is done where there is nothing, or where it is not of this store."""
        if self.has(location):
            with explained(location):
                remove_at(location)

    # ── drafts ──────────────────────────────────────────────────────────────────────────────────
    def _look_for_drafts(self) -> None:
        """Once a day, whichever node is the first to put something then: those of nodes that are no more, too.

        In a thread of its own, for a store may hold many folders. What cannot be looked at, or removed, stays.
        """
        mark = Path(self._root) / LOOKED_AT
        with suppress(OSError, RuntimeError):  # of a thread that cannot be started: a put needs none
            if mark.exists() and 0.0 <= time.time() - mark.stat().st_mtime < DRAFT_KEPT_S:
                return
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.touch()
            now = mark.stat().st_mtime  # by the clock of the file system, whose files are compared with it
            threading.Thread(target=self._drop_drafts, args=(now,), name=DRAFTS_THREAD, daemon=True).start()

    def _drop_drafts(self, now: float) -> None:
        with suppress(OSError):
            for path in matching(Path(self._root), _DRAFTS):
                with suppress(OSError):
                    if is_draft(path):
                        drop_draft(path, now=now)


def _files_of(source: Path) -> list[Path]:
    """The manifest last: without it the rest is not looked at."""
    return sorted(source.iterdir(), key=lambda path: path.name == MANIFEST) if source.is_dir() else [source]

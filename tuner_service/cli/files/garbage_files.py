"""Files under a home folder that nothing needs.

Whatever cannot be told for sure is kept: an attempt of another database, one that still runs, a folder that is not
understood. A home may be a folder of a person's, who has ``checkpoints`` there, too: what has no name that a service
or an agent gives is left alone.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trials.agent.attempts import load_attempt
from trials.agent.home import Home, remove_whatever
from trials.stores import is_draft, matching
from trials.wire.files import FILE_SPOOL, FOLDER_CHECKPOINTS
from trials.wire.manifests import is_file_digest
from trials.wire.remote_files import CHECKPOINTS, LOGS
from tuner_service.executors.local import agent_is_alive
from tuner_service.service.node_files import RECEIVED, lineages_of

DIGEST_PREFIX = 12  # characters of a digest in the name of an attempt's checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Garbage:
    """One thing to remove: ``path``, or in the database the blob ``digest``."""

    what: str
    where: str
    size: int
    why: str
    path: Path | None = None
    digest: str = ""

    def remove(self) -> None:
        """Safe to repeat; what is gone already is no error. OSError for what cannot be removed."""
        if self.path is not None:
            with suppress(FileNotFoundError):
                remove_whatever(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Needed:
    """What the database names. ``code``: revisions of experiments that have not ended."""

    lineage: str
    experiments: frozenset[str]
    ended_nonces: frozenset[str]
    checkpoints: frozenset[str]
    code: frozenset[str]


def find_files(folder: Path, needed: Needed) -> list[Garbage]:
    home = Home(folder)
    gone = [path for path in _folders(home.attempts) if _is_deleted(path, needed)]
    return [
        *(
            _found("attempts", path, why=f"experiment {path.name} was deleted; none of its attempts runs")
            for path in gone
        ),
        *_spools(home, needed),
        *_checkpoints(home, needed, gone),
        *_caches(home, needed),
        *_received(folder, needed),
    ]


# ── attempts ────────────────────────────────────────────────────────────────────────────────────
def _is_deleted(folder: Path, needed: Needed) -> bool:
    """Whether it is of an experiment that this very database had: every attempt says so, and none lives."""
    if folder.name in needed.experiments:
        return False
    found = [load_attempt(path) for path in matching(folder, "*/*-*") if path.is_dir()]
    known = [held for held in found if held is not None]
    return bool(known) and all(held.lineage == needed.lineage and not held.is_supervised() for held in known)


def _spools(home: Home, needed: Needed) -> Iterator[Garbage]:
    """Of attempts whose end is in the database and which no agent reads any more."""
    live = home.live()
    for path in matching(home.attempts, f"*/*/*-*/{FILE_SPOOL}"):
        nonce = path.parent.name.partition("-")[2]
        if nonce in needed.ended_nonces and nonce not in live and _size(path):
            yield _found("spool", path, why="every report of it is in the database")


# ── checkpoints ─────────────────────────────────────────────────────────────────────────────────
def _checkpoints(home: Home, needed: Needed, gone: list[Path]) -> Iterator[Garbage]:
    """Large ones, shared by content: needed while a row, or an attempt that stays, has the same bytes.

    Trials run meanwhile, and an attempt has its file before it is shared. So what is shared is listed first.
    """
    shared = _entries(home.checkpoints)
    kept: set[str] = set()
    for path in matching(home.attempts, f"*/*/*/{FOLDER_CHECKPOINTS}/*.ckpt"):
        if not any(path.is_relative_to(folder) for folder in gone):
            kept.add(path.name.removesuffix(".ckpt").rpartition("-")[2])
    for path in shared:
        digest = path.name.partition(".")[0]
        if not (is_file_digest(digest) or is_draft(path)):
            continue
        if digest not in needed.checkpoints and digest[:DIGEST_PREFIX] not in kept:
            yield _found("checkpoint", path, why="no checkpoint of any experiment has these bytes")


# ── caches ──────────────────────────────────────────────────────────────────────────────────────
def _caches(home: Home, needed: Needed) -> Iterator[Garbage]:
    """Unpacked code is made again where it is missing. An agent that lives may be using its own at this moment."""
    folders = [home.path / "workers" / "code"]
    if not agent_is_alive(home.path):
        folders.append(home.code)
        for path in _entries(home.incoming):
            yield _found("received blob", path, why="no launch is under way")
    for folder in folders:
        for path in _folders(folder):
            if path.name not in needed.code and is_file_digest(path.name.partition(".")[0]):
                yield _found("unpacked code", path, why="no experiment that goes on runs it")


# ── of nodes that joined ────────────────────────────────────────────────────────────────────────
def _received(home: Path, needed: Needed) -> Iterator[Garbage]:
    """Logs and checkpoints that they have sent; where those of another database may be among them, all stay."""
    if lineages_of(home) != {needed.lineage}:
        return
    for area in (CHECKPOINTS, LOGS):
        for path in _folders(home / RECEIVED / area):
            if path.name not in needed.experiments:
                yield _found(f"received {area}", path, why=f"experiment {path.name} was deleted")


# ── helpers ─────────────────────────────────────────────────────────────────────────────────────
def _entries(folder: Path) -> list[Path]:
    return list(matching(folder, "*"))


def _folders(folder: Path) -> list[Path]:
    return [path for path in _entries(folder) if path.is_dir() and not path.is_symlink()]


def _found(what: str, path: Path, *, why: str) -> Garbage:
    return Garbage(what=what, where=str(path), size=_size(path), why=why, path=path)


def _size(path: Path) -> int:
    """Of the files themselves, those that are there; several names of one file count once."""
    seen: dict[int, int] = {}
    waiting = [path]
    while waiting:
        with suppress(OSError):
            file = waiting.pop()
            status = file.lstat()
            if stat.S_ISDIR(status.st_mode):
                waiting += file.iterdir()
            if file != path or not stat.S_ISDIR(status.st_mode):
                seen[status.st_ino] = status.st_size
    return sum(seen.values())

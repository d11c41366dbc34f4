"""Laying out checkpoints for a script to restore from: found on this machine, or fetched, and verified."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from trials.agent.home import Home, plain_name
from trials.agent.moving.blobs import BlobMissingError, BlobReceiver
from trials.agent.threads import apart
from trials.checkpoints.verified_files import damaged_part, digest_of, file_name
from trials.files import to_json, write_atomically
from trials.stores import StoreError, clear, fetch, is_url, matching
from trials.wire.files import FILE_RESTORE, FOLDER_CHECKPOINTS
from trials.wire.launch import CheckpointRef
from trials.wire.paths import path_fault

# By where it goes: what several trials of a node want is fetched by one after the other, so once.
_fetching: WeakValueDictionary[Path, asyncio.Lock] = WeakValueDictionary()
IN_HOME = ("nodes/checkpoints", "checkpoints")  # where large ones are kept that are in no store
logger = logging.getLogger(__name__)


async def lay_out(
    home: Home, target: Path, references: Sequence[CheckpointRef], blobs: BlobReceiver, *, error: str | None = None
) -> None:
    """FILE_RESTORE in the folder ``target``, listing those that are there in the order given.

    One that verifies is enough; further ones are listed only where they cost nothing. Those that should be there and
    are not are listed with their problem, and whether their bytes were damaged. ``error`` is passed on to the script.
    """
    target.mkdir(exist_ok=True)
    with blobs.holding(*(reference.digest for reference in references)):
        entries = await _entries(home, target, references, blobs)
    listing = {"checkpoints": entries} | ({} if error is None else {"error": error})
    write_atomically(str(target / FILE_RESTORE), to_json(listing))


async def _entries(
    home: Home, target: Path, references: Sequence[CheckpointRef], blobs: BlobReceiver
) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    for reference in references:
        found = await apart(_local, home, target.parent, reference)
        if found.path is None and not any("problem" not in entry for entry in entries):
            found = await _fetched(home, blobs, reference, found)
        entry: dict[str, Any] = {"digest": reference.digest, "step": reference.step}
        if found.path is None:
            logger.warning("checkpoint_missing", extra={"digest": reference.digest, "problem": found.problem})
            entries.append(entry | {"file": "", "problem": found.problem, "damaged": found.damaged})
        else:
            name = file_name(reference.step, reference.digest)
            is_passing = found.path.parent == home.incoming
            file = await apart(_placed, found.path, target / name, is_passing=is_passing)
            entries.append(entry | {"file": file})
    return entries


class _Found:
    """A file whose digest verified, or why there is none."""

    def __init__(self, path: Path | None = None, *, problem: str = "", damaged: bool = False) -> None:
        self.path = path
        self.problem = problem
        self.damaged = damaged


def _local(home: Home, attempt: Path, reference: CheckpointRef) -> _Found:
    found = _Found(problem="its file is not on this machine")
    for path in _candidates(home, attempt, reference):
        try:
            if verified(path, reference.digest):
                return _Found(path)
            found = _Found(problem=f"{path.name} is damaged (its digest differs)", damaged=True)
            if path.parent == home.incoming:  # as by a script that has another name of it: else it would be had again
                clear(path)
        except OSError as error:
            found = found if found.damaged else _Found(problem=f"{path.name}: {error.strerror}")
        logger.warning("checkpoint_unusable", extra={"path": path, "problem": found.problem})
    return found


def _candidates(home: Home, attempt: Path, reference: CheckpointRef) -> Iterator[Path]:
    """Every attempt of the experiment on this machine that has saved these bytes, and the place named.

    In this order: a script gets a second name of the file, and what it does to it must not be done to the store.
    """
    experiment = attempt.parent.parent
    yield from sorted(matching(experiment, f"*/*/{FOLDER_CHECKPOINTS}/*-{reference.digest[:12]}.ckpt"))
    if reference.path and not is_url(reference.path):
        yield Path(reference.path)
        for folder in IN_HOME:  # the home may have been moved, or restored somewhere else, since that was written down
            _, is_marked, rest = reference.path.rpartition(f"/{folder}/")
            moved = home.path / folder / rest
            if is_marked and str(moved) != reference.path and path_fault(rest) is None and moved.exists():
                yield moved
    fetched = home.incoming / plain_name(reference.digest, what="digest")
    if fetched.exists():
        yield fetched


async def _fetched(home: Home, blobs: BlobReceiver, reference: CheckpointRef, local: _Found) -> _Found:
    """From the service, or from the checkpoint store where it was put."""
    if reference.path is None:
        try:
            return _Found(await blobs.get(reference.digest))
        except BlobMissingError as error:
            return _Found(problem=f"{local.problem}; {error}", damaged=local.damaged)
    if not is_url(reference.path):
        return local
    target = home.incoming / plain_name(reference.digest, what="digest")
    fetching = _fetching.setdefault(target, asyncio.Lock())
    async with fetching:
        found = await apart(_from_store, reference.path, target, reference.digest)
        if found.path is not None:
            await asyncio.to_thread(blobs.make_room)
    return found


def _from_store(location: str, target: Path, digest: str) -> _Found:
    try:
        with suppress(OSError):
            if verified(target, digest):  # somebody else has waited for it, too, and was first
                return _Found(target)
        fetch(location, target)
        if verified(target, digest):
            return _Found(target)
        with suppress(OSError):  # else it is removed with the oldest
            clear(target)
    except StoreError as error:
        return _Found(problem=str(error))
    except OSError as error:
        return _Found(problem=f"{location}: {error.strerror}")
    return _Found(problem=f"{location} is damaged (its digest differs)", damaged=True)


def verified(path: Path, digest: str) -> bool:
    """Whether the bytes at ``path`` are those of ``digest``; of a folder: its manifest's, and all files' that it names.

    A script looks once more. But only here can another copy be taken where one is damaged.
    """
    if not path.is_dir():
        return digest_of(path) == digest
    return damaged_part(path, digest) is None


def _placed(source: Path, target: Path, *, is_passing: bool) -> str:
    """``is_passing``: the source may be removed at any time, once this is done."""
    for way in (os.link, shutil.copyfile) if is_passing else (os.link,):
        try:
            if source.is_dir():
                target.mkdir(exist_ok=True)
                for path in source.iterdir():
                    _put(path, target / path.name, way)
            else:
                _put(source, target, way)
        except OSError as error:
            logger.debug("checkpoint_not_placed", extra={"path": source, "error": error})
        else:
            return target.name
    return str(source)  # on another file system: used where it is


def _put(source: Path, target: Path, way: Callable[[Path, Path], object]) -> None:
    target.unlink(missing_ok=True)
    way(source, target)

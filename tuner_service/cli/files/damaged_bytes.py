"""Checkpoints whose bytes are not what was saved: those of the database, and those of the checkpoint store."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from trials.stores import FileStore, StoreError
from trials.wire.shards import MANIFEST, MANIFEST_BYTES, digests_in
from tuner_service.domain.errors import StorageError
from tuner_service.domain.trial import Checkpoint
from tuner_service.ports import Queries
from tuner_service.service.moved_home import place_now

BLOCK_BYTES = 8 << 20


def damaged_checkpoints(queries: Queries, *, home: Path) -> Iterator[str]:
    """What is wrong with each, by experiment and trial. One that lies on its node alone is not looked at."""
    for experiment in queries.experiments():
        after = 0
        while trials := queries.trials(experiment.id, after=after):
            after = trials[-1].number
            for trial in trials:
                for checkpoint in queries.checkpoints(experiment.id, trial.number):
                    problem = None if checkpoint.damaged else _problem_of(queries, checkpoint, home)
                    if problem is not None:
                        yield f"checkpoint of step {checkpoint.step} of trial {experiment.id}/{trial.number} {problem}"


def _problem_of(queries: Queries, checkpoint: Checkpoint, home: Path) -> str | None:
    if checkpoint.inline:
        try:
            data = queries.blob(checkpoint.digest)
        except StorageError as error:
            return f"is damaged: {error}"
        same = data is not None and hashlib.sha256(data).hexdigest() == checkpoint.digest
        return None if same else "is damaged in the database; the trial goes on from another one"
    if not checkpoint.location:
        return None
    location = place_now(checkpoint.location, home)
    folder, _, name = location.rpartition("/")
    try:
        same = _is_as_saved(FileStore(folder), name, checkpoint.digest)
    except (StoreError, ValueError, KeyError, TypeError) as error:
        return f"cannot be read: {error}"
    return None if same else f"is damaged ({location}); the trial goes on from another one"


def _is_as_saved(store: FileStore, name: str, digest: str) -> bool:
    parts = store.sizes(name)
    if not parts:
        return _digest(store, name) == digest
    data = store.read(f"{name}/{MANIFEST}", length=MANIFEST_BYTES)
    if hashlib.sha256(data).hexdigest() != digest:
        return False
    digests = digests_in(data)
    if digests is None:
        raise ValueError(f"its {MANIFEST} names no files")
    return all("/" not in part and _digest(store, f"{name}/{part}") == said for part, said in digests.items())


def _digest(store: FileStore, name: str) -> str:
    digest = hashlib.sha256()
    with store.opened(name) as file:
        while block := file.read(BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()

"""Where a trial's checkpoints are kept, and which of them it goes on from.

Their bytes: ``file_format.py``. Writing and verifying files: ``verified_files.py``. Those of several processes
together: ``shards.py``.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from trials.checkpoints.file_format import Image
from trials.checkpoints.verified_files import (
    Problem,
    problem_of,
    remove_checkpoint,
    replace_file,
    when_there_is_room,
    write_image,
)
from trials.wire.files import FILE_RESTORE, FOLDER_CHECKPOINTS, FOLDER_RESTORE
from trials.wire.records import CheckpointRecord

ALONE_KEPT = 3  # checkpoints a script that runs alone keeps
Entry = dict[str, Any]  # {"file", "digest", "step"} of one that may be restored


class CheckpointStore(Protocol):
    """Where checkpoints of this trial are kept."""

    def write(self, image: Image) -> CheckpointRecord:
        """The file is complete and on the disk when this returns. Called in a thread of its own."""
        ...

    def write_sharded(
        self, state: Any, *, step: int, index: int, before: Callable[[], None]
    ) -> CheckpointRecord | None:
        """Called on every rank with its part; the record is for rank 0. All is on the disk when this returns.

        ``before``: what this rank has to do first; where that fails on one rank, it has failed on all.
        """
        ...

    def entries(self) -> list[Entry]:
        """Those it may go on from, newest first, each with an absolute path in ``file``."""
        ...


class AttemptCheckpoints:
    """Of an attempt: saved beside its spool, restored from what the agent laid out. Only the agent deletes any."""

    def __init__(self, attempt: Path, *, is_apart: bool = False) -> None:
        """``is_apart``: ranks of other nodes have folders of their own."""
        self._is_apart = is_apart
        self._folder = attempt / FOLDER_CHECKPOINTS
        self._restore = attempt / FOLDER_RESTORE

    def write(self, image: Image) -> CheckpointRecord:
        when_there_is_room(lambda: self._folder.mkdir(mode=0o700, exist_ok=True))
        return when_there_is_room(lambda: write_image(self._folder, image))

    def write_sharded(
        self, state: Any, *, step: int, index: int, before: Callable[[], None]
    ) -> CheckpointRecord | None:
        from trials.checkpoints.shards import save_sharded

        return save_sharded(self._folder, state, step=step, index=index, is_apart=self._is_apart, before=before)

    def entries(self) -> list[Entry]:
        return listed(self._restore)


class AloneCheckpoints:
    """Of a script that runs alone: the newest few of these parameters. Those of others, which the script has in the
    same folder, it may have at the same time: they are left alone."""

    def __init__(self, folder: Path, parameters: Mapping[str, Any]) -> None:
        self._folder = folder
        self._parameters = json.loads(json.dumps(dict(parameters), default=repr))

    def write(self, image: Image) -> CheckpointRecord:
        self._folder.mkdir(exist_ok=True)
        return self._list(write_image(self._folder, image))

    def write_sharded(
        self, state: Any, *, step: int, index: int, before: Callable[[], None]
    ) -> CheckpointRecord | None:
        from trials.checkpoints.shards import save_sharded

        record = save_sharded(self._folder, state, step=step, index=index, before=before)
        return None if record is None else self._list(record)

    def _list(self, record: CheckpointRecord) -> CheckpointRecord:
        entry = {"file": record.name, "digest": record.digest, "step": record.step, "parameters": self._parameters}
        with self._list_held():
            entries = [entry, *(e for e in _read_list(self._folder) if not self._is_own(e) or e["file"] != record.name)]
            old = [e for e in entries if self._is_own(e)][ALONE_KEPT:]
            kept = [e for e in entries if e not in old]
            replace_file(self._folder / FILE_RESTORE, json.dumps({"checkpoints": kept}).encode())
            for name in {e["file"] for e in old} - {e["file"] for e in kept}:
                remove_checkpoint(self._folder / name)
        return record

    def _is_own(self, entry: Entry) -> bool:
        return bool(entry.get("parameters") == self._parameters)

    @contextmanager
    def _list_held(self) -> Iterator[None]:
        """Nobody else changes the list meanwhile, where the file system has locks."""
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with suppress(OSError):
                fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)

    def entries(self) -> list[Entry]:
        found = list(filter(self._is_own, listed(self._folder)))
        if found:
            step = found[0]["step"]
            sys.stderr.write(f"continuing after step {step} from {self._folder}; remove that folder to begin anew\n")
        return found


# ── reading ─────────────────────────────────────────────────────────────────────────────────────
def first_intact(entries: list[Entry], *, on_damaged: Callable[[Entry], None]) -> Entry | None:
    """The first whose digest verifies. Others are told on standard error; damaged files are set aside."""
    for entry in entries:
        problem = _problem_of(entry)
        if problem is None:
            return entry
        sys.stderr.write(f"checkpoint of step {entry['step']} is not used: {problem.text}\n")
        if problem.damaged:
            on_damaged(entry)
    if entries:
        sys.stderr.write("no checkpoint is intact: the trial begins anew\n")
    return None


def _problem_of(entry: Entry) -> Problem | None:
    if "problem" in entry:  # the agent has found it out
        return Problem(text=entry["problem"], damaged=entry.get("damaged", False))
    return problem_of(Path(entry["file"]), entry["digest"])


def listed(folder: Path) -> list[Entry]:
    """What FILE_RESTORE in ``folder`` lists, with absolute paths; nothing where there is no such file."""
    return [{**entry, "file": str(folder / entry["file"])} for entry in _read_list(folder)]


def _read_list(folder: Path) -> list[Entry]:
    """ValueError names a list that is damaged."""
    path = folder / FILE_RESTORE
    try:
        entries = json.loads(path.read_bytes())["checkpoints"]
        return [entry for entry in entries if {"file", "digest", "step"} <= entry.keys()]
    except FileNotFoundError:
        return []
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"{path}, which lists the checkpoints, is damaged ({error!r:.100}); remove it to begin anew"
        ) from error

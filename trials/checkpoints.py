"""Saving and restoring what a trial needs to continue.

A checkpoint file is a line ``trials-checkpoint 1``, a line of JSON (encoding, step, index of the parameters where it
is not 0, states of the random generators), and the state: as JSON, as bytes, or as torch writes it. Nothing in it can
execute code when it is read.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeVar

from trials import generators, torch_states
from trials.protocol import FILE_RESTORE, FOLDER_CHECKPOINTS, FOLDER_RESTORE, CheckpointRecord
from trials.spool_writer import FULL_DISK_PAUSE_S, FULL_DISK_TIMEOUT_S

MAGIC = b"trials-checkpoint 1\n"
HEADER_LIMIT_BYTES = 16 << 20
ALONE_KEPT = 3  # checkpoints a script that runs alone keeps
_HASH_BYTES = 1 << 20
Done = TypeVar("Done")
_JSON_SCALARS = (str, int, float, bool, type(None))


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    step: int
    state: Any
    index: int = 0  # of the parameters it was saved under


class CheckpointStore(Protocol):
    """Where checkpoints of this trial are kept."""

    def save(self, state: Any, step: int, *, index: int = 0) -> CheckpointRecord:
        """The file is complete and on the disk when this returns."""
        ...

    def restore(self) -> Restored | None:
        """The newest whose digest verifies; a damaged one is set aside."""
        ...


class AttemptCheckpoints:
    """Of an attempt: saved beside its spool, restored from what the agent laid out. Only the agent deletes any."""

    def __init__(self, attempt: Path) -> None:
        self._folder = attempt / FOLDER_CHECKPOINTS
        self._restore = attempt / FOLDER_RESTORE

    def save(self, state: Any, step: int, *, index: int = 0) -> CheckpointRecord:
        _when_there_is_room(lambda: self._folder.mkdir(exist_ok=True))
        return _when_there_is_room(lambda: write_checkpoint(self._folder, state, step, index=index))

    def restore(self) -> Restored | None:
        return _first_that_verifies(self._restore, _listed(self._restore))


class AloneCheckpoints:
    """Of a script that runs alone: the newest few, for the same parameters only."""

    def __init__(self, folder: Path, parameters: Mapping[str, Any]) -> None:
        self._folder = folder
        self._parameters = json.loads(json.dumps(dict(parameters), default=repr))

    def save(self, state: Any, step: int, *, index: int = 0) -> CheckpointRecord:
        self._folder.mkdir(exist_ok=True)
        record = write_checkpoint(self._folder, state, step, index=index)
        entry = {"file": record.name, "digest": record.digest, "step": step, "parameters": self._parameters}
        entries = [entry, *(e for e in _listed(self._folder) if e["file"] != record.name)]
        _replace(self._folder / FILE_RESTORE, json.dumps({"checkpoints": entries[:ALONE_KEPT]}).encode())
        for old in entries[ALONE_KEPT:]:
            (self._folder / old["file"]).unlink(missing_ok=True)
        return record

    def restore(self) -> Restored | None:
        entries = [e for e in _listed(self._folder) if e.get("parameters") == self._parameters]
        found = _first_that_verifies(self._folder, entries)
        if found is not None:
            sys.stderr.write(
                f"continuing after step {found.step} from {self._folder}; remove that folder to begin anew\n"
            )
        return found


# ── writing ─────────────────────────────────────────────────────────────────────────────────────
def write_checkpoint(folder: Path, state: Any, step: int, *, index: int = 0) -> CheckpointRecord:
    """Temporary file, fsync, rename, fsync of the folder. The name holds the digest, so no file is ever replaced."""
    temporary = folder / f".{os.getpid()}.tmp"
    try:
        with temporary.open("wb") as file:
            hashing = _HashingFile(file)
            _serialise(hashing, state, {"step": step} | ({"index": index} if index else {}))
            file.flush()
            _require_loadable(temporary)
            os.fsync(file.fileno())
        digest = hashing.digest.hexdigest()
        name = f"{step:09d}-{digest[:12]}.ckpt"
        temporary.replace(folder / name)
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(folder)
    return CheckpointRecord(step=step, name=name, digest=digest, size=hashing.size, at=time.time())


def _when_there_is_room(work: Callable[[], Done], *, pause: Callable[[float], None] = time.sleep) -> Done:
    """A full disk is waited for, as report() waits; the disk's OSError after FULL_DISK_TIMEOUT_S."""
    deadline = 0.0
    while True:
        try:
            return work()
        except OSError as error:
            if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
                raise
            if not deadline:
                deadline = time.monotonic() + FULL_DISK_TIMEOUT_S
                sys.stderr.write("save_checkpoint() waits: the disk is full\n")
            if time.monotonic() > deadline:
                raise
        pause(FULL_DISK_PAUSE_S)


def _serialise(file: _HashingFile, state: Any, place: dict[str, int]) -> None:
    encoding = encoding_of(state)
    header = {"encoding": encoding, **place, "generators": generators.capture()}
    file.write(MAGIC)
    file.write(json.dumps(header, separators=(",", ":")).encode() + b"\n")
    if encoding == "torch":
        torch_states.save(state, file)
    elif encoding == "bytes":
        file.write(state)
    else:
        file.write(json.dumps(state, separators=(",", ":")).encode())


def _require_loadable(path: Path) -> None:
    """Found out while the state is still at hand, not when a trial is to go on from it."""
    with path.open("rb") as file:
        header = _read_header(file)
        if header["encoding"] == "torch":
            torch_states.require_loadable(file)


def encoding_of(state: Any) -> str:
    """How ``state`` is written; TypeError when there is no way that reads back exactly the same."""
    if isinstance(state, bytes):
        return "bytes"
    if "torch" in sys.modules:
        return "torch"
    culprit = _not_json(state, "state")
    if culprit is None:
        return "json"
    raise TypeError(
        f"{culprit} cannot be saved as JSON and read back the same; use dicts with text keys, lists, numbers, text "
        "and None (array.tolist() for an array), or pass bytes that the script makes itself, or import torch"
    )


def _not_json(value: Any, where: str) -> str | None:
    """The first place JSON would change, such as a tuple or a key that is a number."""
    if type(value) is dict:
        for key, item in value.items():
            if type(key) is not str:
                return f"the key {key!r} of {where}"
            if culprit := _not_json(item, f"{where}[{key!r}]"):
                return culprit
        return None
    if type(value) is list:
        return next((c for i, item in enumerate(value) if (c := _not_json(item, f"{where}[{i}]"))), None)
    return None if type(value) in _JSON_SCALARS else f"{where}, a {type(value).__name__},"


class _HashingFile(io.RawIOBase):
    """Passes on what is written, and knows its SHA-256: so what the disk made of it later is found out."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.digest = hashlib.sha256()
        self.size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self.digest.update(data)
        written = self._file.write(data)
        self.size += written
        return written


# ── reading ─────────────────────────────────────────────────────────────────────────────────────
def _first_that_verifies(folder: Path, entries: list[dict[str, Any]]) -> Restored | None:
    for entry in entries:
        path = folder / entry["file"]
        problem = _problem_of(path, entry["digest"])
        if problem is None:
            return read_checkpoint(path)
        sys.stderr.write(f"checkpoint of step {entry['step']} is not used: {problem}\n")
    if entries:
        sys.stderr.write("no checkpoint is intact: the trial begins anew\n")
    return None


def _problem_of(path: Path, digest: str) -> str | None:
    try:
        if digest_of(path) == digest:
            return None
        path.rename(path.with_name(f"{path.name}.corrupt"))
    except OSError as error:
        return f"{path.name}: {error.strerror}"
    return f"{path.name} is damaged (its digest differs); kept as {path.name}.corrupt"


def digest_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_HASH_BYTES):
            digest.update(block)
    return digest.hexdigest()


def read_checkpoint(path: Path) -> Restored:
    """The state in ``path``, whose digest was verified; sets the random generators."""
    with path.open("rb") as file:
        header = _read_header(file)
        if header["encoding"] == "torch":
            state = torch_states.load(file)
        elif header["encoding"] == "bytes":
            state = file.read()
        else:
            state = json.loads(file.read())
    generators.put_back(header["generators"])
    return Restored(step=header["step"], state=state, index=header.get("index", 0))


def _read_header(file: BinaryIO) -> dict[str, Any]:
    if file.readline(len(MAGIC)) != MAGIC:
        raise ValueError("this is no checkpoint of this version: it begins differently")
    header: dict[str, Any] = json.loads(file.readline(HEADER_LIMIT_BYTES))
    return header


def _listed(folder: Path) -> list[dict[str, Any]]:
    try:
        listed = json.loads((folder / FILE_RESTORE).read_bytes())["checkpoints"]
    except FileNotFoundError:
        return []
    return [entry for entry in listed if {"file", "digest", "step"} <= entry.keys()]


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""Checkpoint files: written atomically, so that there is a whole one or none; believed only if the digest matches."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from trials.checkpoints.file_format import BLOCK_BYTES, Image
from trials.files import BY_UMASK, draft_of, is_full_disk, put_in_place, write_atomically
from trials.reports.spool_writer import FULL_DISK_PAUSE_S, FULL_DISK_TIMEOUT_S
from trials.stores import opened_file
from trials.wire.records import CheckpointRecord
from trials.wire.shards import MANIFEST, MANIFEST_BYTES, digests_in

DIRECT_FROM_BYTES = 4 << 20  # smaller files go through the page cache
_WRITE_BYTES = 8 << 20
_HASH_BYTES = 1 << 20
Done = TypeVar("Done")


def write_image(folder: Path, image: Image) -> CheckpointRecord:
    """A whole file or none, also after a power loss. The name holds the digest, so no file is ever replaced."""
    draft = Path(draft_of(f"{folder}/{image.step:09d}"))
    try:
        digest = _write(draft, image)
        name = file_name(image.step, digest)
        put_in_place(str(draft), f"{folder}/{name}")
    finally:
        draft.unlink(missing_ok=True)
    return CheckpointRecord(step=image.step, name=name, digest=digest, size=image.size, at=now_for(folder / name))


def now_for(path: Path) -> float:
    """Never before ``path`` was written, whatever clock its file system has: a file that has its name and a later time
    was saved again."""
    return max(time.time(), path.stat().st_mtime)


def file_name(step: int, digest: str) -> str:
    return f"{step:09d}-{digest[:12]}.ckpt"


def _write(path: Path, image: Image) -> str:
    """The SHA-256 of what was meant to be written: so what the disk made of it is found out when it is read."""
    digest = hashlib.sha256()
    descriptor = _opened(path, direct=image.size >= DIRECT_FROM_BYTES and image.size % BLOCK_BYTES == 0)
    try:
        for part in image.parts:
            view = memoryview(part)
            for begin in range(0, len(view), _WRITE_BYTES):
                block = view[begin : begin + _WRITE_BYTES]
                digest.update(block)
                _write_all(descriptor, block)
    finally:
        os.close(descriptor)
    return digest.hexdigest()


def _opened(path: Path, *, direct: bool) -> int:
    """``direct``: past the page cache, where the file system can, which costs a tenth of the processor time."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    if direct and hasattr(os, "O_DIRECT"):
        with contextlib.suppress(OSError):  # whatever it was, opening it again says so
            return os.open(path, flags | os.O_DIRECT, 0o644)
    return os.open(path, flags, 0o644)


def _write_all(descriptor: int, view: memoryview) -> None:
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except OSError as error:
            flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
            direct = getattr(os, "O_DIRECT", 0)
            if error.errno != errno.EINVAL or not flags & direct:
                raise
            # EINVAL under O_DIRECT: this file system wants another alignment, so the rest goes through the page cache.
            fcntl.fcntl(descriptor, fcntl.F_SETFL, flags & ~direct)


def when_there_is_room(work: Callable[[], Done], *, pause: Callable[[float], None] = time.sleep) -> Done:
    """A full disk is waited for, as report() waits; the disk's OSError after FULL_DISK_TIMEOUT_S."""
    deadline = 0.0
    while True:
        try:
            return work()
        except OSError as error:
            if not is_full_disk(error):
                raise
            if not deadline:
                deadline = time.monotonic() + FULL_DISK_TIMEOUT_S
                sys.stderr.write("save_checkpoint() waits: the disk is full\n")
            if time.monotonic() > deadline:
                raise
        pause(FULL_DISK_PAUSE_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Why a checkpoint is not used; ``damaged``: its bytes are others than were saved."""

    text: str
    damaged: bool


def problem_of(path: Path, digest: str) -> Problem | None:
    """None when ``path`` holds what was saved. What does not is renamed to ``.corrupt``."""
    try:
        damaged = damaged_part(path, digest) if path.is_dir() else _damaged_file(path, digest)
        if damaged is None:
            return None
        path.rename(path.with_name(f"{path.name}.corrupt"))
    except OSError as error:
        return Problem(text=f"{path.name}: {error.strerror}", damaged=False)
    return Problem(text=f"{damaged} is damaged (its digest differs); kept as {path.name}.corrupt", damaged=True)


def _damaged_file(path: Path, digest: str) -> str | None:
    return None if digest_of(path) == digest else path.name


def damaged_part(path: Path, digest: str) -> str | None:
    """Of a checkpoint that is a folder: the first file that is not as its manifest says, or the manifest itself."""
    data = manifest_of(path)
    files = digests_in(data) if hashlib.sha256(data).hexdigest() == digest else None
    if files is None:
        return f"{path.name}/{MANIFEST}"
    for name, digest_of_part in files.items():
        part = path / name
        # Path traversal: a name with a folder in it is none that was saved.
        if name != part.name or not part.is_file() or digest_of(part) != digest_of_part:
            return f"{path.name}/{name}"
    return None


def digest_of(path: Path) -> str:
    """SHA-256, in hex, of a plain file. OSError for anything else: of a pipe or a device there would be no end."""
    digest = hashlib.sha256()
    with opened_file(path) as file:
        while block := file.read(_HASH_BYTES):
            digest.update(block)
    return digest.hexdigest()


def manifest_of(path: Path) -> bytes:
    """Of a checkpoint that is a folder."""
    with opened_file(path / MANIFEST) as file:
        data = file.read(MANIFEST_BYTES + 1)
    if len(data) > MANIFEST_BYTES:
        raise OSError(errno.EFBIG, f"it has more than {MANIFEST_BYTES} bytes", str(path / MANIFEST))
    return data


def remove_checkpoint(path: Path) -> None:
    """A file, or a folder of files; nothing is done where there is none."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def replace_file(path: Path, data: bytes) -> None:
    """In one step, and on the disk when this returns. A script makes it, so the script's umask says who may read it."""
    write_atomically(str(path), data, durable=True, access=BY_UMASK)

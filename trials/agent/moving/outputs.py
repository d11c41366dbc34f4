"""What a trial left in its output folder, on its way to be an asset: before its end is told, or at a checkpoint.

The files are copied into the folder in which the service takes assets in, each under its digest, the manifest last;
the service then commits them, and says so. Whatever is killed in between, the next agent or service does it all again:
what is staged already is not copied twice, and the same files give the same asset.

What a trial left may be anything: links, pipes, a folder in a folder in a folder; a file may change while it is read.
Plain files are taken, what else there is is named, and the output is then not complete.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import secrets
import shutil
import stat
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic

from trials.agent.attempts import HeldAttempt
from trials.agent.moving.joined import send_staged
from trials.agent.moving.storing import StoreHangsError, StoreThreads
from trials.agent.threads import apart
from trials.files import ATTEMPT_BYTES, is_full_disk, open_file, read_json, to_json, write_all, write_atomically
from trials.stores import BrokenOffError, FileStore
from trials.wire.files import FILE_ATTEMPT, FILE_OUTPUT, FOLDER_WORK
from trials.wire.launch import KeepOutputs
from trials.wire.limits import OUTPUT_BYTES_LIMIT, OUTPUT_FILES_LIMIT
from trials.wire.manifests import PIECE_BYTES, AssetFile, digest_of_pieces, pieces_of, write_manifest
from trials.wire.messages import Message
from trials.wire.outputs import OutputOffered, OutputStored
from trials.wire.paths import path_fault
from trials.wire.records import ExitCause, ExitRecord

STORE_TIMEOUT_S = 600.0  # a commit moves files, and may send them to a store behind a URL
OFFER_ATTEMPTS = 5  # then the trial's end is told without its output, which says why
OUTPUT_WAIT_S = 3_600.0  # so long it is tried at an end, where a disk is full or a store out of reach
PAUSE_S, PAUSE_MAX_S = 2.0, 300.0  # before the next of them, which reads all files again; twice as long each time
READ_ATTEMPTS = 3  # of a file that changes while it is read
READ_BYTES = 1 << 20
NAMED = 5  # of what was left out
DRAFT = "draft-"  # as the service calls what is not whole yet
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Trouble:
    text: str
    may_pass: bool = False


@dataclass(slots=True)
class Staged:
    """``pieces`` of the manifest; ``left_out``: what is missing, in words."""

    size: int
    pieces: tuple[str, ...]
    files: int
    bytes: int
    left_out: list[str]

    @property
    def message(self) -> str:
        more = f" and {len(self.left_out) - NAMED} more" if len(self.left_out) > NAMED else ""
        return "; ".join(self.left_out[:NAMED]) + more


class OutputsCollector:
    """On one connection."""

    def __init__(self, *, send: Callable[[Message], Awaitable[None]], threads: StoreThreads) -> None:
        self._send, self._threads = send, threads
        self._waiting: dict[str, asyncio.Future[OutputStored]] = {}
        self.store: FileStore | None = None  # as the service says in its welcome
        self.staging: Path | None = None
        self.is_sent = False  # ``staging`` is a folder of the agent's own, and what is in it goes over the network

    def begin(self, store: FileStore | None, staging: str, *, own: Path | None) -> None:
        """As the service says in its welcome. ``own``: where files are staged that go over the network then."""
        self.store, self.is_sent = store, own is not None
        self.staging = own or (Path(staging) if staging else None)

    async def collect(self, held: HeldAttempt, exit_record: ExitRecord | None, *, step: int | None = None) -> None:
        """What the attempt has left now is an asset of its trial when this returns, as far as that can be done.

        ``exit_record`` None: it runs on, and has saved the checkpoint of ``step``. Repeating it is harmless.
        """
        settings = await asyncio.to_thread(_settings_of, held)
        if settings is None or self.staging is None:
            return
        folder, keep = settings
        is_well = exit_record is not None and exit_record.cause is ExitCause.EXITED and exit_record.code == 0
        if keep is KeepOutputs.END and not is_well:
            return
        done = held.folder / FILE_OUTPUT
        if exit_record is not None and (read_json(str(done)) or {}).get("final"):
            return
        tries, begun = 0, monotonic()
        while (trouble := await self._tried(held, folder, step)) is not None:
            if not os.path.lexists(held.folder):
                return
            tries += 1
            logger.error("output_not_collected", extra={"nonce": held.nonce, "error": trouble.text})
            is_waited_for = trouble.may_pass and exit_record is not None and not held.hurried.is_set()
            is_waited_for = is_waited_for and monotonic() - begun <= OUTPUT_WAIT_S
            if tries >= OFFER_ATTEMPTS and not is_waited_for:
                await self._send(
                    OutputOffered(key=held.key, nonce=held.nonce, size=0, pieces=(), message=trouble.text, step=step)
                )
                if self.is_sent:
                    await asyncio.to_thread(shutil.rmtree, self.staging / held.nonce, ignore_errors=True)
                break
            pause = min(PAUSE_S * 2 ** (tries - 1), PAUSE_MAX_S)
            if is_waited_for:
                with suppress(TimeoutError):
                    await asyncio.wait_for(held.hurried.wait(), pause)
            else:
                await asyncio.sleep(pause)
        if exit_record is not None:
            write_atomically(str(done), to_json({"final": True}))

    async def _tried(self, held: HeldAttempt, folder: Path, step: int | None) -> _Trouble | None:
        """What hindered it; None where it is an asset now, or there is nothing to keep."""
        try:
            return await self._offer(held, folder, step)
        except TimeoutError:
            return _Trouble("the service did not take it in")
        except OSError as error:
            may_pass = is_full_disk(error) or isinstance(error, BrokenOffError | StoreHangsError)
            return _Trouble(f"its files cannot be kept: {error}", may_pass)

    async def _offer(self, held: HeldAttempt, folder: Path, step: int | None) -> _Trouble | None:
        root = self.staging or folder
        staging = root / (held.nonce if self.is_sent else "")
        staged = await self._threads.run(partial(stage, folder, staging, self.store), root=str(root))
        if staged is None:
            return None
        if self.is_sent:
            await apart(send_staged, staging)
        waiting = self._waiting[held.nonce] = asyncio.get_running_loop().create_future()
        offered = OutputOffered(
            key=held.key,
            nonce=held.nonce,
            size=staged.size,
            pieces=staged.pieces,
            is_complete=not staged.left_out,
            message=staged.message,
            step=step,
        )
        try:
            await self._send(offered)
            async with asyncio.timeout(STORE_TIMEOUT_S):
                answer = await waiting
        finally:
            self._waiting.pop(held.nonce, None)
        return _Trouble(answer.error, answer.may_pass) if answer.error else None

    def stored(self, answer: OutputStored) -> None:
        waiting = self._waiting.get(answer.nonce)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def lose_connection(self) -> None:
        for waiting in self._waiting.values():
            waiting.cancel()


def _settings_of(held: HeldAttempt) -> tuple[Path, KeepOutputs] | None:
    """Its output folder, and when that is kept."""
    spec = (read_json(f"{held.folder}/{FILE_ATTEMPT}", limit=ATTEMPT_BYTES) or {}).get("spec")
    output = spec.get("output") if isinstance(spec, dict) else None
    if not isinstance(spec, dict) or not isinstance(output, str) or path_fault(output):
        return None
    always = spec.get("keep_outputs") == KeepOutputs.ALWAYS
    return held.folder / FOLDER_WORK / output, KeepOutputs.ALWAYS if always else KeepOutputs.END


# ── staging ─────────────────────────────────────────────────────────────────────────────────────
def stage(
    folder: Path, staging: Path, store: FileStore | None, moved: Callable[[], None] = lambda: None
) -> Staged | None:
    """Copy what is not there yet, and then the manifest; None where there is nothing in the folder. Blocking.

    ``moved`` is called whenever bytes have moved.
    """
    left_out: list[str] = []
    files: list[AssetFile] = []
    total = 0
    staging.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path, problem in _plain_files(folder):
        if problem:
            left_out.append(f"{path}: {problem}")
            continue
        if len(files) >= OUTPUT_FILES_LIMIT:
            left_out.append(f"it has more than {OUTPUT_FILES_LIMIT} files")
            break
        try:
            file = _copied(folder, path, staging, store, room=OUTPUT_BYTES_LIMIT - total, moved=moved)
        except _LeftOutError as error:
            left_out.append(f"{path}: {error}")
            continue
        files.append(file)
        total += file.size
    if not files and not left_out:
        return None
    manifest = write_manifest(files)
    pieces = pieces_of(manifest)
    draft = staging / f"{DRAFT}{secrets.token_hex(8)}"
    try:
        draft.write_bytes(manifest)
        draft.replace(staging / digest_of_pieces(pieces))
    finally:
        draft.unlink(missing_ok=True)
    return Staged(size=len(manifest), pieces=pieces, files=len(files), bytes=total, left_out=left_out)


class _LeftOutError(Exception):
    """A file is not kept; the text says why."""


def _plain_files(root: Path) -> Iterator[tuple[str, str]]:
    """Paths below ``root``, each with why it is left out, or "". Links are looked at and never followed."""
    waiting = [""]
    try:
        if not stat.S_ISDIR(root.lstat().st_mode):
            yield ".", "the output folder is none but a link or a file"
            return
    except OSError:
        return  # the script made none
    while waiting:
        place = waiting.pop()
        try:
            with os.scandir(root / place) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            yield place or ".", f"cannot be read: {error.strerror}"
            continue
        for entry in found:
            path = f"{place}/{entry.name}" if place else entry.name
            if (fault := path_fault(path)) is not None:
                yield repr(path)[:200], fault
            elif entry.is_dir(follow_symlinks=False):
                waiting.append(path)
            else:
                yield path, "" if entry.is_file(follow_symlinks=False) else "is no plain file"


def _copied(  # noqa: PLR0913  # from where to where, and how
    folder: Path, path: str, staging: Path, store: FileStore | None, *, room: int, moved: Callable[[], None]
) -> AssetFile:
    """In the staging folder, or known to be in the store; as one state of the file that it had all at once."""
    for _ in range(READ_ATTEMPTS):
        draft = staging / f"{DRAFT}{secrets.token_hex(8)}"
        try:
            descriptor = open_file(str(folder / path))
        except OSError as error:
            raise _LeftOutError(f"cannot be read: {error.strerror}") from error
        try:
            before = os.fstat(descriptor)
            if before.st_size > room:
                raise _LeftOutError(f"with its {before.st_size} bytes the output has more than {OUTPUT_BYTES_LIMIT}")
            size, pieces = _read_into(descriptor, draft, limit=before.st_size, moved=moved)
            after = os.fstat(descriptor)
            if (size, before.st_mtime_ns, before.st_size) != (before.st_size, after.st_mtime_ns, after.st_size):
                continue
            executable = bool(before.st_mode & stat.S_IXUSR)
            file = AssetFile(path=path, size=size, executable=executable, pieces=pieces)
            if not _is_known(file, staging, store):
                draft.chmod(0o400)
                draft.replace(staging / file.digest)
            return file
        finally:
            os.close(descriptor)
            draft.unlink(missing_ok=True)
    raise _LeftOutError(f"changed while it was read, {READ_ATTEMPTS} times")


def _read_into(descriptor: int, draft: Path, *, limit: int, moved: Callable[[], None]) -> tuple[int, tuple[str, ...]]:
    """How many bytes were read, one more than ``limit`` at most, and the digests of their pieces."""
    writing = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    pieces: list[str] = []
    size = 0
    try:
        piece = hashlib.sha256()
        while block := os.read(descriptor, min(READ_BYTES, PIECE_BYTES - size % PIECE_BYTES)):
            write_all(writing, block)
            moved()
            piece.update(block)
            size += len(block)
            if size % PIECE_BYTES == 0:
                pieces.append(piece.hexdigest())
                piece = hashlib.sha256()
            if size > limit:
                break
        if size % PIECE_BYTES or not pieces:
            pieces.append(piece.hexdigest())
    finally:
        os.close(writing)
    return size, tuple(pieces)


def _is_known(file: AssetFile, staging: Path, store: FileStore | None) -> bool:
    try:
        if (staging / file.digest).stat().st_size == file.size:
            return True
    except FileNotFoundError:
        pass
    # Only of a folder: to ask a store behind a URL of each file would take longer than to copy it.
    if store is None or store.folder is None:
        return False
    return store.size(f"files/{file.digest[:2]}/{file.digest}") == file.size

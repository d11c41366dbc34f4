"""Preparing an attempt's folder, and starting its supervisor."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import trials
from trials.agent import supervisor
from trials.agent.blobs import BlobMissingError, BlobReceiver, unpack_code
from trials.agent.files import is_full_disk, to_json, write_atomically
from trials.agent.home import Home
from trials.checkpoints import digest_of
from trials.protocol import (
    FILE_ATTEMPT,
    FILE_FURTHER_PARAMETERS,
    FILE_PARAMETERS,
    FILE_RESTORE,
    FOLDER_CHECKPOINTS,
    FOLDER_RESTORE,
    FOLDER_WORK,
    CheckpointRef,
    Launch,
    to_plain,
    wake_socket_path,
)

SUPERVISOR_LOG = "supervisor.log"
_NNI_FOLDER = Path(trials.__file__).parent / "compat" / "nni"
logger = logging.getLogger(__name__)


class NoRoomError(Exception):
    """The disk is full: the service repeats the launch, and then there may be room."""


class CannotLaunchError(Exception):
    """The attempt cannot be prepared, now or later; the text says why."""


async def prepare(home: Home, launch: Launch, blobs: BlobReceiver) -> Path:
    """The attempt's folder, complete. Repeating it is harmless; a folder that is complete is left as it is.

    CannotLaunchError when it never can be; ConnectionLostError and NoRoomError when the service is to ask again.
    """
    folder = home.attempt_folder(launch.key, launch.nonce)
    if not (folder / FILE_ATTEMPT).exists():
        folder.mkdir(parents=True, exist_ok=True)
        try:
            await _prepare_work(home, launch, blobs, folder)
            await _prepare_restore(launch, blobs, folder)
            _write_attempt(home, launch, folder)
        except (BlobMissingError, tarfile.TarError, EOFError) as error:
            raise CannotLaunchError(f"the code of the experiment cannot be unpacked: {error}") from error
        except ConnectionError:
            raise
        except OSError as error:
            if is_full_disk(error):
                raise NoRoomError(str(error)) from error
            raise CannotLaunchError(f"the folder of the attempt cannot be prepared: {error}") from error
    home.put_live(launch.nonce, folder)
    return folder


# Not in a thread: launches at the same time would make the same link.
def _write_attempt(home: Home, launch: Launch, folder: Path) -> None:
    write_atomically(str(folder / FILE_PARAMETERS), to_json(launch.spec.parameters))
    for index, parameters in enumerate(launch.spec.further_parameters, start=1):
        give_parameters(folder, index, parameters)
    paths = [str(sdk_folder(home))]
    if launch.spec.compat == "nni":
        paths.append(str(_NNI_FOLDER))
    local = {"python": sys.executable, "wake": str(wake_socket_path(home.path)), "paths": paths}
    attempt: dict[str, Any] = {"kind": launch.kind, **to_plain(launch), "local": local}
    write_atomically(str(folder / FILE_ATTEMPT), to_json(attempt), durable=True)


def give_parameters(folder: Path, index: int, parameters: dict[str, Any] | None) -> None:
    """Further parameters, for the script that waits for them or will ask."""
    write_atomically(str(folder / FILE_FURTHER_PARAMETERS.format(index=index)), to_json({"parameters": parameters}))


def sdk_folder(home: Home) -> Path:
    """A folder with ``trials`` and nothing else, for the path of any interpreter."""
    folder = home.agent / "path"
    link = folder / "trials"
    package = Path(trials.__file__).parent
    if not link.is_symlink() or link.readlink() != package:
        folder.mkdir(exist_ok=True)
        temporary = folder / ".trials.tmp"
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(package)
        temporary.replace(link)
    return folder


# ── the working directory ───────────────────────────────────────────────────────────────────────
async def _prepare_work(home: Home, launch: Launch, blobs: BlobReceiver, folder: Path) -> None:
    work, partial = folder / FOLDER_WORK, folder / f"{FOLDER_WORK}.part"
    if work.exists():
        return
    shutil.rmtree(partial, ignore_errors=True)
    digest = launch.spec.code_digest
    if digest is None:
        partial.mkdir()
    else:
        source = home.code / digest
        if not source.is_dir():
            source = await asyncio.to_thread(unpack_code, home, await blobs.get(digest), digest)
        await asyncio.to_thread(shutil.copytree, source, partial, symlinks=True)
    partial.replace(work)


# ── checkpoints to go on from ───────────────────────────────────────────────────────────────────
async def _prepare_restore(launch: Launch, blobs: BlobReceiver, folder: Path) -> None:
    target = folder / FOLDER_RESTORE
    target.mkdir(exist_ok=True)
    entries: list[dict[str, Any]] = []
    for reference in launch.spec.checkpoints:
        source = await asyncio.to_thread(_local_file, folder, reference)
        # One that verifies is enough; further ones only where they cost nothing.
        if source is None and reference.path is None and not entries:
            source = await _fetched(blobs, reference)
        if source is None:
            logger.warning("event=checkpoint_missing nonce=%s digest=%s", launch.nonce, reference.digest)
            continue
        name = f"{reference.step:09d}-{reference.digest[:12]}.ckpt"
        entries.append({"file": _placed(source, target / name), "digest": reference.digest, "step": reference.step})
    write_atomically(str(target / FILE_RESTORE), to_json({"checkpoints": entries}))


def _local_file(folder: Path, reference: CheckpointRef) -> Path | None:
    """The file on this machine that has the digest: the one named, or one of an earlier attempt of the trial."""
    earlier = folder.parent.glob(f"*/{FOLDER_CHECKPOINTS}/*-{reference.digest[:12]}.ckpt")
    for path in ([Path(reference.path)] if reference.path else []) + sorted(earlier):
        try:
            if digest_of(path) == reference.digest:
                return path
            logger.warning("event=checkpoint_damaged path=%s", path)
        except OSError as error:
            logger.warning("event=checkpoint_unreadable path=%s error=%s", path, error)
    return None


async def _fetched(blobs: BlobReceiver, reference: CheckpointRef) -> Path | None:
    try:
        return await blobs.get(reference.digest)
    except BlobMissingError as error:
        logger.warning("event=checkpoint_missing digest=%s error=%s", reference.digest, error)
        return None


def _placed(source: Path, target: Path) -> str:
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        return str(source)  # on another file system: used where it is
    return target.name


# ── the supervisor ──────────────────────────────────────────────────────────────────────────────
def spawn_supervisor(folder: Path, *, why: str = "") -> subprocess.Popen[bytes]:
    """Start one for the attempt in ``folder``, which is not forked because of ``why``.

    Of several, the first that claims the nonce goes on.
    """
    with (folder / SUPERVISOR_LOG).open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", supervisor.__file__, str(folder), *filter(None, [why])],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
        )

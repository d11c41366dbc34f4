"""Preparing an attempt's folder, and starting its supervisor."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import subprocess
import sys
import tarfile
from itertools import islice
from pathlib import Path
from typing import Any

import trials
from trials.agent import supervisor
from trials.agent.blobs import BlobMissingError, BlobReceiver, unpack_code
from trials.agent.files import is_full_disk, read_json, to_json, write_atomically
from trials.agent.home import Home
from trials.agent.restoring import lay_out
from trials.protocol import (
    FILE_ATTEMPT,
    FILE_FURTHER_PARAMETERS,
    FILE_PARAMETERS,
    FOLDER_RESTORE,
    FOLDER_WORK,
    Launch,
    to_plain,
    wake_socket_path,
)

COPIED_AT_ONCE_FILES = 8  # code of more files, or of larger ones, is copied in a thread
COPIED_AT_ONCE_BYTES = 64 << 10
SUPERVISOR_LOG = "supervisor.log"
_NNI_FOLDER = Path(trials.__file__).parent / "compat" / "nni"
logger = logging.getLogger(__name__)


class NoRoomError(Exception):
    """The disk is full: the service repeats the launch, and then there may be room."""


class CannotLaunchError(Exception):
    """The attempt cannot be prepared, now or later; the text says why."""


async def prepare(home: Home, launch: Launch, blobs: BlobReceiver, *, has_devices: bool = False) -> Path:
    """The attempt's folder, complete. Repeating it is harmless; a folder that is complete is left as it is.

    ``has_devices``: the node has some, which a trial that was given none must not see.

    CannotLaunchError when it never can be; ConnectionLostError and NoRoomError when the service is to ask again.
    """
    folder = home.attempt_folder(launch.key, launch.nonce)
    if read_json(str(folder / FILE_ATTEMPT)) is None:  # also where a power loss has left it empty
        folder.mkdir(parents=True, exist_ok=True)
        try:
            await _prepare_work(home, launch, blobs, folder)
            await lay_out(home, folder / FOLDER_RESTORE, launch.spec.checkpoints, blobs)
            _write_attempt(home, launch, folder, has_devices=has_devices)
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
def _write_attempt(home: Home, launch: Launch, folder: Path, *, has_devices: bool) -> None:
    write_atomically(str(folder / FILE_PARAMETERS), to_json(launch.spec.parameters))
    for index, parameters in enumerate(launch.spec.further_parameters, start=1):
        give_parameters(folder, index, parameters)
    paths = [str(sdk_folder(home))]
    if launch.spec.compat == "nni":
        paths.append(str(_NNI_FOLDER))
    wake = str(wake_socket_path(home.path))
    local = {"python": sys.executable, "wake": wake, "paths": paths, "has_devices": has_devices}
    attempt: dict[str, Any] = {"kind": launch.kind, **to_plain(launch), "local": local}
    write_atomically(str(folder / FILE_ATTEMPT), to_json(attempt))


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
        if _is_small(source):
            shutil.copytree(source, partial, symlinks=True)
        else:
            await asyncio.to_thread(shutil.copytree, source, partial, symlinks=True)
    partial.replace(work)


def _is_small(source: Path) -> bool:
    """Whether copying it takes no longer than handing it to a thread."""
    with os.scandir(source) as listing:
        entries = list(islice(listing, COPIED_AT_ONCE_FILES + 1))
    return len(entries) <= COPIED_AT_ONCE_FILES and all(
        entry.is_file(follow_symlinks=False) and entry.stat().st_size <= COPIED_AT_ONCE_BYTES for entry in entries
    )


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

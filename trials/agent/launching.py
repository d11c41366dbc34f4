"""Preparing an attempt's folder, and starting its supervisor."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import subprocess
import sys
import tarfile
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import trials
from trials.agent.home import Home
from trials.agent.moving.blobs import BlobMissingError, BlobReceiver, unpack_code
from trials.agent.moving.inputs import paths_of
from trials.agent.moving.node_cache import AssetMissingError, AssetUnusableError, NodeCache
from trials.agent.moving.restoring import lay_out
from trials.agent.supervision import supervisor
from trials.agent.supervision.supervisor_loop import SUPERVISOR_LOG
from trials.files import ATTEMPT_BYTES, may_pass, read_json, remove_tree, to_json, write_atomically, write_plainly
from trials.processes.detached import start_detached
from trials.processes.identity import boot_id
from trials.processes.logs import end_of
from trials.stores import StoreError, clone, opened_file
from trials.wire.attempt_file import AttemptFile, NodeSettings
from trials.wire.files import (
    FILE_ATTEMPT,
    FILE_CLAIM,
    FILE_FURTHER_PARAMETERS,
    FILE_INPUTS,
    FILE_PARAMETERS,
    FOLDER_RESTORE,
    FOLDER_WORK,
)
from trials.wire.launch import Compat
from trials.wire.limits import OUTPUT_TAIL_BYTES
from trials.wire.messages import Launch, Prepare
from trials.wire.plain import to_plain

COPIED_AT_ONCE_FILES = 8  # code of more files, or of larger ones, is copied in a thread
COPIED_AT_ONCE_BYTES = 64 << 10
SMALL_CODES_KEPT = 8  # such codes, in memory
_PACKAGE = str(Path(trials.__file__).parent)
_NNI_FOLDER = Path(_PACKAGE) / "nni" / "stand_in"
logger = logging.getLogger(__name__)


class NoRoomError(Exception):
    """The disk is full, others have used up descriptors or memory, or a store cannot be reached.

    The service repeats the launch, and then it may be done.
    """


class CannotLaunchError(Exception):
    """The attempt cannot be prepared, now or later; the text says why."""


class CannotBeGivenError(CannotLaunchError):
    """The store of assets has not what it is to be given: no attempt of the experiment can be prepared meanwhile."""


async def prepare(
    home: Home, launch: Launch | Prepare, blobs: BlobReceiver, *, cache: NodeCache, has_devices: bool = False
) -> tuple[Path, dict[str, Any]]:
    """The attempt's folder, complete, and what is in its FILE_ATTEMPT.

    Repeating it is harmless; a folder that is complete is left as it is.

    ``has_devices``: the node has some, which a trial that was given none must not see.

    CannotLaunchError when it never can be; ConnectionLostError and NoRoomError when the service is to ask again.
    """
    folder = home.attempt_folder(launch.key, launch.nonce)
    is_new = _is_new(folder)
    attempt = None if is_new else read_json(f"{folder}/{FILE_ATTEMPT}", limit=ATTEMPT_BYTES)
    if attempt is None:  # also where a power loss has left it empty
        try:
            if not is_new and read_json(f"{folder}/{FILE_CLAIM}") is None:
                # Cut off, by a power loss perhaps: then there may be more here than was prepared.
                await asyncio.to_thread(remove_tree, folder, ignore_errors=True)
                folder.mkdir(parents=True, exist_ok=True)
            await _prepare_work(home, launch, blobs, folder, cache)
            if launch.spec.checkpoints:
                await lay_out(home, folder / FOLDER_RESTORE, launch.spec.checkpoints, blobs)
        except AssetMissingError as error:
            raise CannotBeGivenError(str(error)) from error
        except (BlobMissingError, AssetUnusableError, tarfile.TarError, EOFError) as error:
            raise CannotLaunchError(f"the code of the experiment cannot be unpacked: {error}") from error
        except StoreError as error:
            raise NoRoomError(str(error)) from error
        except ConnectionError:
            raise
        except OSError as error:
            if may_pass(error):
                raise NoRoomError(str(error)) from error
            raise CannotLaunchError(f"the folder of the attempt cannot be prepared: {error}") from error
    try:
        # Also of one that was prepared: what it was to be given may have been removed or damaged since.
        paths = await _paths(home, launch, cache)
        given = attempt is not None and (not paths or _parameters_of(attempt) == {**launch.spec.parameters, **paths})
        if attempt is None or not given or attempt["spec"].get("world") != to_plain(launch.spec.world):
            attempt = _write_attempt(home, launch, folder, paths, has_devices=has_devices)
    except OSError as error:
        if may_pass(error):
            raise NoRoomError(str(error)) from error
        raise CannotLaunchError(f"the folder of the attempt cannot be prepared: {error}") from error
    home.put_live(launch.nonce, folder)
    return folder, attempt


def _parameters_of(attempt: dict[str, Any]) -> dict[str, Any]:
    parameters: dict[str, Any] = attempt["spec"]["parameters"]
    return parameters


async def _paths(home: Home, launch: Launch | Prepare, cache: NodeCache) -> dict[str, Any]:
    """What it is given beside its parameters. A store that cannot be reached now may be when the launch is repeated."""
    if not launch.spec.inputs:
        return {}
    try:
        return await paths_of(home, cache, launch.spec.inputs, experiment_id=launch.key.experiment_id)
    except AssetMissingError as error:
        raise CannotBeGivenError(str(error)) from error
    except AssetUnusableError as error:
        raise CannotLaunchError(str(error)) from error
    except StoreError as error:
        raise NoRoomError(str(error)) from error


def _is_new(folder: Path) -> bool:
    """Whether it has just been made. OSError, as any later step would raise it, is left to that step."""
    try:
        with suppress(FileExistsError):
            os.mkdir(folder.parent)  # noqa: PTH102  the experiment's is there already, but for its first trial
        os.mkdir(folder)  # noqa: PTH102
    except FileNotFoundError:
        with suppress(OSError):
            folder.mkdir(parents=True)
            return True
        return False
    except OSError:
        return False
    return True


# Not in a thread: launches at the same time would make the same link.
def _write_attempt(
    home: Home, launch: Launch | Prepare, folder: Path, given: dict[str, Any], *, has_devices: bool
) -> dict[str, Any]:
    spec = launch.spec
    if given:
        spec = replace(spec, parameters={**spec.parameters, **given})
        write_plainly(f"{folder}/{FILE_INPUTS}", to_json(given))
    write_plainly(f"{folder}/{FILE_PARAMETERS}", to_json(spec.parameters))
    for index, parameters in enumerate(launch.spec.further_parameters, start=1):
        give_parameters(folder, index, parameters)
    paths = [str(sdk_folder(home))]
    if launch.spec.compat is Compat.NNI:
        paths.append(str(_NNI_FOLDER))
    local = NodeSettings(
        python=sys.executable,
        wake=str(home.wake),
        paths=tuple(paths),
        umask=home.umask,
        secrets=str(home.path / "secrets"),
        has_devices=has_devices,
        boot_id=boot_id(),
    )
    file = AttemptFile(key=launch.key, nonce=launch.nonce, lineage=launch.lineage, spec=spec, local=local)
    attempt: dict[str, Any] = to_plain(file)
    write_plainly(f"{folder}/{FILE_ATTEMPT}", to_json(attempt))  # one that was cut off is no JSON, and made anew
    return attempt


def give_parameters(folder: Path, index: int, parameters: dict[str, Any] | None) -> None:
    """Further parameters, for the script that waits for them or will ask."""
    write_atomically(str(folder / FILE_FURTHER_PARAMETERS.format(index=index)), to_json({"parameters": parameters}))


def sdk_folder(home: Home) -> Path:
    """A folder with ``trials`` and nothing else, for the path of any interpreter."""
    folder = home.sdk
    with suppress(OSError):
        if os.readlink(f"{folder}/trials") == _PACKAGE:  # noqa: PTH115  for every launch
            return folder
    folder.mkdir(exist_ok=True)
    temporary = folder / ".trials.tmp"
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(_PACKAGE)
    temporary.replace(folder / "trials")
    return folder


# ── the working directory ───────────────────────────────────────────────────────────────────────
async def _prepare_work(
    home: Home, launch: Launch | Prepare, blobs: BlobReceiver, folder: Path, cache: NodeCache
) -> None:
    work = folder / FOLDER_WORK
    try:
        os.mkdir(work)  # noqa: PTH102
    except FileExistsError:  # of a preparation that was cut off
        remove_tree(work)
        work.mkdir()
    if launch.spec.code_asset is not None:
        tree = await cache.get(launch.spec.code_asset.asset)
        await asyncio.to_thread(_copy_tree, tree, work)
        return
    digest = launch.spec.code_digest
    if digest is None:
        return
    source = home.code / digest
    files = _small_files(source)
    if files is None:
        with blobs.holding(digest):
            if not source.is_dir():
                archive = await blobs.get(digest)
                source = await asyncio.to_thread(unpack_code, home, archive, digest, but=blobs.held())
            await asyncio.to_thread(shutil.copytree, source, work, symlinks=True, dirs_exist_ok=True)
        return
    for file in files:
        write_plainly(f"{work}/{file.name}", file.data, mode=file.mode, times_ns=file.times_ns)


def _copy_tree(tree: Path, work: Path) -> None:
    """Files of its own, which the script may change; clones, where the file system makes such."""
    for place, folders, names in os.walk(tree):
        target = work / os.path.relpath(place, tree)
        for name in folders:
            (target / name).mkdir(mode=0o700)
        for name in names:
            source = Path(place) / name
            with opened_file(source) as reading, (target / name).open("xb") as writing:
                if not clone(reading.fileno(), writing.fileno()):
                    shutil.copyfileobj(reading, writing)
                os.fchmod(writing.fileno(), os.fstat(reading.fileno()).st_mode & 0o100 | 0o600)


@dataclass(frozen=True, slots=True, kw_only=True)
class _SmallFile:
    name: str
    data: bytes
    mode: int
    times_ns: tuple[int, int]


@lru_cache(maxsize=SMALL_CODES_KEPT)
def _files_in(source: Path, changed_at_ns: int) -> tuple[_SmallFile, ...] | None:  # noqa: ARG001  a part of the key
    """What is in it, if that is a few small files: copying them takes no longer than handing it to a thread."""
    with os.scandir(source) as listing:
        entries = list(islice(listing, COPIED_AT_ONCE_FILES + 1))
    if len(entries) > COPIED_AT_ONCE_FILES:
        return None
    found = []
    for entry in entries:
        stat = entry.stat(follow_symlinks=False)
        if not entry.is_file(follow_symlinks=False) or stat.st_size > COPIED_AT_ONCE_BYTES:
            return None
        data = Path(entry).read_bytes()
        times_ns = (stat.st_atime_ns, stat.st_mtime_ns)
        found.append(_SmallFile(name=entry.name, data=data, mode=stat.st_mode & 0o7777, times_ns=times_ns))
    return tuple(found)


def _small_files(source: Path) -> tuple[_SmallFile, ...] | None:
    """Those of unpacked code; None where there are many, or large ones, or it is not unpacked yet."""
    try:
        return _files_in(source, source.stat().st_mtime_ns)
    except FileNotFoundError:
        return None


# ── the supervisor ──────────────────────────────────────────────────────────────────────────────
def spawn_supervisor(folder: Path, *, why: str = "") -> subprocess.Popen[bytes]:
    """Start one for the attempt in ``folder``, which is not forked because of ``why``.

    Of several, the first that claims the nonce goes on.
    """
    command = [sys.executable, "-I", "-S", supervisor.__file__, str(folder), *filter(None, [why])]
    return start_detached(command, log=folder / SUPERVISOR_LOG)


def said_by_supervisor(folder: Path) -> str:
    """The end of its log."""
    return end_of(str(folder / SUPERVISOR_LOG), OUTPUT_TAIL_BYTES)

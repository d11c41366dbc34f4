"""What an agent that shares no folder with its service sends there, and fetches, beside assets and checkpoints."""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import re
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Protocol

from trials.agent.home import Home
from trials.agent.moving.blobs import ConnectionLostError
from trials.agent.rounds import one_round
from trials.agent.threads import apart, in_own_thread
from trials.files import is_full_disk
from trials.processes.logs import read_log
from trials.stores import BrokenOffError, StoreError, clear, fetch, upload
from trials.wire.files import FILE_RESOURCES
from trials.wire.limits import LOG_INLINE_BYTES, RESOURCES_BYTES
from trials.wire.log_streams import RANK_STREAMS_INLINE, STREAMS, file_of, name_from, stream_in
from trials.wire.manifests import is_file_digest
from trials.wire.remote_files import LOGS, SECRETS, STAGING, remote
from trials.wire.resources import STREAM
from trials.wire.variables import NAME_OF_SECRET

LOG_BYTES = 8 << 20  # of the end of each stream
FILES_LOOKED_AT = 20_000  # of an attempt's folder, in which a trial may write what it likes
RANK_STREAMS_LIMIT = 2_000  # those that a trial has more, by files of its own making, stay on the node
ATTEMPTS = 3
PAUSE_S = 1.0
SENT_AT_ONCE = 4  # files of an output
OWED_PAUSE_S = 60.0  # between two looks whether the service has room again
OWED_S = 7 * 86_400.0
OWED_LIMIT = 1_000  # attempts
logger = logging.getLogger(__name__)


class Written(Protocol):
    """An attempt, as far as what it wrote goes."""

    @property
    def folder(self) -> Path: ...
    @property
    def nonce(self) -> str: ...


class _Wrote(NamedTuple):
    folder: Path
    nonce: str


def short_logs(held: Written) -> dict[str, str]:
    """What the attempt wrote, by stream, in base64: to go with its exit. Long streams are left out.

    What each rank wrote comes first, here and before: once the log of all is there, a rank without one has written
    nothing. With what it used over time, which is never long, where anything was measured. It reads, and lists the
    folder of the attempt, in which a trial may have written anything: for a thread.
    """
    found = {}
    for stream in (*_streams_of_ranks(held.folder)[:RANK_STREAMS_INLINE], *STREAMS):
        data, _, size = read_log(f"{held.folder}/{file_of(stream)}", offset=-LOG_BYTES, limit=LOG_INLINE_BYTES)
        if size <= LOG_INLINE_BYTES:
            found[stream] = base64.b64encode(data).decode("ascii")
    used, _, _ = read_log(str(held.folder / FILE_RESOURCES), offset=0, limit=RESOURCES_BYTES)
    return found | ({STREAM: base64.b64encode(used).decode("ascii")} if used else {})


async def collect_long_logs(home: Home, held: Written) -> None:
    """What ``short_logs`` leaves out is at the service when this returns, as far as that can be done.

    What the service has no room for, or cannot be reached with, is owed: the end of the trial does not wait for it.
    """
    for stream in await in_own_thread(_long_streams, held):
        for attempt in range(ATTEMPTS):
            try:
                await apart(_send_log, home, held, stream)
                break
            except OSError as error:
                logger.warning("log_not_collected", extra={"nonce": held.nonce, "stream": stream, "error": error})
                if attempt + 1 < ATTEMPTS:
                    await asyncio.sleep(PAUSE_S * 2**attempt)
                elif _may_go_later(error):
                    await asyncio.to_thread(_owe, home, held)
                    return  # with all that follows


def _may_go_later(error: OSError) -> bool:
    return isinstance(error, BrokenOffError) or is_full_disk(error)


def _owe(home: Home, held: Written) -> None:
    try:
        home.owe_logs(held.nonce, held.folder)
    except OSError as error:
        logger.error("logs_given_up", extra={"nonce": held.nonce, "error": error})


async def keep_sending_owed(home: Home) -> None:
    """For as long as there is a connection."""
    while True:
        await asyncio.sleep(OWED_PAUSE_S)
        with one_round("owed logs"):
            await send_owed_logs(home, now=time.time())


async def send_owed_logs(home: Home, *, now: float) -> None:
    """Those that the service has room for now. They stay where they were written, and are owed no longer than OWED_S;

    of very many, the oldest are given up.
    """
    owed = await asyncio.to_thread(home.owed_logs)
    for place, (nonce, folder, since) in enumerate(owed):
        if folder is None or now - since > OWED_S or len(owed) - place > OWED_LIMIT:
            logger.warning(
                "logs_given_up", extra={"nonce": nonce, "error": "they were removed, or had to wait too long"}
            )
        else:
            try:
                await apart(_send_long_logs, home, _Wrote(folder, nonce))
            except OSError as error:
                if _may_go_later(error):
                    return  # the others would be told the same
                logger.warning("logs_given_up", extra={"nonce": nonce, "error": error})
            else:
                logger.info("owed_logs_sent", extra={"nonce": nonce})
        home.owe_no_logs(nonce)


def _send_long_logs(home: Home, wrote: Written) -> None:
    for stream in _long_streams(wrote):
        _send_log(home, wrote, stream)


def _long_streams(wrote: Written) -> list[str]:
    """Those of ranks before those of all, as in ``short_logs``."""
    short = short_logs(wrote)
    return [stream for stream in (*_streams_of_ranks(wrote.folder), *STREAMS) if stream not in short]


def _streams_of_ranks(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in islice(entries, FILES_LOOKED_AT))
    except OSError:
        return []
    return [stream for name in names if (stream := stream_in(name)) is not None][:RANK_STREAMS_LIMIT]


def _send_log(home: Home, held: Written, stream: str) -> None:
    data, end, _ = read_log(f"{held.folder}/{file_of(stream)}", offset=-LOG_BYTES, limit=LOG_BYTES)
    name = name_from(stream, end - len(data))  # whoever has read up to some offset goes on there
    # In memory: the log may change meanwhile, and the disk may have no room for a copy.
    with os.fdopen(os.memfd_create("log", os.MFD_CLOEXEC), "wb") as draft:
        draft.write(data)
        draft.flush()
        source = Path(f"/proc/self/fd/{draft.fileno()}")
        upload(source, remote(LOGS, f"{held.folder.relative_to(home.attempts)}/{name}"))


def send_staged(folder: Path) -> None:
    """The files of an output, each named by its digest; then they are gone from here. Blocking."""
    paths = sorted(path for path in folder.iterdir() if is_file_digest(path.name))
    with ThreadPoolExecutor(SENT_AT_ONCE) as threads:
        for sending in [threads.submit(upload, path, remote(STAGING, path.name)) for path in paths]:
            sending.result()
    clear(folder)


async def fetch_secrets(home: Home, names: Collection[str]) -> None:
    """Those that a trial is given, anew for each: one may have been changed. ConnectionLostError."""
    folder = home.path / "secrets"
    for name in names:
        if not re.fullmatch(NAME_OF_SECRET, name):
            continue  # who starts the trial says so
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            await apart(fetch, remote(SECRETS, name), folder / name)
        except StoreError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise ConnectionLostError(f"the secret {name} cannot be fetched now: {error}") from error
            (folder / name).unlink(missing_ok=True)  # it was removed; who starts the trial says so

"""What an agent that shares no folder with its service sends there, and fetches, beside assets and checkpoints."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Collection
from pathlib import Path

from trials.agent.attempts import HeldAttempt
from trials.agent.home import Home
from trials.agent.moving.blobs import ConnectionLostError
from trials.agent.supervision.logs import read_log
from trials.stores import StoreError, clear, fetch, upload
from trials.wire.files import FILE_STDERR, FILE_STDOUT
from trials.wire.manifests import is_file_digest
from trials.wire.remote_files import LOGS, SECRETS, STAGING, remote
from trials.wire.variables import NAME_OF_SECRET

LOG_BYTES = 8 << 20  # of the end of each stream
ATTEMPTS = 3
PAUSE_S = 1.0
STREAMS = {"stdout": FILE_STDOUT, "stderr": FILE_STDERR}
logger = logging.getLogger(__name__)


async def collect_logs(home: Home, held: HeldAttempt) -> None:
    """What the attempt wrote is at the service when this returns, as far as that can be done."""
    for stream, name in STREAMS.items():
        for attempt in range(ATTEMPTS):
            try:
                await asyncio.to_thread(_send_log, home, held, stream, held.folder / name)
                break
            except OSError as error:
                logger.warning("log_not_collected", extra={"nonce": held.nonce, "stream": stream, "error": error})
                if attempt + 1 < ATTEMPTS:
                    await asyncio.sleep(PAUSE_S * 2**attempt)


def _send_log(home: Home, held: HeldAttempt, stream: str, path: Path) -> None:
    data, _, _ = read_log(str(path), offset=-LOG_BYTES, limit=LOG_BYTES)
    draft = home.agent / f"log-{held.nonce}-{stream}"
    try:
        draft.write_bytes(data)
        upload(draft, remote(LOGS, f"{held.folder.relative_to(home.attempts)}/{stream}"))
    finally:
        draft.unlink(missing_ok=True)


def send_staged(folder: Path) -> None:
    """The files of an output, each named by its digest; then they are gone from here. Blocking."""
    for path in sorted(folder.iterdir()):
        if is_file_digest(path.name):
            upload(path, remote(STAGING, path.name))
    clear(folder)


async def fetch_secrets(home: Home, names: Collection[str]) -> None:
    """Those that a trial is given, anew for each: one may have been changed. ConnectionLostError."""
    folder = home.path / "secrets"
    for name in names:
        if not re.fullmatch(NAME_OF_SECRET, name):
            continue  # who starts the trial says so
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            await asyncio.to_thread(fetch, remote(SECRETS, name), folder / name)
        except StoreError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise ConnectionLostError(f"the secret {name} cannot be fetched now: {error}") from error
            (folder / name).unlink(missing_ok=True)  # it was removed; who starts the trial says so

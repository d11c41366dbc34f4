"""One process of an agent that forks, as the agent has it: a fork server of trials, or the server of supervisors."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import trials
from trials.agent.home import Home
from trials.files import ATTEMPT_BYTES, read_json
from trials.processes.identity import Identity, is_alive, send_verified

LIBRARY_CHECK_S = 1.0  # files of installed libraries are compared this often; all others for each trial
_LIBRARY_FOLDERS = (
    f"{Path(trials.__file__).parent}/",
    "/site-packages/",
    "/dist-packages/",
    f"/python{sys.version_info[0]}.{sys.version_info[1]}/",
)
logger = logging.getLogger(__name__)


class Server:
    """One of them. ``given`` are the attempts that it was ordered to start and nobody has seen the end of.

    ``supervises``: it is no parent of trials, but forks supervisors.
    """

    def __init__(self, home: Home, *, number: str, key: str, orders: str, state: Path) -> None:
        self.id = number
        self.key = key
        self.orders = orders
        self.state = state
        self.supervises = False
        self.process: subprocess.Popen[bytes] | None = None
        self.identity: Identity | None = None  # once it is ready
        self.problem: str | None = None
        self.loaded: frozenset[str] = frozenset()
        self.given: dict[str, Path] = {}
        self.claimed_by: dict[
            str, float
        ] = {}  # of given ones, until when on the monotonic clock, where that is looked at
        self.used_at = time.monotonic()
        self.ready = asyncio.Event()
        self._library_folders = (*_LIBRARY_FOLDERS, f"{home.sdk}/")
        self._library: dict[str, list[int]] = {}
        self._others: dict[str, list[int]] = {}
        self._compared_at = 0.0

    def read_state(self) -> bool:
        """Whether it is ready, which its state file says."""
        state = read_json(str(self.state), limit=ATTEMPT_BYTES)
        if state is None:
            return False
        try:
            self._take(state)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            logger.error("fork_server_state_damaged", extra={"id": self.id, "error": repr(error)})
            return False
        self.ready.set()
        return True

    def _take(self, state: Mapping[str, Any]) -> None:
        found = Identity.read(state)
        if found is None:
            raise ValueError("it names no process")
        self.problem = None if state["problem"] is None else str(state["problem"])
        self.supervises = state.get("supervises") is True
        self.loaded = frozenset(map(str, state["shadowable"]))
        files: dict[str, list[int]] = dict(state["files"])
        folders = self._library_folders
        self._library = {path: known for path, known in files.items() if any(f in path for f in folders)}
        self._others = {path: known for path, known in files.items() if path not in self._library}
        self.identity = found

    def is_alive(self) -> bool:
        if self.identity is None:
            return self.process is not None and self.process.poll() is None
        return is_alive(self.identity)

    def kill(self) -> None:
        if self.identity is not None:
            send_verified(signal.SIGKILL, self.identity)
        elif self.process is not None:
            self.process.kill()

    def changed_file(self) -> str | None:
        """A file of a module it has imported that is another one now."""
        changed = _changed(self._others)
        if changed is None and time.monotonic() - self._compared_at > LIBRARY_CHECK_S:
            changed = _changed(self._library)
            self._compared_at = time.monotonic()
        return changed


def _changed(files: Mapping[str, list[int]]) -> str | None:
    for path, known in files.items():
        try:
            found = os.stat(path)  # noqa: PTH116  of hundreds of files
        except OSError:
            return path
        if [found.st_mtime_ns, found.st_size] != known:
            return path
    return None

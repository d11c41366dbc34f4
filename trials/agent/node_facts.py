"""What the agent says of its machine, and whether a trial could be started there at all."""

from __future__ import annotations

import asyncio
import errno
import getpass
import logging
import os
import platform
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from websockets.exceptions import ConnectionClosed

from trials.agent import bounds
from trials.agent.home import Home
from trials.agent.rounds import one_round
from trials.agent.threads import in_own_thread
from trials.files import is_scarce, sync_folder, write_atomically
from trials.wire.messages import Message
from trials.wire.nodes import NodeChanged, NodeFacts

# With less no trial is started: its files would not be whole. A small disk has to have a sixteenth of itself.
LEAST_FREE_BYTES = 64 << 20
LEAST_FREE_SHARE = 16
LOOK_S = 5.0  # between two looks at the disk
TOLD_S = 60.0  # how much is free is told so often, even where nothing else changes
CLOCK_SET_S = 1.0  # by less a clock may differ from the one that nobody sets
PROBE = "probe"
NO_ROOM = {errno.ENOSPC, errno.EDQUOT}
logger = logging.getLogger(__name__)


def room_of(folder: Path) -> tuple[int, int]:
    """Bytes that this process may still write on the file system of ``folder``, and all that it has."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize


class FactsOfNode:
    """``is_joined``: the agent shares no folder with its service."""

    def __init__(
        self, home: Home, *, is_joined: bool = False, room: Callable[[Path], tuple[int, int]] = room_of
    ) -> None:
        self.is_joined = is_joined
        self._home, self._room = home, room
        self._process_id = secrets.token_hex(8)
        self._drained = home.agent / "drained"
        self._unkept: bool | None = None  # what was ordered, where the home does not hold it yet
        self._was_drained = False
        self._told: NodeFacts | None = None
        self._told_at = 0.0

    def now(self) -> NodeFacts:
        """As of this moment. Writes a small file into the home, and removes it."""
        free, trouble = self._look()
        return NodeFacts(
            home_id=self._home.home_id(),
            process_id=self._process_id,
            is_joined=self.is_joined,
            labels=bounds.labels(),
            user=f"{_user()} ({os.getuid()})",
            python=platform.python_version(),
            clock=time.time(),
            free_bytes=free,
            trouble=trouble,
            drained=self._is_drained() if self._unkept is None else self._unkept,
        )

    def _is_drained(self) -> bool:
        try:
            self._was_drained = self._drained.stat() is not None
        except (FileNotFoundError, NotADirectoryError):
            self._was_drained = False
        except OSError:  # a home that cannot be read now, which is told as its trouble
            pass
        return self._was_drained

    def drain(self, *, on: bool) -> NodeFacts:
        """Keep it over restarts of the agent; what is true of the node then.

        A home that cannot be written holds it as soon as it can be; until then this agent alone knows it.
        """
        self._unkept = on
        error = self._keep()
        if error is not None:
            logger.warning("drain_not_kept", extra={"path": self._drained, "on": on, "error": error})
        return self.taken_as_told()

    def _keep(self) -> OSError | None:
        """What hindered it."""
        try:
            if self._unkept:
                write_atomically(str(self._drained), b"", durable=True)
            elif self._unkept is not None:
                self._drained.unlink(missing_ok=True)
                sync_folder(str(self._drained.parent))
        except OSError as error:
            return error
        self._unkept = None
        return None

    def taken_as_told(self) -> NodeFacts:
        """For a message that is about to be sent."""
        self._told, self._told_at = self.now(), time.monotonic()
        return self._told

    def news(self, found: NodeFacts) -> NodeFacts | None:
        """What of ``found`` is to be told; None where nothing of it has changed since it was told, or not for long.

        A clock that was set is told at once: the times of reports are corrected by what was told last.
        """
        told, now = self._told, time.monotonic()
        passed_s = now - self._told_at
        if told is not None and told.trouble == found.trouble and passed_s < TOLD_S:
            was_set = abs(found.clock - told.clock - passed_s) >= CLOCK_SET_S
            if not was_set:
                return None
        self._told, self._told_at = found, now
        return found

    async def keep_told(self, send: Callable[[Message], Awaitable[None]]) -> None:
        """What changes on the node, for as long as the connection lasts."""
        while True:
            await asyncio.sleep(LOOK_S)
            with one_round("facts"), suppress(ConnectionClosed):  # the next hello says it
                self._keep()
                told = self._told
                found = await in_own_thread(self.now)
                # What was told meanwhile, as that it is drained, is newer than this look.
                if self._told is told and (news := self.news(found)) is not None:
                    await send(NodeChanged(node=news))

    def _look(self) -> tuple[int, str]:
        """The bytes that are free, -1 where nobody can say, and why no trial can be started."""
        free, path = -1, self._home.path
        try:
            free, size = self._room(self._home.agent)
            self._write_probe()
        except OSError as error:
            if error.errno in NO_ROOM:  # a quota, perhaps, or a file system that can have no more files
                return free, f"the disk of {path} is full: {error.strerror}; make room there"
            return free, f"the agent cannot write into its home {path}: {error.strerror}; {_advice(error)}"
        needed = min(LEAST_FREE_BYTES, size // LEAST_FREE_SHARE)
        if free >= needed:
            return free, ""
        return free, (
            f"the disk of {path} is full: {_mebibytes(free)} are free, and {_mebibytes(needed)} are needed; make room "
            "there"
        )

    def _write_probe(self) -> None:
        path = self._home.agent / PROBE
        try:
            path.write_bytes(b"x")
        finally:
            path.unlink(missing_ok=True)


def _advice(error: OSError) -> str:
    if is_scarce(error):
        return "other processes have used up what this user or machine may have; it goes on once some is free again"
    if isinstance(error, PermissionError):
        return "give its user the right to, or start it with another --home"
    return "mend that, or start it with another --home"


def _mebibytes(count: int) -> str:
    return f"{count / (1 << 20):.3g} MiB"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unnamed"

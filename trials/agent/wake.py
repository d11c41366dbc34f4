"""The datagram socket by which trials, supervisors and the service wake the agent."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

from trials.files import is_still_there
from trials.wire.sockets import WAKE_CONNECT

DRAINED_AT_ONCE = 1024
DEBOUNCE_S = 0.002  # a flood of datagrams wakes the agent so often; senders find the queue full and go on
logger = logging.getLogger(__name__)


class WakeSocket:
    """Calls ``on_wake`` with the datagrams soon after they came; ``on_connect`` when the service asks for that."""

    def __init__(self, path: Path, *, on_wake: Callable[[set[bytes]], None], on_connect: Callable[[], None]) -> None:
        self._on_wake = on_wake
        self._on_connect = on_connect
        self._own = OwnSocket(path, socket.SOCK_DGRAM)
        self._looked_at = -DEBOUNCE_S
        asyncio.get_running_loop().add_reader(self._own.socket.fileno(), self._woken)

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._own.socket.fileno())
        self._own.close()

    def see_to_it(self) -> None:
        """Listen again where the file was taken away; who was not heard meanwhile is looked at as without a wake."""
        old = self._own.made_again()
        if old is not None:
            asyncio.get_running_loop().remove_reader(old.fileno())
            old.close()
            self._listen_again()

    def _woken(self) -> None:
        loop = asyncio.get_running_loop()
        rest = self._looked_at + DEBOUNCE_S - loop.time()
        if rest > 0:
            loop.remove_reader(
                self._own.socket.fileno()
            )  # as a number: the loop would make a text of the socket each time
            loop.call_later(rest, self._listen_again)
            return
        found = self._drain()
        if WAKE_CONNECT in found:
            self._on_connect()
        # Looking comes after the draining: a sender that found the queue full wrote its line before.
        self._on_wake(found)
        self._looked_at = loop.time()

    def _listen_again(self) -> None:
        if self._own.socket.fileno() >= 0:
            asyncio.get_running_loop().add_reader(self._own.socket.fileno(), self._woken)

    def _drain(self) -> set[bytes]:
        found = set()
        try:
            # Bounded: senders that are quicker than this loop must not keep it here.
            for _ in range(DRAINED_AT_ONCE):
                found.add(self._own.socket.recv(64))
            found.add(b"")  # and perhaps others
        except BlockingIOError:
            pass
        return found


def make_own(folder: Path) -> None:
    """Make ``folder`` this user's alone; PermissionError where it is somebody else's, or leads to another place."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    if status.st_uid != os.getuid() or not stat.S_ISDIR(status.st_mode):
        raise PermissionError(f"{folder} belongs to another user; set XDG_RUNTIME_DIR to a folder of your own")
    if status.st_mode & 0o077:
        folder.chmod(0o700)


class OwnSocket:
    """A socket at ``path`` that this user alone can reach. ``listens``: what to do with a new one before it is used."""

    def __init__(
        self, path: Path, kind: socket.SocketKind, *, listens: Callable[[socket.socket], object] = lambda _: None
    ) -> None:
        self.path, self._kind, self._listens = path, kind, listens
        self._refused = ""
        self.socket, self._bound = self._made()

    def made_again(self) -> socket.socket | None:
        """The socket until now, which nobody reaches any more, where its file was taken away; ``socket`` is another."""
        if is_still_there(self.path, self._bound):
            return None
        old = self.socket
        try:
            self.socket, self._bound = self._made()
        except OSError as error:
            if self._refused != str(error):  # it is tried again and again, and said once
                self._refused = str(error)
                logger.error("socket_not_made_again", extra={"path": self.path, "error": error})
            return None
        self._refused = ""
        logger.warning("socket_made_again", extra={"path": self.path})
        return old

    def close(self) -> None:
        """Another process's, which took its place, stays."""
        self.socket.close()
        if is_still_there(self.path, self._bound):
            self.path.unlink(missing_ok=True)

    def _made(self) -> tuple[socket.socket, os.stat_result]:
        make_own(self.path.parent)
        self.path.unlink(missing_ok=True)  # of an agent that was killed: the lock says that none is alive
        made = socket.socket(socket.AF_UNIX, self._kind | socket.SOCK_NONBLOCK)
        try:
            made.bind(str(self.path))
            self.path.chmod(0o600)
            self._listens(made)
            return made, self.path.lstat()
        except OSError:
            made.close()
            raise

"""Which process holds the other end of a connection within this machine. Standard library only, quick to import.

A token is sent only where this says that the service of the home listens: the address that a service wrote down may
belong to another process by now. The kernel is asked about this very connection, not about the address, so nobody can
take the address over in between, and nobody can pass the question on to the service. Linux.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys
import time

ROOT_UID = 0
LOOK_AGAIN_S = 0.002
LOOKS_LEAST = 5  # a table that changes while it is read may leave a line out
NOTHING_TO_SPARE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
SPARE_PAUSE_S = 0.02
_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_CREDENTIALS = struct.Struct("iii")  # pid, uid, gid
_LOCAL, _REMOTE, _UID, _INODE = 1, 2, 7, 9  # columns
_MAPPED = b"\0" * 10 + b"\xff\xff"  # an IPv4 address, as a socket of IPv6 has it


class NotHeldError(OSError):
    """The other end is not the process it should be; the text says what is known."""


def require_peer(connection: socket.socket, *, pid: int, uid: int, timeout_s: float) -> None:
    """Returns if ``pid``, of the user ``uid`` or root, holds the other end. It has ``timeout_s`` to accept.

    NotHeldError if it does not, TimeoutError if nobody has accepted. ``connection`` is connected.
    """
    deadline, missing = time.monotonic() + timeout_s, 0
    while True:
        end = other_end(connection)
        if end is not None and end.inode:
            end.require(pid=pid, uid=uid)
            return
        missing += end is None
        if missing == LOOKS_LEAST:
            raise NotHeldError(f"{connection.getpeername()[0]} is no address of this machine's own")
        if time.monotonic() > deadline:
            raise TimeoutError(f"nobody has accepted a connection within {timeout_s:g} s")
        time.sleep(LOOK_AGAIN_S)


class OtherEnd:
    """A socket as the kernel knows it; ``inode`` is 0 until a process has accepted the connection."""

    __slots__ = ("inode", "uid")

    def __init__(self, *, uid: int, inode: int) -> None:
        self.uid = uid
        self.inode = inode

    def require(self, *, pid: int, uid: int) -> None:
        """NotHeldError unless it is a socket of the process ``pid`` and of the user ``uid``, or root."""
        if self.uid not in {uid, ROOT_UID}:
            raise NotHeldError(f"a process of another user (number {self.uid}) listens there")
        folder = f"/proc/{pid}/fd"
        try:
            names = os.listdir(folder)  # noqa: PTH208  names, not paths
        except FileNotFoundError as error:
            raise NotHeldError(f"process {pid} has ended, and another one listens there") from error
        except PermissionError:
            return  # it hides what it has, as a process with privileges of its own does: the user is the right one
        if not any(_link(f"{folder}/{name}") == f"socket:[{self.inode}]" for name in names):
            raise NotHeldError(f"another process than {pid} listens there")


def other_end(connection: socket.socket) -> OtherEnd | None:
    """None where it is not on this machine, or the table left it out."""
    here, there = _as_listed(connection.getsockname()), _as_listed(connection.getpeername())
    for table in _TABLES:
        try:
            with open(table, encoding="ascii") as lines:  # noqa: PTH123  pathlib would take longer than all the rest
                next(lines, None)
                for line in lines:
                    columns = line.split()
                    if _without_mapping(columns[_LOCAL]) == there and _without_mapping(columns[_REMOTE]) == here:
                        return OtherEnd(uid=int(columns[_UID]), inode=int(columns[_INODE]))
        except OSError:
            continue  # a kernel without this family
    return None


def _link(path: str) -> str:
    try:
        return os.readlink(path)  # noqa: PTH115
    except OSError:
        return ""  # closed meanwhile


def _as_listed(address: tuple[str, int]) -> str:
    """As the kernel lists it: 32 bits at a time, in the machine's own order of bytes; IPv4 always in its short form."""
    host = address[0].partition("%")[0]
    packed = socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)
    if packed.startswith(_MAPPED):
        packed = packed[len(_MAPPED) :]
    if sys.byteorder == "little":
        packed = b"".join(packed[start : start + 4][::-1] for start in range(0, len(packed), 4))
    return f"{packed.hex().upper()}:{address[1]:04X}"


def _without_mapping(text: str) -> str:
    """An IPv4 address that is listed among those of IPv6, in its short form."""
    mapped = "0000000000000000FFFF0000" if sys.byteorder == "little" else "00000000000000000000FFFF"
    return text[len(mapped) :] if text.startswith(mapped) and len(text) > len(mapped) else text


# ── sockets of one machine ──────────────────────────────────────────────────────────────────────
def is_own_user(connection: socket.socket) -> bool:
    """Whether the process at the other end of a Unix socket belongs to this process's user, as the kernel says."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return bool(_CREDENTIALS.unpack(found)[1] == os.getuid())


def accepted(listening: socket.socket) -> socket.socket | None:
    """The connection that waits to be accepted, not blocking; None where it is gone again, or cannot be taken now."""
    try:
        connection, _ = listening.accept()
    except OSError as error:
        if error.errno in NOTHING_TO_SPARE:  # it waits still, and whoever looks finds that at once, again and again
            time.sleep(SPARE_PAUSE_S)
        return None
    connection.setblocking(False)  # noqa: FBT003  the standard library takes it by position only
    return connection

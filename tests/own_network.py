"""A network of this machine alone that a test can cut, as a cable is: nothing goes through, and nobody is told.

``python -m tests.own_network``, in a process of its own: the loopback device that it sees is another one than that of
the machine. A line on the standard input cuts it.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NEW_USER, NEW_NET = 0x10000000, 0x40000000  # CLONE_NEWUSER, CLONE_NEWNET
GET_FLAGS, SET_FLAGS, IS_UP = 0x8913, 0x8914, 0x1  # SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP
LIBC = ctypes.CDLL(None, use_errno=True)


class OwnNetwork:
    """Of a process that is in it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def enter(self) -> None:
        """In a process that has just been forked: what it starts is in that network, too."""
        for kind in ("user", "net"):
            descriptor = os.open(f"/proc/{self._process.pid}/ns/{kind}", os.O_RDONLY)
            is_own = os.path.sameopenfile(descriptor, own := os.open(f"/proc/self/ns/{kind}", os.O_RDONLY))
            if not is_own and LIBC.setns(descriptor, 0):
                raise OSError(ctypes.get_errno(), "setns")
            os.close(descriptor)
            os.close(own)

    def cut(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("cut\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "cut\n"


@contextmanager
def own_network() -> Iterator[OwnNetwork | None]:
    """None where this user may have none."""
    command = [sys.executable, "-m", "tests.own_network"]
    root = Path(__file__).parents[1]
    with subprocess.Popen(
        command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield OwnNetwork(process) if process.stdout.readline() == "up\n" else None
        finally:
            process.kill()


def set_loopback(*, up: bool) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as device:
        request = struct.pack("16sh14x", b"lo", 0)
        (flags,) = struct.unpack("16xh14x", fcntl.ioctl(device, GET_FLAGS, request))
        wanted = flags | IS_UP if up else flags & ~IS_UP
        fcntl.ioctl(device, SET_FLAGS, struct.pack("16sh14x", b"lo", wanted))


def main() -> int:
    if LIBC.unshare(NEW_NET if os.geteuid() == 0 else NEW_USER | NEW_NET):
        return 1
    set_loopback(up=True)
    print("up", flush=True)
    if sys.stdin.readline():
        set_loopback(up=False)
        print("cut", flush=True)
        sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(main())

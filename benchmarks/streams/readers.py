"""Readers of event streams, in a process of their own: all sockets in one loop, so that they take little of a machine.

    python -m benchmarks.streams.readers URL TOKEN_FILE COUNT PATH…

The paths in turn. Prints a line once all have their first event; then, when its standard input ends, what was read.
"""

from __future__ import annotations

import json
import re
import selectors
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

READ_BYTES = 1 << 18
EVENT = re.compile(rb"event: ([a-z]+)\n")


@dataclass(eq=False)
class Reader:
    """``rest``: the end of what was read, which may be the beginning of an event's name."""

    path: str
    connection: socket.socket
    size: int = 0
    rest: bytes = b""

    def take(self, data: bytes, counts: dict[str, int]) -> None:
        self.size += len(data)
        seen = self.rest + data
        end = 0
        for found in EVENT.finditer(seen):
            name = found.group(1).decode()
            counts[name] = counts.get(name, 0) + 1
            end = found.end()
        self.rest = seen[max(end, len(seen) - 32) :]


def main() -> int:
    url, token_file, count, *paths = sys.argv[1:]
    token = Path(token_file).read_text(encoding="utf-8").strip()
    parts = urlsplit(url)
    address = (parts.hostname or "", parts.port or 80)
    readers = [_open(address, paths[place % len(paths)], token) for place in range(int(count))]
    counts: dict[str, int] = {}
    with selectors.DefaultSelector() as selector:
        for reader in readers:
            selector.register(reader.connection, selectors.EVENT_READ, reader)
        selector.register(sys.stdin.buffer, selectors.EVENT_READ)
        _read(selector, counts, until=lambda: counts.get("begin", 0) >= len(readers))
        print("ready", flush=True)
        counts.clear()
        for reader in readers:
            reader.size = 0
        ended = _read(selector, counts, until=lambda: False)
    told = {"events": counts, "megabytes": sum(reader.size for reader in readers) / 1e6, "ended": ended}
    print(json.dumps(told), flush=True)
    return 0


def _open(address: tuple[str, int], path: str, token: str) -> Reader:
    connection = socket.create_connection(address, timeout=30)
    host = f"{address[0]}:{address[1]}"
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
    connection.settimeout(0)
    return Reader(path=path, connection=connection)


def _read(selector: selectors.BaseSelector, counts: dict[str, int], *, until: Callable[[], bool]) -> int:
    """How many streams the service ended, up to the end of the standard input or until ``until`` is true."""
    ended = 0
    while not until():
        for key, _ in selector.select():
            reader = key.data
            if reader is None:
                return ended
            data = reader.connection.recv(READ_BYTES)
            if data:
                reader.take(data, counts)
            else:
                selector.unregister(reader.connection)
                ended += 1
    return ended


if __name__ == "__main__":
    sys.exit(main())

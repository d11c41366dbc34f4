"""Between a service and its PostgreSQL server: cuts connections where it hurts most, which is in COMMIT."""

from __future__ import annotations

import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from tests.postgresql import Server

FENCE = b"FOR KEY SHARE"  # with which each transaction of the one that writes begins
SOCKET = ".s.PGSQL.5432"


class Cut(Enum):
    """Of the connection of a client that says COMMIT."""

    BEFORE = "the server never hears of it"
    AFTER = "the server carries it out and the client never hears of it"
    HELD = "as BEFORE, and the server is not told that the client is gone"


@dataclass
class Proxy:
    server: Server
    folder: Path
    cuts: list[Cut] = field(default_factory=list)  # of the next COMMITs, the first one first
    done: list[Cut] = field(default_factory=list)
    cut_at: tuple[int, Cut] | None = None  # of what the one who writes sends from now on, so many are let through
    is_open: bool = True  # False: who connects is turned away
    flows: threading.Event = field(default_factory=threading.Event)  # cleared: the server seems to hang
    _pairs: list[tuple[socket.socket, socket.socket]] = field(default_factory=list)
    _held: list[socket.socket] = field(default_factory=list)

    def url(self, database_url: str) -> str:
        return database_url.replace(str(self.server.folder), str(self.folder))

    def cut_all(self) -> None:
        for pair in self._pairs:
            _close(*pair)
        self._pairs.clear()

    def accept(self, listening: socket.socket) -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            upstream = socket.socket(socket.AF_UNIX)
            if not self.is_open or upstream.connect_ex(str(self.server.folder / SOCKET)):
                _close(client, upstream)
                continue
            self._pairs.append((client, upstream))
            threading.Thread(target=self._to_server, args=(client, upstream), daemon=True).start()
            threading.Thread(target=self._to_client, args=(client, upstream), daemon=True).start()

    def _to_server(self, client: socket.socket, upstream: socket.socket) -> None:
        writes = False
        with suppress(OSError):
            while data := client.recv(1 << 16):
                writes = writes or FENCE in data
                cut = self._cut_of(data, writes=writes)
                self.flows.wait()
                if cut is None:
                    upstream.sendall(data)
                    continue
                self.done.append(cut)
                match cut:
                    case Cut.BEFORE:
                        _close(client, upstream)
                    case Cut.AFTER:
                        _close(client)
                        upstream.sendall(data)
                    case Cut.HELD:
                        self._held.append(upstream)
                        _close(client)
                return
        if upstream not in self._held:
            _close(client, upstream)

    def _cut_of(self, data: bytes, *, writes: bool) -> Cut | None:
        if writes and self.cut_at is not None:
            count, cut = self.cut_at
            self.cut_at = None if count == 0 else (count - 1, cut)
            return cut if count == 0 else None
        return self.cuts.pop(0) if self.cuts and b"COMMIT" in data else None

    def _to_client(self, client: socket.socket, upstream: socket.socket) -> None:
        with suppress(OSError):
            while data := upstream.recv(1 << 16):
                with suppress(OSError):  # a client that was cut off: what it is told is lost
                    client.sendall(data)
        _close(client, upstream)


def _close(*sockets: socket.socket) -> None:
    for one in sockets:
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()


@contextmanager
def proxy_of(server: Server) -> Iterator[Proxy]:
    folder = Path(tempfile.mkdtemp(prefix="tuner-px-"))
    proxy = Proxy(server, folder)
    proxy.flows.set()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / SOCKET))
        listening.listen(50)
        threading.Thread(target=proxy.accept, args=(listening,), daemon=True).start()
        try:
            yield proxy
        finally:
            proxy.flows.set()
            listening.shutdown(socket.SHUT_RDWR)
            proxy.cut_all()
            _close(*proxy._held)
            shutil.rmtree(folder, ignore_errors=True)

"""A network between an agent and its service that a test can part: an address, which leads to the service."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum

CHUNK = 1 << 16
LOOK_S = 0.2


class Network(Enum):
    WHOLE = "whole"
    CUT = "cut"  # connections break, and no others come about
    SILENT = "silent"  # nothing goes through, and nobody is told


class NetworkProxy:
    """At ``host``, which is one of the addresses of this machine alone, on a port of its own."""

    def __init__(self, host: str, port: int) -> None:
        self._to = (host, port)
        self._network = Network.WHOLE
        self._passes = threading.Event()
        self._passes.set()
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._listening = socket.socket()
        self._is_closed = False

    def listen(self, host: str) -> None:
        self._listening.bind((host, 0))
        self._listening.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        host, port = self._listening.getsockname()
        return f"http://{host}:{port}"

    def become(self, network: Network) -> None:
        """A network that is whole again knows nothing of what stood still, as after minutes without an answer."""
        self._network = network
        if network is Network.SILENT:
            self._passes.clear()
        else:
            self._break_all()
            self._passes.set()

    def close(self) -> None:
        self._is_closed = True
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._break_all()
        self._passes.set()

    def _break_all(self) -> None:
        with self._lock:
            found, self._open = self._open, []
        for one in found:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        """Both ways until either side ends, or the network breaks."""
        self._passes.wait()
        if self._network is Network.CUT or self._is_closed:
            client.close()
            return
        with client, socket.socket() as service:
            if service.connect_ex(self._to):
                return
            with self._lock:
                self._open += [client, service]
            back = threading.Thread(target=self._pass, args=(service, client), daemon=True)
            back.start()
            self._pass(client, service)
            back.join()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(CHUNK):
                self._passes.wait()
                target.sendall(data)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


@contextmanager
def network_to(host: str, port: int, *, at: str) -> Iterator[NetworkProxy]:
    proxy = NetworkProxy(host, port)
    proxy.listen(at)
    try:
        yield proxy
    finally:
        proxy.close()

"""HTTP/1.1 on a plain socket, as much of it as the client needs.

``http.client`` brings a parser of mail and TLS along, which take longer to import than most commands take to run.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import IO, TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from http.client import HTTPSConnection

LINE_BYTES = 65_536  # a longer one is no answer of HTTP's
HEADERS_LIMIT = 200
PIECE_BYTES = 1 << 18
_WITHOUT_BODY = frozenset({204, 304})


def connection_to(url: str, timeout_s: float) -> PlainConnection | HTTPSConnection:
    """For requests to the service at ``url``; nothing is opened yet."""
    parts = urlsplit(url)
    if parts.scheme != "https":
        return PlainConnection(parts.hostname or "", parts.port, timeout_s)
    from http.client import HTTPSConnection

    return HTTPSConnection(parts.hostname or "", parts.port, timeout=timeout_s)


def failures() -> tuple[type[Exception], ...]:
    """What a connection raises when the other side is away or goes away."""
    used = sys.modules.get("http.client")  # only for encrypted ones
    return (OSError,) if used is None else (OSError, used.HTTPException)


class BrokenAnswerError(ConnectionError):
    """What came is not HTTP, or ended before its end."""


class PlainConnection:
    """One request at a time, each answer read to its end before the next. Opened by a request.

    OSError wherever the other side is away, goes away, or says what is no HTTP.
    """

    def __init__(self, host: str, port: int | None, timeout: float) -> None:
        self.timeout = timeout
        self.sock: socket.socket | None = None
        self._address = (host, port or 80)
        shown = f"[{host}]" if ":" in host else host
        self._host = shown if port is None else f"{shown}:{port}"
        self._stream: IO[bytes] | None = None

    def request(self, method: str, target: str, body: bytes | None = None, *, headers: Mapping[str, str]) -> None:
        """Send it whole. ValueError where a part of it would be read as more than one line."""
        fields = {"Host": self._host, "Accept-Encoding": "identity", **headers}
        if body is not None:
            fields["Content-Length"] = str(len(body))
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
        if " " in target or any("\r" in line or "\n" in line for line in lines):
            raise ValueError(f"a request holds no line breaks, and its target no spaces: {target!r}")
        if self.sock is None:
            self.sock = socket.create_connection(self._address, self.timeout)
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._stream = self.sock.makefile("rb")
        self.sock.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b""))

    def getresponse(self) -> PlainResponse:
        """The answer, as far as its headers; the rest comes when it is read."""
        if self._stream is None:
            raise BrokenAnswerError("no request was sent")
        return PlainResponse(self._stream, self.close)

    def close(self) -> None:
        """Safe to repeat."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        if self.sock is not None:
            self.sock.close()
            self.sock = None


class PlainResponse:
    """An answer on ``stream``; ``close`` is called at its end where no other can follow."""

    def __init__(self, stream: IO[bytes], close: Callable[[], None]) -> None:
        self._stream, self._close = stream, close
        version, self.status, self.headers = self._head()
        while 100 <= self.status < 200:  # the answer is on its way
            version, self.status, self.headers = self._head()
        known = {name.lower(): value.lower() for name, value in self.headers.items()}
        self._is_last = version == "HTTP/1.0" or known.get("connection") == "close"
        self._pieces = self._body(known)

    def read(self, amount: int | None = None) -> bytes:
        """Everything; with ``amount`` the next piece, however long, and nothing at the end."""
        return b"".join(self._pieces) if amount is None else next(self._pieces, b"")

    def _head(self) -> tuple[str, int, dict[str, str]]:
        line = self._line()
        version, _, rest = line.partition(" ")
        if not version.startswith("HTTP/1.") or not rest[:3].isdecimal() or len(rest) < 3:
            raise BrokenAnswerError(f"not an answer of HTTP: {line[:100]!r}")
        headers: dict[str, str] = {}
        while line := self._line():
            name, _, value = line.partition(":")
            headers[name] = value.strip()
            if len(headers) > HEADERS_LIMIT:
                raise BrokenAnswerError(f"an answer with more than {HEADERS_LIMIT} headers")
        return version, int(rest[:3]), headers

    def _line(self) -> str:
        line = self._stream.readline(LINE_BYTES)
        if not line.endswith(b"\n"):
            raise BrokenAnswerError(f"the answer broke off, or has no lines: {line[:100]!r}")
        return line.rstrip(b"\r\n").decode("latin-1")

    def _body(self, headers: Mapping[str, str]) -> Iterator[bytes]:
        if self.status in _WITHOUT_BODY:
            yield from ()
        elif headers.get("transfer-encoding") == "chunked":
            while size := _number(self._line().partition(";")[0], 16):
                yield from self._counted(size)
                self._line()
            while self._line():  # what may follow the last piece
                pass
        elif "content-length" in headers:
            yield from self._counted(_number(headers["content-length"], 10))
        else:
            self._is_last = True
            while piece := self._stream.read(PIECE_BYTES):
                yield piece
        if self._is_last:
            self._close()

    def _counted(self, size: int) -> Iterator[bytes]:
        while size:
            piece = self._stream.read(min(size, PIECE_BYTES))
            if not piece:
                raise BrokenAnswerError(f"the answer broke off; {size} bytes are missing")
            size -= len(piece)
            yield piece


def _number(text: str, base: int) -> int:
    try:
        number = int(text, base)
    except ValueError as exc:
        raise BrokenAnswerError(f"not a length: {text[:100]!r}") from exc
    if number < 0:
        raise BrokenAnswerError(f"not a length: {text[:100]!r}")
    return number

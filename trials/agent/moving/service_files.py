"""Files of a service elsewhere, over HTTP: what ``trials.stores`` asks of a file system, and no more.

A download that breaks off goes on where it was, and so does an upload, even by the next agent: the service says how
much of the very same bytes it has. Every call blocks, and is made by threads.
"""

from __future__ import annotations

import hashlib
import http.client
import io
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from trials.agent.ways import ServiceAddress, Way
from trials.stores import BrokenOffError, set_service_files
from trials.wire.remote_files import DIGEST, LISTING, LOOK, OFFSET, PIECE_BYTES, SCHEME, SIZE

TIMEOUT_S = 60.0
BREAKS = 8  # in a row, without a byte between them; then the store counts as away
PAUSE_S, PAUSE_MAX_S = 0.25, 8.0
WAIT_S = 30.0  # so long at once for one's turn
KEPT_OPEN, KEPT_OPEN_S = 4, 3.0  # connections, for further requests; a service closes them after 5 s
REST_BYTES = 64 << 10  # of an answer that nobody has read; with more its connection is closed
READ_BYTES = 1 << 20
OK, PARTIAL, NO_CONTENT, NOT_FOUND, CONFLICT, RANGE = 200, 206, 204, 404, 409, 416
SERVER_FAULTS = 500
logger = logging.getLogger(__name__)


class Pace:
    """No more bytes a second than this, over all threads; 0: as fast as it goes."""

    def __init__(self, bytes_a_second: float = 0.0) -> None:
        self._rate = bytes_a_second
        self._lock = threading.Lock()
        self._free_at = 0.0

    def take(self, size: int, waits: Callable[[], None] = lambda: None) -> None:
        """Waits until ``size`` further bytes may go; ``waits`` is called now and then while it does."""
        if self._rate <= 0:
            return
        with self._lock:
            now = time.monotonic()
            self._free_at = max(now, self._free_at) + size / self._rate
            wait = self._free_at - now
        while wait > WAIT_S:
            time.sleep(WAIT_S)
            waits()
            wait -= WAIT_S
        time.sleep(max(0.0, wait))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Open:
    """A connection whose last answer was read to its end."""

    address: ServiceAddress
    connection: http.client.HTTPConnection
    since: float


class ServiceFiles:
    """Of the service at the end of ``way``, for the agent ``agent_id``."""

    def __init__(self, way: Way, *, agent_id: str, pace: Pace | None = None) -> None:
        self._way, self._agent_id = way, agent_id
        self._pace = pace or Pace()
        self._sent: dict[str, int] = {}  # sizes of what the service has taken in, until they are asked for
        self._lock = threading.Lock()
        self._open: list[_Open] = []  # connections for further requests, the newest last

    def use(self) -> None:
        """From now on ``tuner:///…`` is understood by this process."""
        set_service_files(self)

    # ── as a file system of fsspec ──────────────────────────────────────────────────────────────
    def invalidate_cache(self) -> None:
        """There is none."""

    def makedirs(self, path: str, **_: bool) -> None:
        """The service makes them."""

    def info(self, path: str) -> dict[str, Any]:
        size = self._sent.pop(path, None)
        return {"name": path, "size": int(self._head(path).get(SIZE) or 0) if size is None else size, "type": "file"}

    def isdir(self, path: str) -> bool:
        return self._head(path).get(LISTING) is not None

    def ls(self, path: str, detail: bool = False) -> list[Any]:  # noqa: FBT001, FBT002  as fsspec has it
        names = [f"{path}/{name}" for name in (self._head(path).get(LISTING) or "").split("/") if name]
        return [self.info(name) for name in names] if detail else names

    def open(self, path: str, mode: str = "rb") -> io.BufferedReader:
        """From its beginning; a connection that breaks is made again."""
        assert mode == "rb"
        return io.BufferedReader(_Download(self, path), READ_BYTES)

    def get_file(self, path: str, target: str) -> None:
        with self.open(path) as reading, Path(target).open("wb") as writing:
            while block := reading.read(READ_BYTES):
                writing.write(block)

    def cat_file(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        with self.open(path) as reading:
            reading.raw.begin_at(start)  # type: ignore[attr-defined]  # it is a _Download
            return reading.read(-1 if end is None else end - start)

    def put_file(self, source: str, path: str, callback: Any = None) -> None:
        """Whole and verified at the service when this returns. What it has of the very same bytes is not sent again."""
        with Path(source).open("rb") as file:
            size, digest = os.fstat(file.fileno()).st_size, hashlib.file_digest(file, "sha256").hexdigest()
            said = {SIZE: str(size), DIGEST: digest}
            waits = (lambda: None) if callback is None else lambda: callback.relative_update(0)
            # What goes in one piece is sent at once: where some of it is there, the answer says how much.
            offset = 0 if size <= PIECE_BYTES else self._again(lambda: self._offset(path, said))
            requests = 0
            while offset < size or (requests == 0 and size == 0):
                requests += 1
                if requests > 3 * (size // PIECE_BYTES) + 10:
                    raise OSError(f"{path}: the service does not take its pieces in their order")
                file.seek(offset)
                piece = file.read(min(PIECE_BYTES, size - offset))  # of a file that has become longer: what was hashed
                if size and not piece:
                    raise OSError(f"{path}: its file has become shorter while it was sent")
                self._pace.take(len(piece), waits)
                offset = self._again(lambda piece=piece, at=offset: self._put_piece(path, piece, at, said))  # type: ignore[misc]
                if callback is not None:
                    callback.relative_update(len(piece))
        self._sent[path] = size

    def rm(self, path: str, recursive: bool = True) -> None:  # noqa: FBT001, FBT002  as fsspec has it
        """The service removes what its rows no longer name."""

    # ── requests ────────────────────────────────────────────────────────────────────────────────
    def _head(self, path: str) -> Any:
        def ask() -> Any:
            with self.asked("GET", path, headers={LOOK: "1"}) as answer:
                return answer.headers

        return self._again(ask)

    def _offset(self, path: str, said: dict[str, str]) -> int:
        try:
            with self.asked("GET", path, headers=said) as answer:
                return int(answer.headers.get(OFFSET) or 0)
        except FileNotFoundError:
            return 0

    def _put_piece(self, path: str, piece: bytes, offset: int, said: dict[str, str]) -> int:
        headers = said | {OFFSET: str(offset), "Content-Type": "application/octet-stream"}
        with self.asked("PUT", path, headers=headers, body=piece, takes=(NO_CONTENT, CONFLICT)) as answer:
            return int(answer.headers.get(OFFSET) or 0)

    def _again(self, work: Callable[[], Any]) -> Any:
        """``work``, tried again while the service cannot be reached."""
        for attempt in range(BREAKS):
            try:
                return work()
            except BrokenOffError as error:
                if attempt + 1 == BREAKS:
                    raise
                logger.info("transfer_broken_off", extra={"error": error})
                time.sleep(min(PAUSE_S * 2**attempt, PAUSE_MAX_S))
        raise AssertionError  # the last of them raises or returns

    @contextmanager
    def asked(
        self,
        method: str,
        path: str,
        *,
        headers: dict[str, str] | None = None,
        body: bytes | None = None,
        takes: tuple[int, ...] = (OK, PARTIAL, NO_CONTENT),
    ) -> Iterator[http.client.HTTPResponse]:
        """The answer to one request, which has its connection alone. FileNotFoundError; BrokenOffError; OSError."""
        address = self._way.address()
        if address is None:
            raise BrokenOffError("no service is known")
        try:
            said = {"Authorization": f"Bearer {self._way.token()}"} | (headers or {})
        except OSError as error:  # it is being exchanged, say
            raise BrokenOffError(str(error)) from error
        connection, answer = self._answered(address, method, self._target(path), body, said)
        stays = False
        try:
            if answer.status not in takes:
                raise _error_of(answer, path)
            yield answer
            if answer.length is not None and answer.length <= REST_BYTES:
                answer.read()
            stays = answer.isclosed() and not answer.will_close
        finally:
            if stays:
                self._keep_open(address, connection)
            else:
                connection.close()

    def _answered(
        self, address: ServiceAddress, method: str, target: str, body: bytes | None, headers: dict[str, str]
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """On a connection that is open already, or a new one. A request that is made twice does nothing twice."""
        while True:
            kept = self._kept_open(address)
            connection = self._connection(address) if kept is None else kept
            try:
                connection.request(method, target, body=body, headers=headers)
                return connection, connection.getresponse()
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                if kept is None:
                    raise BrokenOffError(f"{address.url}: {error!r}") from error

    def _kept_open(self, address: ServiceAddress) -> http.client.HTTPConnection | None:
        """The one that was used last, if it is to the same service and not too old."""
        while True:
            with self._lock:
                if not self._open:
                    return None
                one = self._open.pop()
            if one.address == address and time.monotonic() - one.since < KEPT_OPEN_S:
                return one.connection
            one.connection.close()

    def _keep_open(self, address: ServiceAddress, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            self._open.append(_Open(address=address, connection=connection, since=time.monotonic()))
            oldest = self._open.pop(0) if len(self._open) > KEPT_OPEN else None
        if oldest is not None:
            oldest.connection.close()

    def _connection(self, address: ServiceAddress) -> http.client.HTTPConnection:
        parts = urlsplit(address.url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
        try:
            opened, tls = self._way.opened(address), self._way.tls(address)
            opened.settimeout(TIMEOUT_S)
            connection.sock = opened if tls is None else tls.wrap_socket(opened, server_hostname=parts.hostname)
        except OSError as error:
            raise BrokenOffError(f"{address.url}: {error}") from error
        return connection

    def _target(self, path: str) -> str:
        return f"/api/v1/agents/{quote(self._agent_id)}/files/{quote(path.removeprefix(SCHEME).strip('/'))}"

    def paced(self, size: int) -> None:
        self._pace.take(size)


class _Download(io.RawIOBase):
    """A file read from its beginning on, over as many connections as that takes."""

    def __init__(self, files: ServiceFiles, path: str) -> None:
        self._files, self._path = files, path
        self._at, self._size = 0, int(files.info(path)["size"])
        self._answer: http.client.HTTPResponse | None = None
        self._open: Any = None
        self._breaks = 0

    def begin_at(self, offset: int) -> None:
        self._at = offset

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while self._at < self._size:
            try:
                data: bytes = self._connected().read(min(len(buffer), self._size - self._at))
                if not data:
                    raise BrokenOffError("the answer was cut off")
            except (OSError, http.client.HTTPException) as error:
                self._break_off(error)
                continue
            self._breaks = 0
            self._at += len(data)
            buffer[: len(data)] = data
            self._files.paced(len(data))
            return len(data)
        return 0

    def _connected(self) -> http.client.HTTPResponse:
        if self._answer is None:
            self._open = self._files.asked("GET", self._path, headers={"Range": f"bytes={self._at}-{self._size - 1}"})
            self._answer = self._open.__enter__()
            if self._answer.status == OK and self._at:
                raise OSError(f"{self._path}: the service sent all of it, not the part from {self._at}")
        return self._answer

    def _break_off(self, error: Exception) -> None:
        self._end_answer()
        self._breaks += 1
        is_passing = isinstance(error, BrokenOffError | http.client.HTTPException | ConnectionError | TimeoutError)
        if not is_passing or self._breaks >= BREAKS:
            raise error
        logger.info("transfer_broken_off", extra={"path": self._path, "at": self._at, "error": repr(error)})
        time.sleep(min(PAUSE_S * 2**self._breaks, PAUSE_MAX_S))

    def _end_answer(self) -> None:
        if self._open is not None:
            self._open.__exit__(None, None, None)
        self._open = self._answer = None

    def close(self) -> None:
        self._end_answer()
        super().close()


def _error_of(answer: http.client.HTTPResponse, path: str) -> OSError:
    text = answer.read(2_000).decode(errors="replace")
    if answer.status == NOT_FOUND:
        return FileNotFoundError(f"{path} is not there")
    if answer.status >= SERVER_FAULTS:
        return BrokenOffError(f"status {answer.status}: {text}")
    return OSError(f"{path}: status {answer.status}: {text}")

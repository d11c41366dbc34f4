"""Trials that ask for a shared data server: over a stream socket beside the wake socket, in one line of JSON.

The answer is one line, too: the socket of the server, or why there is none. The trial then decodes for itself.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trials.agent.wake import OwnSocket
from trials.files import ATTEMPT_BYTES, is_full_disk, read_json
from trials.wire.files import FILE_ATTEMPT
from trials.wire.peers import accepted, is_own_user
from trials.wire.plain import ProtocolError, from_plain

REQUEST_BYTES = 64 << 10
REQUEST_TIMEOUT_S = 10.0
ASKING_MAX = 256  # trials at a time; a further one is told so
logger = logging.getLogger(__name__)
FindAttempt = Callable[[str], Path | None]  # the folder of a running attempt, by its nonce


class NotServedError(Exception):
    """No server for this dataset; the text tells the trial why, and it decodes for itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    shuffle: bool = True
    block_size: int
    group_seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a trial asks for. Everything but the nonce and the sizes decides which server it is."""

    nonce: str
    factory: str
    arguments: dict[str, Any]
    order: Order
    memory_bytes: int
    workers: int


def key_of(request: Request, attempt: dict[str, Any]) -> str:
    """Which server: of this code, interpreter, environment, dataset and order."""
    spec = attempt["spec"]
    order = request.order
    parts = [
        spec.get("code_digest"),
        spec.get("python") or attempt["local"]["python"],
        sorted(spec.get("environment", {}).items()),
        sorted(spec.get("pass_environment", ())),
        sorted(spec.get("secrets", {}).items()),
        request.factory,
        request.arguments,
        [order.shuffle, order.block_size, order.group_seed],
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


class RequestSocket:
    """Answers trials, in the agent's event loop. ``serve`` has a server for the request of an attempt, or raises."""

    def __init__(
        self, path: Path, find_attempt: FindAttempt, *, serve: Callable[[Request, dict[str, Any]], Awaitable[Path]]
    ) -> None:
        self._path = path
        self._find = find_attempt
        self._serve = serve
        self._asking: set[asyncio.Task[None]] = set()
        self._own: OwnSocket | None = None

    def open(self) -> None:
        self._own = OwnSocket(self._path, socket.SOCK_STREAM, listens=lambda made: made.listen(ASKING_MAX))
        asyncio.get_running_loop().add_reader(self._own.socket, self._accept)

    def see_to_it(self) -> None:
        """Listen again where the file was taken away."""
        old = None if self._own is None else self._own.made_again()
        if self._own is not None and old is not None:
            loop = asyncio.get_running_loop()
            loop.remove_reader(old)
            old.close()
            loop.add_reader(self._own.socket, self._accept)

    async def close(self) -> None:
        """Trials that wait for an answer get none, and decode for themselves."""
        if self._own is not None:
            asyncio.get_running_loop().remove_reader(self._own.socket)
            self._own.close()
        for task in self._asking:
            task.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)

    def _accept(self) -> None:
        assert self._own is not None
        connection = accepted(self._own.socket)
        if connection is None:
            return
        if len(self._asking) >= ASKING_MAX or not is_own_user(connection):
            connection.close()
            return
        task = asyncio.ensure_future(self._converse(connection))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _converse(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with connection:
            try:
                async with asyncio.timeout(REQUEST_TIMEOUT_S):
                    line = await _read_line(connection)
                answer = {"socket": str(await self._answer(_read_request(line)))}
            except (NotServedError, ProtocolError, TimeoutError) as error:
                logger.warning("data_not_served", extra={"error": error})
                answer = {"error": str(error) or "the request did not come in time"}
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                answer = {"error": f"the attempt's {FILE_ATTEMPT} is damaged: {error!r}"}
                logger.error("data_not_served", extra={"error": repr(error)})
            except OSError as error:
                answer = {"error": f"the server cannot be started: {error}", "again": str(is_full_disk(error))}
                logger.error("data_not_served", extra={"error": error})
            try:
                await loop.sock_sendall(connection, json.dumps(answer).encode() + b"\n")
            except OSError as error:
                logger.debug("asker_gone", extra={"error": error})

    async def _answer(self, request: Request) -> Path:
        folder = self._find(request.nonce)
        attempt = None if folder is None else read_json(str(folder / FILE_ATTEMPT), limit=ATTEMPT_BYTES)
        if attempt is None or folder is None:
            raise NotServedError(f"no attempt with nonce {request.nonce!r} runs here")
        return await self._serve(request, attempt)


def _read_request(line: bytes) -> Request:
    try:
        request: Request = from_plain(Request, json.loads(line), where="request")
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"not understood: {error}") from error
    return request


async def _read_line(connection: socket.socket) -> bytes:
    loop = asyncio.get_running_loop()
    data = b""
    while not data.endswith(b"\n"):
        part = await loop.sock_recv(connection, REQUEST_BYTES)
        data += part
        if not part or len(data) > REQUEST_BYTES:
            raise ProtocolError(f"a request is one line of at most {REQUEST_BYTES} bytes")
    return data

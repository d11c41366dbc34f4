"""Finding the service, connecting to it, and connecting again."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
from dataclasses import dataclass
from enum import Enum
from urllib.parse import urlsplit

from websockets.asyncio.client import connect
from websockets.exceptions import InvalidHandshake, InvalidURI

from trials.agent.agent import Agent
from trials.agent.conversation import Conversation, OrderedToLeaveError, RefusedError
from trials.agent.home import Home
from trials.wire.limits import MESSAGE_LIMIT_BYTES
from trials.wire.peers import require_peer
from trials.wire.plain import ProtocolError

SERVICE_POLL_S = 0.2  # a new service.json is noticed this soon
BACKOFF_FIRST_S = 0.2
BACKOFF_MAX_S = 5.0
REFUSED_PAUSE_S = 30.0
OPEN_TIMEOUT_S = 5.0
HTTP_PORT = 80
CLOSE_TIMEOUT_S = 1.0
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAddress:
    """Where the service listens, and as which process; ``stamp`` differs whenever its file was written anew."""

    url: str
    pid: int
    stamp: tuple[int, int]


class Outcome(Enum):
    """Of one attempt to talk to the service."""

    TALKED = "talked"
    REFUSED = "refused"
    ORDERED_TO_LEAVE = "ordered_to_leave"
    FAILED = "failed"


class _ConnectHere(connect):
    """Follows no redirect: the answer that is one is the error."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


class Channel:
    """Connected whenever a service can be reached."""

    def __init__(self, agent: Agent, *, agent_id: str, idle_exit_s: float) -> None:
        self._agent = agent
        self._agent_id = agent_id
        self._idle_exit_s = idle_exit_s
        self._asked = asyncio.Event()

    def connect_now(self) -> None:
        self._asked.set()

    async def run(self) -> None:
        """Returns when there was neither a service nor a running trial for ``idle_exit_s``, or the service says so."""
        tried: ServiceAddress | None = None
        pause, next_try = BACKOFF_FIRST_S, 0.0
        idle_since = time.monotonic()
        while True:
            address = service_address(self._agent.home)
            due = address != tried or self._asked.is_set() or time.monotonic() >= next_try
            if address is not None and due:
                self._asked.clear()
                outcome = await self._converse(address)
                if outcome is Outcome.ORDERED_TO_LEAVE:
                    return
                failed_again = outcome is Outcome.FAILED and address == tried
                pause = min(pause * 2, BACKOFF_MAX_S) if failed_again else BACKOFF_FIRST_S
                next_try = time.monotonic() + (REFUSED_PAUSE_S if outcome is Outcome.REFUSED else pause)
                tried = address
                if outcome is Outcome.TALKED:
                    idle_since = time.monotonic()
            if not self._agent.is_idle():
                idle_since = time.monotonic()
            elif time.monotonic() - idle_since >= self._idle_exit_s:
                return
            await self._wait()

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(SERVICE_POLL_S):
                await self._asked.wait()
        except TimeoutError:
            return

    async def _converse(self, address: ServiceAddress) -> Outcome:
        """One connection from beginning to end."""
        uri = f"ws{address.url.removeprefix('http').rstrip('/')}/api/v1/agents/{self._agent_id}/channel"
        try:
            token_file = self._agent.home.agent / "token"
            token = token_file.read_text(encoding="utf-8").strip()
            connecting = _ConnectHere(
                uri,
                sock=await asyncio.to_thread(connected, address, uid=token_file.stat().st_uid),
                additional_headers={"Authorization": f"Bearer {token}"},
                proxy=None,  # a proxy for the web is not the way to the service of this node
                compression=None,
                open_timeout=OPEN_TIMEOUT_S,
                close_timeout=CLOSE_TIMEOUT_S,
                max_size=MESSAGE_LIMIT_BYTES,
            )
            async with connecting as connection:
                await Conversation(self._agent, connection, agent_id=self._agent_id).run()
            return Outcome.TALKED
        except RefusedError as error:
            logger.error("refused", extra={"url": address.url, "reason": error})
            return Outcome.REFUSED
        except OrderedToLeaveError as error:
            logger.warning("ordered_to_leave", extra={"url": address.url, "reason": error})
            return Outcome.ORDERED_TO_LEAVE
        except (OSError, TimeoutError, InvalidHandshake, InvalidURI, ProtocolError) as error:
            logger.info("not_connected", extra={"url": address.url, "error": repr(error)})
        return Outcome.FAILED


def connected(address: ServiceAddress, *, uid: int) -> socket.socket:
    """A connection whose other end is the service that the address names, of the user ``uid``; OSError without one.

    Whoever else has the address by now would be sent the agent's token, and would say what runs here. What is sent
    later goes through this connection only: a redirect is not followed.
    """
    parts = urlsplit(address.url)
    if parts.scheme != "http" or parts.hostname is None:
        raise ProtocolError(f"a service of this machine has an address that begins with http://, not {address.url!r}")
    connection = socket.create_connection((parts.hostname, parts.port or HTTP_PORT), OPEN_TIMEOUT_S)
    try:
        require_peer(connection, pid=address.pid, uid=uid, timeout_s=OPEN_TIMEOUT_S)
    except BaseException:
        connection.close()
        raise
    return connection


def service_address(home: Home) -> ServiceAddress | None:
    """What service.json says; None when there is none or it is being written."""
    try:
        stat = home.service_file.stat()
        data = json.loads(home.service_file.read_bytes())
        return ServiceAddress(url=str(data["url"]), pid=int(data["pid"]), stamp=(stat.st_mtime_ns, stat.st_ino))
    except (OSError, ValueError, LookupError, TypeError):
        return None

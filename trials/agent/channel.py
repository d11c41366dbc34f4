"""Finding the service, connecting to it, and connecting again."""

from __future__ import annotations

import asyncio
import logging
import time
from enum import Enum
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, InvalidStatus, InvalidURI

from trials.agent.agent import Agent
from trials.agent.conversation import Conversation, OrderedToLeaveError, RefusedError
from trials.agent.moving.joined import keep_sending_owed
from trials.agent.patience import Patience
from trials.agent.threads import in_own_thread
from trials.agent.ways import OPEN_TIMEOUT_S, ServiceAddress, TokenFileError, Way
from trials.wire.addresses import ACTIVE_HEADER
from trials.wire.limits import MESSAGE_LIMIT_BYTES
from trials.wire.messages import Welcome
from trials.wire.plain import ProtocolError

SERVICE_POLL_S = 0.2  # a new service.json is noticed this soon
FOLLOW_POLL_S = 0.25  # likewise, while there is a connection to the service before
BACKOFF_FIRST_S = 0.2
BACKOFF_MAX_S = 5.0
REFUSED_PAUSE_S = 30.0
CLOSE_TIMEOUT_S = 1.0
logger = logging.getLogger(__name__)


class Outcome(Enum):
    """Of one attempt to talk to the service."""

    TALKED = "talked"
    REFUSED = "refused"
    ORDERED_TO_LEAVE = "ordered_to_leave"
    SENT_ON = "sent_on"
    FAILED = "failed"


class _ConnectHere(connect):
    """Follows no redirect: the answer that is one is the error."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


class Channel:
    """Connected whenever a service can be reached."""

    def __init__(
        self, agent: Agent, *, way: Way, agent_id: str, idle_exit_s: float, lost_exit_s: float | None = None
    ) -> None:
        self._agent, self._way = agent, way
        self._agent_id = agent_id
        self._idle_exit_s, self._lost_exit_s = idle_exit_s, lost_exit_s
        self._asked = asyncio.Event()
        self._patience = Patience(agent.home)
        self._talked_at = time.monotonic()
        self._is_welcome = False  # on the connection at hand

    def connect_now(self) -> None:
        self._asked.set()

    async def run(self) -> bool:
        """Returns when for ``idle_exit_s`` there was no service, none on its way and no trial, or the service says so.

        True: there was no service for ``lost_exit_s``, and trials run.
        """
        tried: ServiceAddress | None = None
        pause, next_try = BACKOFF_FIRST_S, 0.0
        idle_since = self._talked_at = time.monotonic()
        while True:
            address = self._way.address()
            is_elsewhere = address != tried and self._way.is_told  # of several addresses each has its turn
            due = is_elsewhere or self._asked.is_set() or time.monotonic() >= next_try
            self._asked.clear()  # also where no service is to be found: else nothing would be waited for any more
            if address is not None and due:
                outcome = await self._converse(address)
                if outcome is Outcome.ORDERED_TO_LEAVE:
                    return False
                failed_again = outcome is Outcome.FAILED and tried is not None and not is_elsewhere
                if outcome is Outcome.FAILED:
                    self._way.failed()
                if outcome is not Outcome.SENT_ON:
                    pause = min(pause * 2, BACKOFF_MAX_S) if failed_again else BACKOFF_FIRST_S
                pauses = {Outcome.REFUSED: REFUSED_PAUSE_S, Outcome.SENT_ON: 0.0}
                next_try = time.monotonic() + pauses.get(outcome, pause)
                tried = address
                if outcome is Outcome.TALKED:
                    idle_since = time.monotonic()
            if not self._agent.is_idle() or self._way.is_coming():
                idle_since = time.monotonic()
            elif time.monotonic() - idle_since >= self._idle_exit_s:
                return False
            away_s = time.monotonic() - self._talked_at
            if self._lost_exit_s is None:
                self._patience.look(self._agent, away_s=away_s)
            elif away_s >= self._lost_exit_s:
                return True
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
            token = self._way.token()  # first: without one, no connection is to be closed again
            tls, host = self._way.tls(address), urlsplit(address.url).hostname
            connecting = _ConnectHere(
                uri,
                sock=await in_own_thread(self._way.opened, address),
                ssl=tls,
                server_hostname=None if tls is None else host,
                additional_headers={"Authorization": f"Bearer {token}"},
                proxy=None,  # a proxy for the web is not the way to the service of this node
                compression=None,
                open_timeout=OPEN_TIMEOUT_S,
                close_timeout=CLOSE_TIMEOUT_S,
                max_size=MESSAGE_LIMIT_BYTES,
            )
            async with connecting as connection:
                talk = Conversation(self._agent, connection, agent_id=self._agent_id, on_welcome=self._welcomed)
                beside = [asyncio.ensure_future(self._follow(connection, address))]
                if self._agent.facts.is_joined:
                    beside.append(asyncio.ensure_future(keep_sending_owed(self._agent.home)))
                try:
                    await talk.run()
                finally:
                    for one in beside:
                        one.cancel()
            return Outcome.TALKED
        except RefusedError as error:
            logger.error("refused", extra={"url": address.url, "reason": error})
            return Outcome.REFUSED
        except OrderedToLeaveError as error:
            logger.warning("ordered_to_leave", extra={"url": address.url, "reason": error})
            return Outcome.ORDERED_TO_LEAVE
        except InvalidStatus as error:
            if self._way.sent_on(error.response.headers.get(ACTIVE_HEADER)):
                logger.info("sent_on_by_a_standby", extra={"url": address.url, "to": self._way.address()})
                return Outcome.SENT_ON
            logger.warning("not_let_in", extra={"url": address.url, "why": _why(error)})
        except TokenFileError as error:
            logger.warning("token_not_sent", extra={"url": address.url, "why": error})
        except (OSError, TimeoutError, InvalidHandshake, InvalidURI, ProtocolError) as error:
            logger.info("not_connected", extra={"url": address.url, "error": repr(error)})
        except Exception:  # whatever it is: the trials of the node need an agent that tries again
            logger.exception("connection_failed", extra={"url": address.url})
        finally:
            if self._is_welcome:
                self._is_welcome, self._talked_at = False, time.monotonic()
        return Outcome.FAILED

    async def _follow(self, connection: ClientConnection, address: ServiceAddress) -> None:
        """Ends the connection when another service is named.

        A service that hangs holds its end of it for as long as its process is there, and sends nothing; pings would
        find that out much later than the standby has taken over.
        """
        while self._way.is_told:
            await asyncio.sleep(FOLLOW_POLL_S)
            now = self._way.address()
            if now is not None and (now.url, now.pid) != (address.url, address.pid):
                logger.warning("service_is_elsewhere", extra={"url": address.url, "now": now.url})
                connection.transport.abort()
                return

    def _welcomed(self, welcome: Welcome) -> None:
        self._is_welcome = True
        self._patience.welcomed(welcome.service_lost_s)


def _why(error: InvalidStatus) -> str:
    """For people: what the service says to a connection that it does not take."""
    status = error.response.status_code
    known = {
        401: "the service does not know the token; `tuner token add NAME --role agent --file F` makes one",
        403: "the token is not for the agent of this name; `tuner token add NAME --role agent --file F` makes one",
    }
    return known.get(status, f"status {status}")

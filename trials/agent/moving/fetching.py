"""Trials that want to go on from another trial's checkpoint: asked of the service, fetched, laid out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeGuard

from trials.agent.attempts import HeldAttempt
from trials.agent.home import Home, plain_name
from trials.agent.moving.blobs import BlobReceiver, ConnectionLostError
from trials.agent.moving.restoring import lay_out
from trials.files import read_json
from trials.wire.checkpoints import CheckpointsFound, CheckpointsWanted
from trials.wire.files import FILE_RESTORE, FILE_WANTED, FOLDER_WANTED
from trials.wire.limits import STEP_MAX
from trials.wire.messages import Message
from trials.wire.plain import ProtocolError

NOT_UNDERSTOOD = f"the request names no trial and step: both are whole numbers from 0 to {STEP_MAX}"
ASKED_REMEMBERED = 10_000  # requests on one connection; a script that still waits for an older one asks again
logger = logging.getLogger(__name__)


class CheckpointFetches:
    """On one connection. A script asks by a file, and waits for another one; it asks for one thing at a time."""

    def __init__(self, home: Home, *, blobs: BlobReceiver, send: Callable[[Message], Awaitable[None]]) -> None:
        self._home = home
        self._blobs = blobs
        self._send = send
        self._asked: dict[str, HeldAttempt] = {}  # by request
        self._tasks: set[asyncio.Task[None]] = set()

    async def look(self, held: HeldAttempt) -> None:
        """Ask the service what the script of ``held`` wants, if it wants anything that it was not asked yet.

        What makes no sense is answered with an error, or passed over where not even the answer has a place.
        """
        wanted = read_json(str(held.folder / FILE_WANTED))
        if wanted is None or (request := _request_id(wanted)) is None or request in self._asked:
            return
        if (held.folder / FOLDER_WANTED.format(id=request) / FILE_RESTORE).exists():
            return
        number, step = wanted.get("number"), wanted.get("step")
        self._asked[request] = held
        while len(self._asked) > ASKED_REMEMBERED:
            del self._asked[next(iter(self._asked))]
        if not _is_count(number) or not (step is None or _is_count(step)):
            logger.warning(
                "request_refused", extra={"nonce": held.nonce, "number": f"{number!r:.100}", "step": f"{step!r:.100}"}
            )
            self.found(CheckpointsFound(request_id=request, nonce=held.nonce, error=NOT_UNDERSTOOD))
        else:
            await self._send(
                CheckpointsWanted(
                    request_id=request,
                    nonce=held.nonce,
                    experiment_id=held.key.experiment_id,
                    number=number,
                    step=step,
                )
            )

    def found(self, answer: CheckpointsFound) -> None:
        held = self._asked.get(answer.request_id)
        if held is None:
            return
        task = asyncio.ensure_future(self._lay_out(held, answer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _lay_out(self, held: HeldAttempt, answer: CheckpointsFound) -> None:
        folder = held.folder / FOLDER_WANTED.format(id=answer.request_id)
        try:
            await lay_out(self._home, folder, answer.checkpoints, self._blobs, error=answer.error)
        except ConnectionLostError:
            return  # asked again on the next connection
        except (OSError, ValueError, LookupError, TypeError) as error:
            logger.error("checkpoints_not_fetched", extra={"nonce": held.nonce, "error": repr(error)})
            self._asked.pop(answer.request_id, None)  # asked again when the script wakes the agent the next time

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _request_id(wanted: dict[str, Any]) -> str | None:
    """What the answer's folder is named after; None where that is no name."""
    try:
        return plain_name(str(wanted.get("id"))[:200], what="request")
    except ProtocolError:
        return None


def _is_count(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= STEP_MAX

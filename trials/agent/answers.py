"""What the service answers to reports: one answer to each message with reports of an attempt, in their order."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from trials.agent.attempts import HeldAttempt
from trials.wire.messages import Acknowledge, Busy


class Answers:
    """Waited for by attempt; of one attempt there is one message at a time that waits for its answer."""

    def __init__(self, held: Mapping[str, HeldAttempt]) -> None:
        self._held = held  # by nonce
        self._waiting: dict[str, asyncio.Future[Acknowledge | Busy]] = {}
        # Nonces of whose reports some were sent again: an answer to the first ones is to come.
        self._overtaken: set[str] = set()

    def expect(self, nonce: str) -> asyncio.Future[Acknowledge | Busy]:
        """To what is about to be sent; ``done`` once it is not waited for any more."""
        waiting = self._waiting[nonce] = asyncio.get_running_loop().create_future()
        return waiting

    def done(self, nonce: str) -> None:
        self._waiting.pop(nonce, None)

    def overtake(self, nonce: str) -> None:
        """The same reports are sent once more, with others, before the answer to them has come."""
        self._overtaken.add(nonce)

    def take(self, answer: Acknowledge | Busy) -> None:
        if answer.nonce in self._overtaken:  # by others, whose answer is to come
            self._overtaken.discard(answer.nonce)
            return
        waiting = self._waiting.get(answer.nonce)
        if waiting is None or waiting.done():
            return
        held = self._held.get(answer.nonce)
        if isinstance(answer, Acknowledge) and held is not None and answer.sequence <= held.spool.sequence:
            return  # a repeated answer to earlier reports
        waiting.set_result(answer)

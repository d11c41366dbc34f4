"""A coordinator's connection to one learner: one request at a time, made again after every loss."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from trials.files import read_record
from trials.learner.coordination.driven_task import RECORD_BYTES
from trials.learner.coordination.frames import READ_BYTES, Frames, connect, encode, record_path
from trials.learner.coordination.messages import WAIT_LIMIT_S, Close, Demand, GetData, Learn, Resource, Start
from trials.wire.peers import is_own_user
from trials.wire.plain import ProtocolError, to_plain

FIRST_PAUSE_S, PAUSE_LIMIT_S = 0.02, 1.0
AGAIN = frozenset({"no_such_demand", "busy", "failed"})  # what passes: it is asked anew
_GONE = select.POLLHUP | select.POLLERR | select.POLLNVAL


class LearnerRefusedError(RuntimeError):
    """A learner does not do what it is asked, and will not."""

    def __init__(self, name: str, kind: str, message: str) -> None:
        super().__init__(f"learner {name!r} refused ({kind}): {message}")
        self.kind = kind


class Link:
    """``connect``, ``attend`` and ``ask`` in turn; nothing blocks."""

    def __init__(self, place: Path, name: str, *, task_id: str, info: Mapping[str, Any]) -> None:
        self.place, self.name = place, name
        self._start = Start(task_id=task_id, info=dict(info))
        self._connection: socket.socket | None = None
        self._frames = Frames()
        self._out = bytearray()
        self.due = time.monotonic()
        self._silent_s = 0.0
        self._pause_s = FIRST_PAUSE_S
        self._next: Resource | Start | Learn | None = None
        self._asked_to_close = False

    @property
    def descriptor(self) -> int | None:
        return None if self._connection is None else self._connection.fileno()

    def was_silent(self, waited_s: float) -> float:
        """It was waited for in vain; the seconds since it answered last."""
        self._silent_s += waited_s
        return self._silent_s

    def connect(self, now: float) -> Mapping[str, Any] | None:
        """Where it was not tried just now. As an answer, what a learner that has ended and is gone has left."""
        if self._connection is not None or now < self.due:
            return None
        with suppress(FileNotFoundError):  # the folder is not there yet
            found = connect(self.place, self.name)
            if found is not None and not is_own_user(found):
                found.close()
                raise LearnerRefusedError(self.name, "stranger", "its socket belongs to another user")
            self._connection = found
        if self._connection is None:
            self._wait(now)
            return self._left()
        self._frames, self._out, self._next, self._asked_to_close = Frames(), bytearray(), self._start, False
        self._send(Resource())
        return None

    def events(self) -> int:
        return select.POLLIN | (select.POLLOUT if self._out else 0)

    def attend(self, events: int) -> Iterator[Mapping[str, Any]]:
        """The answers that have come. LearnerRefusedError for one that will not change."""
        assert self._connection is not None
        try:
            with suppress(BlockingIOError):
                while self._out:
                    del self._out[: self._connection.send(self._out)]
            data = self._connection.recv(READ_BYTES) if events & (select.POLLIN | _GONE) else None
        except OSError:
            data = b""
        if data == b"":
            self._lose()
            return
        if data:
            self._frames.add(data)
        try:
            while self._connection is not None and (found := self._frames.next()) is not None:
                yield self._read(found)
        except ProtocolError:
            self._lose()

    def wants(self, demand: Demand, data: list[Any] | None) -> None:
        """The answer of the chooser goes first when it is asked next."""
        iteration = demand.cur_learner_iter
        self._next = Learn(task_id=self._start.task_id, cur_learner_iter=iteration, data=data)

    def ask(self, *, after: int, closing: bool) -> None:
        if self._connection is None:
            return
        if self._next is not None:
            request, self._next = self._next, None
            self._send(request)
        elif closing and not self._asked_to_close:
            self._asked_to_close = True
            self._send(Close(task_id=self._start.task_id))
        else:
            self._send(GetData(task_id=self._start.task_id, after=after, wait_s=WAIT_LIMIT_S))

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _left(self) -> Mapping[str, Any] | None:
        try:
            found = read_record(str(record_path(self.place, self.name)), limit=RECORD_BYTES)
        except (OSError, ValueError):
            return None
        if found.get("task_id") != self._start.task_id or found.get("ended") is not True:
            return None
        ended = {"finished": found.get("finished") is True, "step": found.get("step", 0)}
        return {"learnt": found.get("learnt", ()), "ended": ended}

    def _send(self, request: Any) -> None:
        """Sent when the socket takes it."""
        self._out += encode({"task": request.task, **to_plain(request)})

    def _read(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        error, answer = message.get("error"), message.get("ok")
        if isinstance(error, dict):
            kind = str(error.get("kind"))
            if kind not in AGAIN:
                raise LearnerRefusedError(self.name, kind, str(error.get("message"))[:1000])
            if kind != "no_such_demand":
                self._lose()
            return {}
        if not isinstance(answer, dict):
            raise ProtocolError("an answer has ok or error")
        self._pause_s, self._silent_s = FIRST_PAUSE_S, 0.0
        return answer

    def _lose(self) -> None:
        self.close()
        self._wait(time.monotonic())

    def _wait(self, now: float) -> None:
        self.due = now + self._pause_s
        self._pause_s = min(2 * self._pause_s, PAUSE_LIMIT_S)

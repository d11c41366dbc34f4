"""Connections before anybody is known: how long a head may be, how long all of it may take, how many there may be.

uvicorn's protocol for HTTP waits for ever for the end of a head, of a body, and for somebody to read an answer, and
takes heads of any length. Whoever keeps to the limits costs nothing here: a request that came in one piece sets no
timer.
"""

from __future__ import annotations

import asyncio
import resource
from functools import partial
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from tuner_service.api.channel_protocol import ChannelProtocol
from tuner_service.api.errors import problem
from tuner_service.api.guard import MAX_BODY_BYTES

MAX_HEAD_BYTES = 64 << 10  # of the request line and all headers; beyond: 431
MAX_HEADERS = 100  # of one request; beyond: 431
MAX_CONNECTIONS = 500  # at once, but for channels of agents; then the oldest that waits makes room, or else: 503
MAX_CHANNELS = 2_000  # of agents, which take nobody else's place; beyond: 503
KEPT_FOR_OTHERS = 100  # connections for which agents leave room where the process may open few files
OTHER_FILES = 256  # of those that the process may open: what it has besides connections
HEAD_TIMEOUT_S = 10.0  # for a whole head; beyond: 408
IDLE_TIMEOUT_S = 5.0  # between two requests of a connection
PROGRESS_TIMEOUT_S = 30.0  # a body that comes, or an answer that goes, is looked at so often
LEAST_PROGRESS_BYTES = 64 << 10  # in that time; a slower body: 408, a slower reader is hung up on


STREAM_WRITER = "tuner.stream_writer"  # an extension of the scope: see _write_piece


class _TooManyHeadersError(Exception):
    """Ends the parsing."""


class BoundedHttpProtocol(HttpToolsProtocol):
    """A connection that is refused or closed at the limits above."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._in_head = True  # the next byte belongs to a head, be it the first one
        self._head_bytes = 0
        self._body_bytes = 0
        self._has_moved = False  # from a head to a body or on to the next head, with the bytes at hand
        self._is_upgraded = False
        self.since = self.loop.time()  # when the connection was opened, or its last request answered
        self._reading: asyncio.TimerHandle | None = None
        self._writing: asyncio.TimerHandle | None = None
        self._refusal = (400, "this is not HTTP")

    # ── opening and closing ─────────────────────────────────────────────────────────────────────
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn's own
        super().connection_made(transport)
        most = MAX_CONNECTIONS
        if len(self.connections) > min(most, KEPT_FOR_OTHERS):
            channels = self._channels()
            most = min(most, max(KEPT_FOR_OTHERS, _places() - channels))
            if len(self.connections) - channels > most and not self._make_room():
                self._refuse(503, f"{most} connections are open, the most that are taken; try again")
                return
        self._reading = self.loop.call_later(HEAD_TIMEOUT_S, self._end_slow_head)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_reading_timer()
        self._stop_writing_timer()
        super().connection_lost(exc)

    @property
    def waits_for_a_request(self) -> bool:
        is_answered = self.cycle is None or self.cycle.response_complete
        return self._in_head and is_answered and not self.transport.is_closing()

    def _channels(self) -> int:
        return sum(isinstance(one, ChannelProtocol) for one in self.connections)

    def _make_room(self) -> bool:
        others = (other for other in self.connections if isinstance(other, BoundedHttpProtocol) and other is not self)
        waiting = [other for other in others if other.waits_for_a_request]
        if waiting:
            oldest = min(waiting, key=lambda other: other.since)
            oldest.transport.abort()
            self.connections.discard(oldest)  # the loop tells it later, and another may come before that
        return bool(waiting)

    # ── what comes in ───────────────────────────────────────────────────────────────────────────
    def data_received(self, data: bytes) -> None:
        while data and not self._is_upgraded and not self.transport.is_closing():
            piece = data[: MAX_HEAD_BYTES - self._head_bytes] if self._in_head else data
            data = data[len(piece) :]
            self._has_moved = False
            super().data_received(piece)
            if self._in_head and not self._has_moved:
                self._head_bytes += len(piece)
            if self._head_bytes >= MAX_HEAD_BYTES:
                self._refuse(
                    431, f"the head of the request is longer than {MAX_HEAD_BYTES} bytes, the most there may be"
                )
        self._watch()

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        if len(self.headers) > MAX_HEADERS:
            self._refusal = (431, f"the request has more than {MAX_HEADERS} headers, the most there may be")
            raise _TooManyHeadersError

    def on_headers_complete(self) -> None:
        self._in_head, self._has_moved = False, True
        self._head_bytes = self._body_bytes = 0
        self._stop_reading_timer()
        super().on_headers_complete()
        if self.cycle is not None and not self._is_upgraded:
            extensions: dict[str, Any] = {STREAM_WRITER: partial(_write_piece, self.cycle)}
            self.cycle.scope["extensions"] = {**(self.cycle.scope.get("extensions") or {}), **extensions}

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_head, self._has_moved = True, True
        self._stop_reading_timer()
        super().on_message_complete()

    def handle_websocket_upgrade(self) -> None:
        most = min(MAX_CHANNELS, _places() - KEPT_FOR_OTHERS)
        if self._channels() >= most:
            hint = "" if most == MAX_CHANNELS else "; the service may open no more files (ulimit -n)"
            self._refuse(503, f"{most} agents are connected, the most that are taken{hint}")
            return
        self._is_upgraded = True
        self._stop_reading_timer()
        super().handle_websocket_upgrade()

    def _watch(self) -> None:
        """A head or a body that has begun is given its time."""
        if self._is_upgraded or self.transport.is_closing():
            self._stop_reading_timer()
        elif self._reading is not None:
            pass
        elif not self._in_head:
            self._reading = self.loop.call_later(PROGRESS_TIMEOUT_S, self._end_slow_body, self._body_bytes)
        elif self._head_bytes > 0:
            self._reading = self.loop.call_later(HEAD_TIMEOUT_S, self._end_slow_head)

    def _end_slow_head(self) -> None:
        self._reading = None
        self._refuse(408, f"the head of the request took longer than {HEAD_TIMEOUT_S:g} s")

    def _end_slow_body(self, before: int) -> None:
        # Where the service itself does not read, whoever sends is not slow.
        is_slow = self._body_bytes - before < LEAST_PROGRESS_BYTES and not self.flow.read_paused
        if is_slow or self._body_bytes > MAX_BODY_BYTES:
            self._reading = None
            self._refuse(408, f"less than {LEAST_PROGRESS_BYTES} bytes of the body came in {PROGRESS_TIMEOUT_S:g} s")
        else:
            self._reading = self.loop.call_later(PROGRESS_TIMEOUT_S, self._end_slow_body, self._body_bytes)

    def _stop_reading_timer(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    # ── what goes out ───────────────────────────────────────────────────────────────────────────
    def on_response_complete(self) -> None:
        self.since = self.loop.time()
        super().on_response_complete()
        self._watch_the_end()

    def timeout_keep_alive_handler(self) -> None:
        # An answer that is still on its way is not yet followed by the time between two requests.
        if self._writing is None:
            super().timeout_keep_alive_handler()
            self._watch_the_end()
        else:
            self.timeout_keep_alive_task = self.loop.call_later(IDLE_TIMEOUT_S, self.timeout_keep_alive_handler)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._writing is None:
            self._look_at_writing_later()

    def resume_writing(self) -> None:
        self._stop_writing_timer()
        super().resume_writing()

    def _look_at_writing_later(self) -> None:
        waiting = self.transport.get_write_buffer_size()
        self._writing = self.loop.call_later(PROGRESS_TIMEOUT_S, self._end_slow_reader, waiting)

    def _watch_the_end(self) -> None:
        """A transport that was closed waits for its last bytes to be taken, by itself for ever."""
        if self._writing is None and self.transport.is_closing() and self.transport.get_write_buffer_size():
            self._look_at_writing_later()

    def _end_slow_reader(self, before: int) -> None:
        if before - self.transport.get_write_buffer_size() < LEAST_PROGRESS_BYTES:
            self.transport.abort()
        else:
            self._look_at_writing_later()

    def abort_stream(self) -> None:
        """Hang up on whoever is being sent events, whatever they were sent before."""
        if self.cycle is not None and not self.cycle.response_complete and self.scope["path"].endswith("/events"):
            self.transport.abort()

    def _stop_writing_timer(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None

    # ── refusing ────────────────────────────────────────────────────────────────────────────────
    def _refuse(self, status: int, detail: str) -> None:
        self._refusal = (status, detail)
        self.send_400_response(detail)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  # uvicorn's words for all that it cannot parse
        """Whatever the refusal is; without a word where its place is not the next answer's."""
        if not self._may_answer():
            self.transport.abort()
            return
        response = problem(*self._refusal, headers={"connection": "close"})
        lines = [name + b": " + value + b"\r\n" for name, value in response.raw_headers]
        self.transport.write(b"".join([STATUS_LINE[self._refusal[0]], *lines, b"\r\n", bytes(response.body)]))
        self.transport.close()
        self._watch_the_end()

    def _may_answer(self) -> bool:
        if self.cycle is None:
            return True
        return self.cycle.response_complete if self._in_head else not (self.cycle.response_started or self.pipeline)


def _places() -> int:
    """So many connections, channels of agents among them, leave the rest of the process files to open."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS + MAX_CHANNELS
    return max(allowed - OTHER_FILES, 2 * KEPT_FOR_OTHERS)


def _write_piece(cycle: RequestResponseCycle, piece: bytes) -> bool:
    """A further piece of an answer without an end, at once; whether it could be: its reader may not keep up.

    Through the middleware, a task and ``send`` it would take three times as long, for each of hundreds of streams.
    """
    is_open = cycle.response_started and not cycle.response_complete and not cycle.disconnected
    if not is_open or not cycle.chunked_encoding or cycle.flow.write_paused or cycle.scope["method"] == "HEAD":
        return False
    cycle.transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))
    return True

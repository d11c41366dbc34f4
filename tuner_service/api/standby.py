"""What a standby answers while it waits: reads of the rows, that it lives, that it is not ready, and who is active.

Everything else is left to the active service: agents, programs and commands are sent there by a header that names its
address, a browser by a redirect. A token that is not known here may be known there, so whoever shows one is sent on,
too, and not turned away. The session of a browser is never known here: its page is told to wait for who is active, and
not that nobody is signed in.
"""

from __future__ import annotations

import os
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from urllib.parse import parse_qs

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trials.wire.addresses import ACTIVE_HEADER
from tuner_service.api.auth import role_of
from tuner_service.api.errors import RETRY_AFTER_S, problem
from tuner_service.api.own_page import PAGE_HEADER
from tuner_service.api.responses import json_response
from tuner_service.api.server import Server, http_config
from tuner_service.service.standing_by import STANDS_BY

GRACEFUL_S = 1  # for reads under way when the service takes over
STOP_TIMEOUT_S = 3.0
UNAUTHENTICATED = 401
ROLE_HEADER = "Tuner-Role"

_E, _T = "/api/v1/experiments/{experiment_id}", "/api/v1/trials/{experiment_id}/{number}"
# By their routes: those that are answered from rows alone. Agents, devices, logs, files and events are with the active
# service, whose folders may be on another machine.
READS = frozenset(
    {
        "/api/v1/experiments",
        _E,
        *(f"{_E}/{of}" for of in ("best", "pareto", "slices", "failures", "importance", "curves", "timeline")),
        *(f"{_E}/{of}" for of in ("trials", "code-changes", "journal", "search-space", "search-space/revisions")),
        *(f"{_E}/{of}" for of in ("table", "export", "plot.png", "plot.svg")),
        _T,
        f"{_T}/metrics",
        f"{_T}/checkpoints",
        "/api/v1/quota-groups",
        "/api/v1/quota-groups/{name}",
        "/api/v1/algorithms",
        "/version",
        "/docs",
        "/docs/{name}",
    }
)
OPEN_READS = frozenset({"/openapi.json"})  # which are no routes of ours


class StandbyApp:
    """``active`` gives the address of the active service, or ""; ``reads`` what reads the database, where it can.

    ``warnings``: what will be trouble with this service itself unless somebody acts, for those with a known token.
    """

    def __init__(
        self,
        active: Callable[[], str],
        reads: Callable[[], FastAPI | None] = lambda: None,
        *,
        warnings: Callable[[], dict[str, str]] = dict,
    ) -> None:
        self._active, self._reads, self._warnings = active, reads, warnings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._leave_channel(receive, send)
        elif scope["type"] == "http":
            reads = self._reads()
            if reads is not None and is_answered(scope, reads):
                await self._read(reads, scope, receive, send)
            else:
                await self._own_answer(scope)(scope, receive, send)

    async def _read(self, reads: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        is_sent_on, is_page = False, Headers(scope=scope).get(PAGE_HEADER) == "1"

        async def send_marked(message: Message) -> None:
            nonlocal is_sent_on
            if message["type"] == "http.response.start":
                is_sent_on = message["status"] == UNAUTHENTICATED and (is_page or bool(self._active()))
                message["headers"] = [*message["headers"], (ROLE_HEADER.lower().encode(), b"standby")]
            if not is_sent_on:
                await send(message)

        await reads(scope, receive, send_marked)
        if is_sent_on:
            await self._own_answer(scope)(scope, receive, send)

    def _own_answer(self, scope: Scope) -> Response:
        path, url = scope["path"], self._active()
        if path == "/healthz":
            return json_response({"status": "ok", "pid": os.getpid()})
        if path == "/readyz":
            said = {
                "ready": False,
                "role": "standby",
                "active": url or None,
                "parts": {"lease": STANDS_BY},
                "warnings": self._warnings() if self._is_known(scope) else {},
            }
            return json_response(said, status=503)
        if url and scope["method"] == "GET" and "text/html" in Headers(scope=scope).get("accept", ""):
            query = scope["query_string"].decode("latin-1")
            target = url + path + (f"?{query}" if query else "")
            return RedirectResponse(target, status_code=307, headers={"cache-control": "no-store"})
        return self._left(url)

    def _is_known(self, scope: Scope) -> bool:
        """Whether who asks shows a token that the database or the home has; without a database nobody is known."""
        reads = self._reads()
        return reads is not None and role_of(HTTPConnection({**scope, "app": reads})) is not None

    def _left(self, url: str) -> Response:
        where = f"the active one is {url}" if url else "nobody is active at this moment"
        headers = {"Retry-After": str(RETRY_AFTER_S), "Cache-Control": "no-store", ROLE_HEADER: "standby"}
        headers |= {ACTIVE_HEADER: url} if url else {}
        detail = f"{STANDS_BY} and answers reads of the database alone; {where}"
        return problem(503, detail, kind="unavailable", headers=headers)

    async def _leave_channel(self, receive: Receive, send: Send) -> None:
        """An agent is answered in HTTP, as it asked."""
        await receive()
        answer = self._left(self._active())
        kind = "websocket.http.response"
        await send({"type": f"{kind}.start", "status": answer.status_code, "headers": answer.raw_headers})
        await send({"type": f"{kind}.body", "body": bytes(answer.body)})


def is_answered(scope: Scope, reads: FastAPI) -> bool:
    """Whether a standby answers it from rows alone, and at once."""
    if scope["method"] not in {"GET", "HEAD"}:
        return False
    if "wait_for" in parse_qs(scope["query_string"].decode("latin-1")):
        return False  # whoever waits should find the active service before that changes
    path = scope["path"]
    return path in OPEN_READS or any(
        route.path in READS and "GET" in route.methods and route.path_regex.match(path) for route in reads.state.routes
    )


class StandbyServer:
    """Answers on ``listening``, which it leaves open, in a thread of its own. Its ``app`` must not wait.

    ``looks`` is called there once a second, as in ``Server``.
    """

    def __init__(
        self,
        listening: socket.socket,
        app: ASGIApp,
        *,
        tls: ssl.SSLContext | None = None,
        looks: Callable[[], None] = lambda: None,
    ) -> None:
        config = http_config(app)
        config.timeout_graceful_shutdown = GRACEFUL_S
        self._listens = threading.Event()
        self._sockets: Sequence[socket.socket] = (listening.dup(),)  # which the server closes
        self._server = Server(
            config, listens=self._listens.set, may_go_on=lambda: True, ends=lambda: None, looks=looks, tls=tls
        )
        self._thread = threading.Thread(target=self._run, name="standby", daemon=True)

    def start(self) -> None:
        """It answers when this returns."""
        self._thread.start()
        self._listens.wait(STOP_TIMEOUT_S)

    def stop(self) -> None:
        """Nothing more is taken when it returns. Safe to repeat."""
        if self._thread.is_alive():
            self._server.handle_exit(signal.SIGTERM, None)
            self._thread.join(STOP_TIMEOUT_S)
        for one in self._sockets:
            one.close()

    def _run(self) -> None:
        self._server.run(sockets=list(self._sockets))

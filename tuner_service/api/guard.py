"""What holds for every request before it is routed: host and origin allow-lists, size, security headers."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from functools import lru_cache
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tuner_service.api.auth import is_open
from tuner_service.api.errors import problem
from tuner_service.api.own_page import cookies_of, is_own_origin, page_fault
from tuner_service.config import Settings

MAX_BODY_BYTES = 24 << 20  # beyond: 413; 16 MiB of code are 22 MiB of base64
MAX_LENGTH_DIGITS = 20  # of a Content-Length
SECURITY_HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "content-security-policy": "default-src 'self'; object-src 'none'; base-uri 'none'; frame-ancestors 'none'",
    "cache-control": "no-store",
}


# A browser asks so before a page of another origin sends a token. The cookie of a session is not for such pages.
SENT_HEADERS = (
    "Authorization", "Content-Type", "If-Match", "If-None-Match", "If-Range", "Range", "Idempotency-Key",
    "Last-Event-ID",
)  # fmt: skip
READ_HEADERS = (
    "ETag", "Location", "Retry-After", "Content-Disposition", "Content-Range", "X-Tuner-Event", "Log-Offset", "Log-End",
    "Log-Size", "Log-Attempt", "Log-Ended",
)  # fmt: skip
PREFLIGHT_ANSWER = {
    "access-control-allow-methods": "GET, HEAD, POST, PUT, PATCH, DELETE",
    "access-control-allow-headers": ", ".join(SENT_HEADERS),
    "access-control-max-age": "600",
}
_READABLE = [(b"access-control-expose-headers", ", ".join(READ_HEADERS).encode())]
_SECURITY_HEADERS = [(name.encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]
HOSTS_REMEMBERED = 100  # names under which requests came, with whether they are ours


class HeadAsGet:
    """Answers ``HEAD`` as ``GET`` without the body, which is not made to its end where it comes in pieces."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        begun = asyncio.Event()

        async def hang_up() -> Message:
            await begun.wait()
            return {"type": "http.disconnect"}

        async def send_head(message: Message) -> None:
            if message["type"] == "http.response.start":
                await send(message)
                await send({"type": "http.response.body", "body": b""})
                begun.set()

        await self._app({**scope, "method": "GET"}, hang_up, send_head)


class ChannelsInTurn:
    """Lets agents in one after the other, each in a turn of the event loop of its own.

    After a restart hundreds connect at once. Where all of them have their part of every turn, a read, which takes
    several turns, waits for all of that each time; so it waits for one of them.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._turn = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            async with self._turn:
                await asyncio.sleep(0)
        await self._app(scope, receive, send)


class Guard:
    """Refuses a request under a name that is not the service's own, which is how DNS rebinding looks."""

    def __init__(self, app: ASGIApp, settings: Settings, cookie_name: str) -> None:
        self._app = app
        self._cookie_name, self._cookie_mark = cookie_name, cookie_name.encode()
        self._hosts = {"localhost", socket.gethostname().lower(), settings.host.lower()}
        self._hosts |= {host.lower() for host in settings.allowed_hosts}
        self._is_ours = lru_cache(maxsize=HOSTS_REMEMBERED)(self._names_us)
        self._origins = {origin.lower().rstrip("/") for origin in settings.allowed_origins}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return

        headers = Headers(scope=scope)
        page = self._page_of_another_origin(headers)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = [*message["headers"], *page]
                names = {name for name, _ in given}
                message["headers"] = given + [entry for entry in _SECURITY_HEADERS if entry[0] not in names]
            await send(message)

        refusal = self._refusal(headers) or self._cookie_refusal(scope, headers)
        if refusal is None and page and _is_preflight(scope, headers):
            await Response(status_code=204, headers=PREFLIGHT_ANSWER)(scope, receive, send_with_headers)
        elif refusal is None:
            await self._app(scope, receive, send_with_headers)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008, "reason": refusal[1]})
        else:
            await problem(*refusal)(scope, receive, send_with_headers)

    def _refusal(self, headers: Headers) -> tuple[int, str] | None:
        host = headers.get("host", "")
        if not self._is_ours(host):
            return 403, (
                f"the service does not answer to the name {host!r}; "
                "if it should, add it to the setting allowed_hosts (TUNER_ALLOWED_HOSTS)"
            )
        origin = headers.get("origin")
        if origin is not None and not self._is_allowed_origin(origin, host):
            return (
                403,
                f"pages of {origin!r} may not call this service; the setting allowed_origins names those that may",
            )
        encoding = headers.get("content-encoding", "identity")
        if encoding.strip().lower() not in {"", "identity"}:
            return 415, f"bodies are taken as they are: send it without Content-Encoding: {encoding:.100}"
        length = headers.get("content-length", "0")
        if length.isdecimal() and (len(length) > MAX_LENGTH_DIGITS or int(length) > MAX_BODY_BYTES):
            return 413, f"the body has {length:.{MAX_LENGTH_DIGITS}} bytes; at most {MAX_BODY_BYTES} are taken"
        return None

    def _cookie_refusal(self, scope: Scope, headers: Headers) -> tuple[int, str] | None:
        """A browser sends the cookie of a session for whoever asks it to: only the service's own page may."""
        if not any(name == b"cookie" and self._cookie_mark in value for name, value in scope["headers"]):
            return None
        method = scope.get("method", "GET")
        if is_open(method, scope["path"]) or not cookies_of(headers, self._cookie_name):
            return None
        fault = page_fault(headers, method)
        return None if fault is None else (403, fault)

    def _names_us(self, host: str) -> bool:
        name = urlsplit(f"//{host}").hostname if _is_host(host) else None
        if not name:
            return False
        return name in self._hosts or _is_address(name)

    def _page_of_another_origin(self, headers: Headers) -> list[tuple[bytes, bytes]]:
        """What lets a page of an allowed origin read the answer; nothing for the service's own pages."""
        origin = headers.get("origin", "")
        if origin.lower() not in self._origins:
            return []
        return [(b"access-control-allow-origin", origin.encode("latin-1")), (b"vary", b"Origin"), *_READABLE]

    def _is_allowed_origin(self, origin: str, host: str) -> bool:
        if origin.lower() in self._origins:
            return True
        return is_own_origin(origin, host)


def _is_preflight(scope: Scope, headers: Headers) -> bool:
    return scope["type"] == "http" and scope["method"] == "OPTIONS" and "access-control-request-method" in headers


def _is_host(host: str) -> bool:
    try:
        parts = urlsplit(f"//{host}")
        return parts.netloc == host and "@" not in host and (parts.port is None or parts.port >= 0)
    except ValueError:
        return False


def _is_address(name: str) -> bool:
    # An address cannot be rebound to another machine, so whoever reaches the service by one may use it.
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True

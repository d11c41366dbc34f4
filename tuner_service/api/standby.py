"""What a standby answers while it waits: that it lives, that it is not ready, and who is active.

Of nothing else it says anything: who asks is sent to the active service, a browser by a redirect, agents and clients by
a header that names its address.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from trials.wire.addresses import ACTIVE_HEADER
from tuner_service.domain.errors import TunerServiceError

REQUEST_TIMEOUT_S = 2.0  # of a client, who is answered before the next one
LINE_LIMIT_BYTES = 1 << 16
BODY_LIMIT_BYTES = 1 << 20

logger = logging.getLogger(__name__)


class StandbyServer:
    """Answers on ``listening``, which it leaves open. ``active`` gives the address of the active service, or ""."""

    def __init__(
        self, listening: socket.socket, active: Callable[[], str], *, tls: ssl.SSLContext | None = None
    ) -> None:
        class Handler(_Handler):
            find_active = staticmethod(active)

        self._server = _Server(listening.getsockname()[:2], Handler, bind_and_activate=False)
        self._server.tls = tls
        self._server.socket.close()
        self._server.socket = listening
        self._thread = threading.Thread(target=self._server.serve_forever, name="standby", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Nothing is answered any more when it returns. Safe to repeat."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()


class _Server(HTTPServer):
    tls: ssl.SSLContext | None = None

    def get_request(self) -> tuple[socket.socket, Any]:
        """The handshake waits for the handler, which has a time limit."""
        connection, address = super().get_request()
        if self.tls is not None:
            connection = self.tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return connection, address

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever does not keep to the protocol is hung up on."""
        del request
        logger.debug("standby_request_failed", extra={"address": str(client_address)}, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # another one is no answer to an agent, which asks for a WebSocket
    timeout = REQUEST_TIMEOUT_S
    find_active: Callable[[], str]

    def handle_one_request(self) -> None:
        """Any method: none of them is carried out here."""
        self.close_connection = True
        try:
            self.raw_requestline = self.rfile.readline(LINE_LIMIT_BYTES)
            if self.raw_requestline and self.parse_request():
                self.close_connection = True
                self._take_body()
                self._answer()
        except (OSError, ValueError):  # it says nothing more, or nothing that makes sense
            return

    def _take_body(self) -> None:
        """What nobody needs: who is still sending would not read the answer."""
        length = int(self.headers.get("content-length") or 0)
        self.rfile.read(max(0, min(length, BODY_LIMIT_BYTES)))

    def _answer(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/healthz":
            self._send(200, {"status": "ok", "pid": os.getpid()})
        elif path == "/readyz":
            parts = {"lease": "this service is a standby"}
            self._send(503, {"ready": False, "role": "standby", "active": self._active() or None, "parts": parts})
        else:
            self._send_away()

    def _active(self) -> str:
        """ "" where nobody is, or the database does not say."""
        try:
            return self.find_active()
        except TunerServiceError as exc:
            logger.warning("active_service_unknown", extra={"error": str(exc)})
            return ""

    def _send_away(self) -> None:
        url = self._active()
        if (
            url
            and self.path.startswith("/")
            and self.command == "GET"
            and "text/html" in self.headers.get("accept", "")
        ):
            self._send(307, {}, location=url + self.path)
            return
        where = f"the active one is {url}" if url else "nobody is active at this moment"
        detail = f"this service is a standby and does nothing yet; {where}"
        kind, title = "urn:tuner:problem:unavailable", "Service Unavailable"
        named = {ACTIVE_HEADER: url} if url else {}
        self._send(503, {"type": kind, "title": title, "status": 503, "detail": detail}, **named)

    def _send(self, status: int, content: dict[str, Any], **headers: str) -> None:
        body = json.dumps(content).encode()
        kind = "application/problem+json" if "detail" in content else "application/json"
        self.send_response(status)
        fixed = {"content-type": kind, "content-length": str(len(body)), "cache-control": "no-store"}
        for name, value in {**fixed, "connection": "close", **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def version_string(self) -> str:
        return "tuner"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the library's own name
        """Requests are no events."""

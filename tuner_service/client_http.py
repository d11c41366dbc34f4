"""One connection to a service, and to the active one where that is a standby. Standard library only."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any

from trials.wire.addresses import ACTIVE_HEADER, address_told
from tuner_service.client_paths import target_of, unwritable
from tuner_service.client_tls import NotTrustedError, opened, system_context, was_closed
from tuner_service.told import told

if TYPE_CHECKING:
    import socket
    import ssl
    from http.client import HTTPConnection, HTTPResponse

REQUEST_TIMEOUT_S = 60.0
KEPT_OPEN_S = 4.0  # after an answer, for the next request; a service closes a connection that is idle a little later
STREAM_BYTES = 1 << 16
REFUSING_STATUS = 300  # from here on: a redirect is not followed, since the token is of this address only
UNAVAILABLE = 503
MOST_SENT_ON = 3  # times in one call: of standbys, of which each names another


class ClientError(Exception):
    """Its text says what went wrong and what to do."""


class UnreachableError(ClientError):
    """No service answers."""


class TokenWithheldError(ClientError):
    """The token was not sent, because nothing says that it belongs to whoever is at the address."""


class UnsendableError(ClientError):
    """The request holds what HTTP or JSON has no form for. Nothing was sent."""


@dataclass
class ProblemError(ClientError):
    """The service refused; ``status`` is HTTP's, ``problem`` the object it sent."""

    status: int
    problem: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [str(self.problem.get("detail") or f"the service answered {self.status}")]
        lines += [f"  {e.get('pointer') or '/'}: {e.get('detail')}" for e in self.problem.get("errors", ())]
        return "\n".join(lines)


@dataclass(frozen=True, kw_only=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    data: bytes

    def json(self) -> Any:
        """ClientError where it is no JSON object, or lacks what it is asked for: something else is at the address."""
        try:
            return told(json.loads(self.data) if self.data else None, ClientError)
        except (ValueError, RecursionError) as exc:
            what = f"no JSON object, but begins {self.data[:60].decode('utf-8', 'replace')!r}"
            raise ClientError(f"the answer is {what}; is it a service of Tuner Service?") from exc


class ServiceConnection:
    """One connection, kept open between calls. Not thread-safe.

    Redirects are not followed and proxies not used: the token goes to ``url``, to the active service that a standby
    there names, and nowhere else.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        admit: Callable[[socket.socket], None] | None = None,
        tls: Callable[[], ssl.SSLContext] = system_context,
    ) -> None:
        """``admit`` is asked about every connection before anything is sent on it; an OSError of it closes it.

        ``tls`` makes what an https address is known by.
        """
        self.url = url.rstrip("/")
        self._standby = ""  # which named the service at ``url``
        self._token = token
        self._admit, self._make_tls = admit, tls
        self._tls: ssl.SSLContext | None = None
        self._connection: HTTPConnection | None = None
        self._idle_since = 0.0
        self._asked: str | None = None  # what was sent, whose answer is read by the call of the same

    def hang_up(self) -> None:
        """Whoever reads an answer finds its end. Any thread, unlike everything else."""
        connection = self._connection
        sock = None if connection is None else connection.sock
        if sock is not None:
            with suppress(OSError):
                sock.shutdown(2)  # socket.SHUT_RDWR, of a module that is not imported here

    def close(self) -> None:
        self._asked = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # ── HTTP ────────────────────────────────────────────────────────────────────────────────────
    def call(  # noqa: PLR0913  # the parts of a request
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> Answer:
        """The answer; ProblemError for one that refuses, UnreachableError for none."""
        target = target_of(path, query)
        for name, text in (headers or {}).items():
            if not (text.isascii() and text.isprintable()):
                raise UnsendableError(f"{name} is one line of plain letters, digits and signs, not {text!a}")
        sent = {**self._authorization, **(headers or {})}
        data = None
        if body is not None:
            try:
                data = json.dumps(body, allow_nan=False).encode()
            except (ValueError, RecursionError) as exc:  # NaN, too deep, too many digits
                raise UnsendableError(f"the request cannot be written as JSON: {unwritable(body) or exc}") from exc
            sent["Content-Type"] = "application/json"
        answer = self._exchange(method, target, data=data, headers=sent, timeout_s=timeout_s)
        if answer.status >= REFUSING_STATUS:
            raise ProblemError(answer.status, problem_of(answer))
        return answer

    @property
    def _authorization(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"}

    def _ask(self, path: str, query: Mapping[str, Any]) -> None:
        """Have the service begin with what is read next. Any other call gives that up; a fault is met by the call."""
        import http.client

        target = target_of(path, query)
        with suppress(OSError, http.client.HTTPException):
            self._connect(REQUEST_TIMEOUT_S).request("GET", target, headers=self._authorization)
            self._asked = target

    def _stream(
        self, path: str, query: Mapping[str, Any], *, timeout_s: float, as_it_comes: bool = False
    ) -> Iterator[bytes]:
        import http.client

        self.close()  # an answer that was not read to its end must leave nothing on a connection that is kept
        try:
            response = self._begun(target_of(path, query), timeout_s)
            read = response.read1 if as_it_comes else response.read
            while data := read(STREAM_BYTES):
                yield data
        except (OSError, http.client.HTTPException) as exc:
            raise UnreachableError(f"{self.url} broke off its answer: {exc!r}") from exc
        finally:
            self.close()

    def _begun(self, target: str, timeout_s: float) -> HTTPResponse:
        """An answer whose body is still to be read. ProblemError for one that refuses."""
        for _ in range(MOST_SENT_ON + 1):
            connection = self._connect(timeout_s)
            connection.request("GET", target, headers=self._authorization)
            response = connection.getresponse()
            if response.status < REFUSING_STATUS:
                return response
            headers = dict(response.headers.items())
            answer = Answer(status=response.status, headers=headers, data=response.read())
            if not self._is_sent_on(answer):
                break
        raise ProblemError(answer.status, problem_of(answer))

    def _is_sent_on(self, answer: Answer) -> bool:
        """Whether a standby has left a request to the active service: then this is the connection to that one."""
        if answer.status != UNAVAILABLE or self._admit is not None:  # a home names its service itself
            return False
        named = {name.lower(): text for name, text in answer.headers.items()}
        active = address_told(named.get(ACTIVE_HEADER.lower()), by=self.url)
        if active is None:
            return False
        self.close()
        self.url, self._standby = active, self._standby or self.url
        return True

    def _exchange(
        self, method: str, target: str, *, data: bytes | None, headers: Mapping[str, str], timeout_s: float
    ) -> Answer:
        """With the service at ``url``, or with the active one where that is a standby, which carries out nothing.

        Where the active one does not answer, the standby that named it may have become it.
        """
        try:
            answer = self._exchange_here(method, target, data=data, headers=headers, timeout_s=timeout_s)
        except UnreachableError:
            if not self._standby:
                raise
            self.url, self._standby = self._standby, ""
            if not _is_repeatable(method, target, headers):
                raise
            answer = self._exchange_here(method, target, data=data, headers=headers, timeout_s=timeout_s)
        for _ in range(MOST_SENT_ON):
            if not self._is_sent_on(answer):
                break
            answer = self._exchange_here(method, target, data=data, headers=headers, timeout_s=timeout_s)
        return answer

    def _exchange_here(
        self, method: str, target: str, *, data: bytes | None, headers: Mapping[str, str], timeout_s: float
    ) -> Answer:
        import http.client  # here, because a command that starts a service has that started first

        # A connection kept open may be closed by the service at this moment; a fresh one is tried once.
        is_repeatable = _is_repeatable(method, target, headers)
        if self._asked not in (None, target):
            self.close()
        self._close_if_left()
        for is_last in (False, True):
            is_fresh = self._connection is None or self._connection.sock is None
            try:
                connection = self._connect(timeout_s)
                if self._asked is None:
                    connection.request(method, target, body=data, headers=dict(headers))
                self._asked = None
                response = connection.getresponse()
                content = response.read()
                self._idle_since = monotonic()
                return Answer(status=response.status, headers=dict(response.headers.items()), data=content)
            except TimeoutError as exc:
                self.close()
                raise UnreachableError(f"{self.url} did not answer within {timeout_s:g} s") from exc
            except (OSError, http.client.HTTPException) as exc:
                self.close()
                if is_last or is_fresh or not is_repeatable:
                    raise UnreachableError(f"no service answers at {self.url}: {exc}") from exc
        raise UnreachableError(f"no service answers at {self.url}")

    def _close_if_left(self) -> None:
        """What is sent on a connection that the service has closed, or is about to, may be lost without an answer."""
        sock = None if self._connection is None else self._connection.sock
        if sock is None or self._asked is not None:
            return
        if monotonic() - self._idle_since > KEPT_OPEN_S or was_closed(sock):
            self.close()

    def _connect(self, timeout_s: float) -> HTTPConnection:
        connection = self._connection
        if connection is None or connection.sock is None:  # the service closes one with its answer when it ends
            connection = self._connection = self._opened(timeout_s)
        connection.timeout = timeout_s
        connection.sock.settimeout(timeout_s)
        return connection

    def _opened(self, timeout_s: float) -> HTTPConnection:
        """Where the file that names the certificates was read before, it is read again before nobody is trusted."""
        was_read = self._tls is not None
        try:
            return opened(self.url, timeout_s=timeout_s, admit=self._admit, tls=self._context)
        except NotTrustedError:
            self._tls = None
            if not was_read:
                raise
            return opened(self.url, timeout_s=timeout_s, admit=self._admit, tls=self._context)

    def _context(self) -> ssl.SSLContext:
        self._tls = self._tls or self._make_tls()
        return self._tls


def _is_repeatable(method: str, target: str, headers: Mapping[str, str]) -> bool:
    """Without harm: reads, what sets a whole, what a trial came to, creations with their key, what has a digest."""
    is_told = method == "POST" and target.partition("?")[0].endswith("/tell")
    is_known = "Idempotency-Key" in headers or target.startswith("/api/v1/assets")
    return method in {"GET", "PUT"} or is_told or is_known


def problem_of(answer: Answer) -> Mapping[str, Any]:
    try:
        problem = answer.json()
    except ClientError:
        problem = None
    return problem if isinstance(problem, dict) else {"detail": f"the service answered {answer.status}"}

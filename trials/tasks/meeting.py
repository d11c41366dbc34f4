"""How the processes of a trial of several nodes find one another: each shows that it knows the attempt's key.

The process of the first node listens, on the port that its agent keeps for it; those of the others connect. Neither
tells the key: each answers a challenge of the other. After that a connection carries lines of JSON. The lines
themselves are not encrypted, as those of torch.distributed are not: nodes of a trial share a network that is trusted.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import select
import socket
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

ENV_KEY = "TUNER_WORLD_KEY"
CHALLENGE_BYTES = 32
HELLO_LIMIT_BYTES = 64 << 10
HELLO_TIMEOUT_S = 10.0
PENDING_LIMIT = 256  # connections that have not shown yet that they know the key
AGAIN_S = 0.1
SILENCE_S = 30.0  # without a sign of life of the other machine, after which a connection is lost
NO_ROOM_PAUSE_S = 1.0  # before a connection that could not be taken for want of a descriptor is taken
PROBES = 4  # that may go unanswered in it, as far as whole seconds allow


class LeaderLostError(ConnectionError):
    """The first node is not there, or not there any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Which node of how many this is, where the first one listens, and for how long another may say nothing."""

    node: int
    nodes: int
    address: str = ""
    port: int = 0
    key: str = field(default="", repr=False)
    silence_s: float = SILENCE_S

    @classmethod
    def of(cls, environ: Mapping[str, str], *, silence_s: float = SILENCE_S) -> Place:
        """From the variables of a trial; one node alone where they name none. ValueError for what cannot be."""
        nodes = int(environ.get("GROUP_WORLD_SIZE", "1"))
        if nodes == 1:
            return cls(node=0, nodes=1)
        if environ.get("LOCAL_WORLD_SIZE", "1") != "1":
            raise ValueError(
                "a trial that runs a task group over its nodes has one process on each, which starts the others: "
                "leave out processes_per_node"
            )
        if not environ.get(ENV_KEY):
            raise ValueError(f"{ENV_KEY} is not set: give the same secret text to the program on every node")
        return cls(
            node=int(environ["NODE_RANK"]),
            nodes=nodes,
            address=environ["MASTER_ADDR"],
            port=int(environ["MASTER_PORT"]),
            key=environ[ENV_KEY],
            silence_s=silence_s,
        )


def proof(key: str, who: str, challenge: str, *, of: str = "") -> str:
    """That ``who`` knows the key, without saying it."""
    return hmac.new(key.encode(), f"{who}\0{challenge}\0{of}".encode(), "sha256").hexdigest()


def watch_silence(connection: socket.socket, silence_s: float) -> None:
    """A machine that is cut off is noticed within that time, whether anything is sent or not; the kernel counts whole
    seconds, two at least."""
    idle_s = max(1, int(silence_s / 3))
    probe_s = max(1, int((silence_s - idle_s) / PROBES))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, idle_s)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, probe_s)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, PROBES)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(silence_s * 1000))


# ── the first node ──────────────────────────────────────────────────────────────────────────────
@dataclass(kw_only=True)
class _Pending:
    connection: socket.socket
    challenge: str
    until: float
    said: bytearray = field(default_factory=bytearray)


class Meeting:
    """Listens from the start until ``close``."""

    def __init__(self, place: Place) -> None:
        self._key, self._silence_s = place.key, place.silence_s
        family = socket.AF_INET6 if ":" in place.address else socket.AF_INET
        # The agent keeps the port bound without listening, and this lets us: SO_REUSEADDR.
        self._listening = socket.create_server(("", place.port), family=family, backlog=PENDING_LIMIT)
        self._listening.setblocking(False)  # noqa: FBT003  the standard library takes it by position only
        self._pending: dict[int, _Pending] = {}
        self._no_room_until = 0.0
        self.trouble = ""  # why no connection could be taken, the last time that one was waiting

    def next(self, deadline: float, *, watched: Iterable[int] = ()) -> tuple[socket.socket, dict[str, Any]] | None:
        """The next that knows the key, and what it says of itself. None when the time is over, or something can be
        read of a descriptor that is ``watched``."""
        watched = set(watched)
        while (left := deadline - time.monotonic()) > 0:
            poller = select.poll()
            for descriptor in (*watched, *self._pending):
                poller.register(descriptor, select.POLLIN)
            until = min([deadline, *(pending.until for pending in self._pending.values())])
            if time.monotonic() < self._no_room_until:
                until = min(until, self._no_room_until)
            else:
                poller.register(self._listening.fileno(), select.POLLIN)
            ready = {descriptor for descriptor, _ in poller.poll(min(left, max(0.0, until - time.monotonic())) * 1000)}
            for descriptor in [*self._pending]:
                found = self._heard(descriptor, is_ready=descriptor in ready)
                if found is not None:
                    return found
            if self._listening.fileno() in ready:
                self._let_in()
            if ready & watched:
                return None
        return None

    def close(self) -> None:
        for pending in self._pending.values():
            pending.connection.close()
        self._pending.clear()
        self._listening.close()

    def _let_in(self) -> None:
        try:
            connection, _ = self._listening.accept()
        except (BlockingIOError, ConnectionError):  # it has gone again
            return
        except OSError as error:  # this process has no descriptor to spare: the connection waits, and so do we
            self._no_room_until = time.monotonic() + NO_ROOM_PAUSE_S
            if not self.trouble:
                with suppress(OSError, ValueError, AttributeError):  # a standard error that is full, closed or none
                    sys.stderr.write(f"connections of other nodes cannot be taken now: {error}; it is tried again\n")
            self.trouble = str(error)
            return
        self.trouble = ""
        if len(self._pending) >= PENDING_LIMIT:
            connection.close()
            return
        try:
            challenge = secrets.token_hex(CHALLENGE_BYTES)
            connection.setblocking(False)  # noqa: FBT003  the standard library takes it by position only
            connection.sendall(_line({"challenge": challenge}))
            until = time.monotonic() + HELLO_TIMEOUT_S
            self._pending[connection.fileno()] = _Pending(connection=connection, challenge=challenge, until=until)
        except OSError:
            connection.close()

    def _heard(self, descriptor: int, *, is_ready: bool) -> tuple[socket.socket, dict[str, Any]] | None:
        pending = self._pending[descriptor]
        try:
            data = pending.connection.recv(HELLO_LIMIT_BYTES) if is_ready else None
        except OSError:
            data = b""
        pending.said += data or b""
        is_whole = pending.said.endswith(b"\n")
        if data != b"" and not is_whole and len(pending.said) < HELLO_LIMIT_BYTES and time.monotonic() < pending.until:
            return None
        del self._pending[descriptor]
        hello = self._accepted(pending) if is_whole else None
        if hello is None:
            pending.connection.close()
            return None
        pending.connection.setblocking(True)  # noqa: FBT003  the standard library takes it by position only
        watch_silence(pending.connection, self._silence_s)
        return pending.connection, hello

    def _accepted(self, pending: _Pending) -> dict[str, Any] | None:
        """What it says of itself, if it knows the key; anything else is no business of ours."""
        try:
            said = json.loads(pending.said)
            hello, given = said["hello"], said["proof"]
            if not hmac.compare_digest(given, proof(self._key, "node", pending.challenge, of=hello)):
                return None
            pending.connection.sendall(_line({"proof": proof(self._key, "leader", said["challenge"])}))
            found = json.loads(hello)
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return None
        return found if isinstance(found, dict) else None


# ── the other nodes ─────────────────────────────────────────────────────────────────────────────
def join(place: Place, hello: Mapping[str, Any], *, timeout_s: float) -> socket.socket:
    """A connection to the first node, which both know to be what it should be. It is tried again until the time is
    over: LeaderLostError."""
    deadline, why = time.monotonic() + timeout_s, "nobody listens"
    while (left := deadline - time.monotonic()) > 0:
        try:
            return _joined(place, json.dumps(hello), timeout_s=left)
        except OSError as error:  # not there yet, or busy with the group before
            why = str(error)
        select.select([], [], [], min(AGAIN_S, max(0.0, deadline - time.monotonic())))
    raise LeaderLostError(f"node 0, at {place.address} port {place.port}, did not answer in {timeout_s:g} s: {why}")


def _joined(place: Place, hello: str, *, timeout_s: float) -> socket.socket:
    connection = socket.create_connection((place.address, place.port), timeout=min(timeout_s, HELLO_TIMEOUT_S))
    try:
        watch_silence(connection, place.silence_s)
        own = secrets.token_hex(CHALLENGE_BYTES)
        given = proof(place.key, "node", str(_read_line(connection).get("challenge")), of=hello)
        connection.sendall(_line({"hello": hello, "challenge": own, "proof": given}))
        answer = str(_read_line(connection).get("proof"))
        if not hmac.compare_digest(answer.encode(errors="replace"), proof(place.key, "leader", own).encode()):
            raise ConnectionError("who listens there does not know the key of this attempt")
        connection.settimeout(None)
    except BaseException:
        connection.close()
        raise
    return connection


def _read_line(connection: socket.socket) -> dict[str, Any]:
    """Byte by byte: what comes after it is not for us."""
    said = bytearray()
    while not said.endswith(b"\n"):
        data = connection.recv(1)
        if not data or len(said) > HELLO_LIMIT_BYTES:
            raise ConnectionError("it said nothing that is understood")
        said += data
    try:
        found = json.loads(said)
    except (ValueError, RecursionError) as error:
        raise ConnectionError("it said nothing that is understood") from error
    if not isinstance(found, dict):
        raise ConnectionError("it said nothing that is understood")
    return found


def _line(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def own_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Without those of the trial's own world: tasks get ranks of theirs, and the key is none of their business."""
    of_the_trial = {
        ENV_KEY,
        *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"),
        *("MASTER_ADDR", "MASTER_PORT"),
    }
    return {name: text for name, text in environ.items() if name not in of_the_trial}


def here() -> dict[str, str]:
    return own_variables(os.environ)

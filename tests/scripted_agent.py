"""An agent written from docs/agent-protocol.md alone: the standard library and ``websockets``, nothing of the project.

It runs nothing. A test says for it what a trial does: it starts, reports, saves, ends.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import socket
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

ANSWER_S = 120.0
VERSION = 9
CHUNK = 1 << 20  # BLOB_CHUNK_BYTES


@dataclass(kw_only=True)
class Attempt:
    """What the agent holds of one: its spool is a list of lines, its sequence their number."""

    key: dict[str, Any]
    nonce: str
    lineage: str
    spec: dict[str, Any]
    lines: list[str] = field(default_factory=list)
    acknowledged: int = 0
    process: dict[str, Any] | None = None
    exit: dict[str, Any] | None = None
    stdout: bytes = b""

    @property
    def number(self) -> int:
        return int(self.key["number"])

    def observed(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "nonce": self.nonce,
            "lineage": self.lineage,
            "process": self.process,
            "exit": self.exit,
            "spooled": len(self.lines),
        }

    # ── what its script does ────────────────────────────────────────────────────────────────────
    def metric(self, step: int | None, **values: float) -> None:
        record = {"kind": "metric", "step": step, "values": values, "at": time.time(), "final": step is None}
        self.lines.append(json.dumps(record))

    def checkpoint(self, step: int, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        name = f"{step}.ckpt"
        record = {"kind": "checkpoint", "step": step, "name": name, "digest": digest, "size": len(data)}
        self.lines.append(json.dumps(record | {"at": time.time()}))
        return digest

    def wants_parameters(self, index: int) -> None:
        self.lines.append(json.dumps({"kind": "parameters_wanted", "index": index, "at": time.time()}))


class ScriptedAgent:
    """One node. ``attempts`` by nonce are those not forgotten; they outlive a connection, as on a disk."""

    def __init__(self, home: Path, *, agent_id: str = "local") -> None:
        self.home, self.agent_id = home, agent_id
        self.attempts: dict[str, Attempt] = {}
        self.welcome: dict[str, Any] = {}
        self.deleted: list[dict[str, Any]] = []
        self.refusals: list[dict[str, Any]] = []
        self.launches: list[dict[str, Any]] = []
        self._spent: dict[str, Attempt] = {}
        self._channel: ClientConnection | None = None
        self._open = ExitStack()
        self._others: list[dict[str, Any]] = []
        self._boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()

    # ── connecting ──────────────────────────────────────────────────────────────────────────────
    @contextmanager
    def in_place_of_the_nodes_own(self) -> Iterator[None]:
        """The service starts no agent here while the lock is held."""
        (self.home / "agent").mkdir(parents=True, exist_ok=True)
        with (self.home / "agent" / "lock").open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                yield
            finally:
                self.drop()

    def channel(self, *, token: str | None = None) -> AbstractContextManager[ClientConnection]:
        url = json.loads((self.home / "service.json").read_text())["url"].replace("http", "ws", 1)
        token = token or (self.home / "agent" / "token").read_text().strip()
        return connect(
            f"{url}/api/v1/agents/{self.agent_id}/channel",
            additional_headers={"Authorization": f"Bearer {token}"},
            proxy=None,
            compression=None,
        )

    def hello(self) -> dict[str, Any]:
        return {
            "kind": "hello",
            "version": VERSION,
            "agent_id": self.agent_id,
            "boot_id": self._boot_id,
            "host": "scripted",
            "pid": os.getpid(),
            "resources": {"cpus": 2, "memory_bytes": 1 << 30},
            "attempts": [attempt.observed() for attempt in self.attempts.values()],
        }

    def connect(self) -> dict[str, Any]:
        """Say hello, and take up what the welcome acknowledges."""
        self._channel = self._open.enter_context(self.channel())
        self.say(self.hello())
        self.welcome = json.loads(self._channel.recv(timeout=ANSWER_S))
        assert self.welcome["kind"] == "welcome", self.welcome
        for nonce, sequence in self.welcome["acknowledged"].items():
            if nonce in self.attempts:
                self.attempts[nonce].acknowledged = sequence
        return self.welcome

    def drop(self) -> None:
        """The connection is gone, as when a cable is pulled."""
        if self._channel is not None:
            self._channel.socket.shutdown(socket.SHUT_RDWR)
            self._open.close()
            self._channel = None

    def say(self, message: dict[str, Any]) -> None:
        assert self._channel is not None
        self._channel.send(json.dumps(message))

    # ── listening ───────────────────────────────────────────────────────────────────────────────
    def wait_for(self, found: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The first message, of those not used yet or to come, for which ``found``; others are kept."""
        for message in self._others:
            if found(message):
                self._others.remove(message)
                return message
        deadline = time.monotonic() + ANSWER_S
        while True:
            assert self._channel is not None
            frame = json.loads(self._channel.recv(timeout=max(0.0, deadline - time.monotonic())))
            fitting = None
            for message in frame if isinstance(frame, list) else [frame]:
                self._take(message)
                if fitting is None and found(message):
                    fitting = message
                else:
                    self._others.append(message)
            if fitting is not None:
                return fitting

    def wait_for_kind(self, kind: str, **fields: Any) -> dict[str, Any]:
        return self.wait_for(lambda m: m["kind"] == kind and all(m[name] == v for name, v in fields.items()))

    def _take(self, message: dict[str, Any]) -> None:
        """What is done at once, whatever the test waits for."""
        match message["kind"]:
            case "ping":
                self.say({"kind": "pong"})
            case "launch":
                self._take_launch(message)
            case "acknowledge":
                if message["nonce"] in self.attempts:
                    self.attempts[message["nonce"]].acknowledged = message["sequence"]
            case "forget":
                self.attempts.pop(message["nonce"], None)
            case "delete_checkpoint":
                self.deleted.append(message)
            case "not_understood":
                self.refusals.append(message)
            case "read_log":
                self._answer_log(message)

    def _take_launch(self, message: dict[str, Any]) -> None:
        self.launches.append(message)
        known = self._spent.get(message["nonce"])
        if known is None:
            fields = {name: message[name] for name in ("key", "nonce", "lineage", "spec")}
            self._spent[message["nonce"]] = self.attempts[message["nonce"]] = Attempt(**fields)
        elif known.process is not None:
            self.say({"kind": "started", "key": known.key, "nonce": known.nonce, "process": known.process})

    def _answer_log(self, message: dict[str, Any]) -> None:
        data = next((a.stdout for a in self._spent.values() if a.nonce == message["nonce"]), b"")
        begin = message["offset"] if message["offset"] >= 0 else max(0, len(data) + message["offset"])
        part = data[begin : begin + message["limit"]]
        answer = {"kind": "log_chunk", "request_id": message["request_id"], "data": part.decode(errors="replace")}
        self.say(answer | {"end": begin + len(part), "size": len(data)})

    # ── attempts ────────────────────────────────────────────────────────────────────────────────
    def launched(self, number: int, *, attempt: int = 1) -> Attempt:
        """Waits until the service has launched it."""

        def found() -> Attempt | None:
            wanted = {"number": number, "attempt": attempt}
            return next((a for a in self._spent.values() if wanted.items() <= a.key.items()), None)

        while (held := found()) is None:
            self.wait_for_kind("launch")
        return held

    def start(self, attempt: Attempt) -> None:
        attempt.process = {"boot_id": self._boot_id, "pid": 2**22 + attempt.number, "start_time": 1}
        self.say({"kind": "started", "key": attempt.key, "nonce": attempt.nonce, "process": attempt.process})

    def send_reports(self, attempt: Attempt, *, first: int | None = None) -> None:
        """All lines from ``first`` on, by default those that are not acknowledged; nothing is waited for."""
        begin = attempt.acknowledged + 1 if first is None else first
        message = {"kind": "reports", "key": attempt.key, "nonce": attempt.nonce, "first_sequence": begin}
        self.say(message | {"lines": attempt.lines[begin - 1 :]})

    def report(self, attempt: Attempt) -> None:
        """Until the service has every line."""
        while attempt.acknowledged < len(attempt.lines):
            self.send_reports(attempt)
            answer = self.wait_for(lambda m: m["kind"] in {"acknowledge", "busy"} and m["nonce"] == attempt.nonce)
            if answer["kind"] == "busy":
                time.sleep(answer["retry_after_s"])

    def exited(self, attempt: Attempt, **record: Any) -> None:
        """All lines first; returns when the service has forgotten the attempt."""
        self.report(attempt)
        attempt.exit = {"cause": "exited", "code": 0, "ended_at": time.time()} | record
        self.say_exited(attempt)
        self.wait_for_kind("forget", nonce=attempt.nonce)

    def say_exited(self, attempt: Attempt) -> None:
        message = {"kind": "exited", "key": attempt.key, "nonce": attempt.nonce, "exit": attempt.exit}
        self.say(message | {"last_sequence": len(attempt.lines)})

    # ── blobs ───────────────────────────────────────────────────────────────────────────────────
    def store(self, data: bytes) -> dict[str, Any]:
        """Offer the bytes of a checkpoint; the service's answer."""
        digest = hashlib.sha256(data).hexdigest()
        self.offer(digest, data)
        return self.wait_for_kind("blob_stored", digest=digest)

    def offer(self, digest: str, data: bytes) -> None:
        assert self._channel is not None
        self.say({"kind": "blob", "digest": digest, "size": len(data)})
        for begin in range(0, len(data), CHUNK):
            self._channel.send(data[begin : begin + CHUNK])

    def fetch(self, digest: str) -> bytes | None:
        """The bytes, whose digest is verified; None where the service has none."""
        self.say({"kind": "blob_wanted", "digest": digest})
        sent = self.wait_for_kind("blob_sent", digest=digest)
        if sent["size"] < 0:
            return None
        data = b""
        while len(data) < sent["size"]:
            assert self._channel is not None
            part = self._channel.recv(timeout=ANSWER_S)
            assert isinstance(part, bytes)
            assert len(part) <= CHUNK
            data += part
        assert hashlib.sha256(data).hexdigest() == digest
        return data

    def code_of(self, attempt: Attempt) -> dict[str, bytes]:
        data = self.fetch(attempt.spec["code_digest"])
        assert data is not None
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as tar:
            files = {entry.name: tar.extractfile(entry) for entry in tar if entry.isreg()}
            return {name: file.read() for name, file in files.items() if file is not None}

"""A service of a hundred lines: it records what an agent says and says what the test wants said."""

from __future__ import annotations

import hashlib
import io
import json
import os
import secrets
import subprocess
import sys
import tarfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.server import ServerConnection, serve

from tests.waiting import PATIENCE_S, wait_until
from trials.wire.attempt import AttemptKey
from trials.wire.checkpoints import CheckpointsFound, CheckpointsWanted
from trials.wire.encoding import decode_plain, encode, messages_in
from trials.wire.handshake import Leave
from trials.wire.launch import CheckpointRef, LaunchSpec
from trials.wire.messages import (
    PROTOCOL_VERSION,
    Acknowledge,
    BlobOffered,
    BlobSent,
    BlobStored,
    BlobWanted,
    Busy,
    Exited,
    Forget,
    Hello,
    Launch,
    Message,
    Reports,
    Started,
    Welcome,
)

LINEAGE = "lineage-of-the-test"


class FakeService:
    """Listens on a port of its own until closed; survives any number of agents."""

    def __init__(self, home: Path, *, lineage: str = LINEAGE) -> None:
        self.home = home
        self.lineage = lineage
        self.version = PROTOCOL_VERSION
        self.orders_to_leave = False
        # Processes are found by nonce on the whole machine, where the same test may run twice at once.
        self._suffix = f"-{secrets.token_hex(6)}"
        self.messages: list[Message] = []
        self.spools: dict[str, list[dict[str, Any]]] = {}
        self.blobs: dict[str, bytes] = {}
        self.answers_reports = True
        self.checkpoint_store = ""
        self.others: dict[int, tuple[CheckpointRef, ...]] = {}  # what trials may go on from, by number
        self.locations: dict[str, str] = {}
        self.busy_answers = 0
        self._connection: ServerConnection | None = None
        self._incoming: tuple[str, int, bytes] | None = None
        (home / "agent").mkdir(parents=True, exist_ok=True)
        (home / "agent" / "token").write_text("secret-token\n")
        self._server = serve(self._handle, "127.0.0.1", 0, max_size=64 << 20, close_timeout=1)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.announce()

    def announce(self) -> None:
        port = self._server.socket.getsockname()[1]
        (self.home / "service.json").write_text(json.dumps({"url": f"http://127.0.0.1:{port}", "pid": os.getpid()}))

    def close(self) -> None:
        (self.home / "service.json").unlink(missing_ok=True)
        self._server.shutdown()
        self._thread.join()

    def disconnect(self) -> None:
        assert self._connection is not None
        self._connection.close()

    # ── what the test says ────────────────────────────────────────────────────────────────────
    def send(self, message: Message) -> None:
        assert self._connection is not None
        nonce = getattr(message, "nonce", None)
        if nonce is not None:
            message = replace(message, nonce=nonce + self._suffix)
        self._connection.send(encode(message))

    def code(self, **files: str) -> str:
        """Digest of an archive of these files (``train`` is train.py)."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
            for name, text in files.items():
                info = tarfile.TarInfo(f"{name}.py")
                info.size = len(text.encode())
                tar.addfile(info, io.BytesIO(text.encode()))
        return self.keep_blob(buffer.getvalue())

    def keep_blob(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        self.blobs[digest] = data
        return digest

    def launch(
        self, script: str, *, nonce: str = "n1", number: int = 1, attempt: int = 1, experiment: str = "exp", **spec: Any
    ) -> Launch:
        fields: dict[str, Any] = {
            "command": ("python", "train.py"),
            "parameters": {"lr": 0.1},
            "seed": 7,
            "objective": "accuracy",
            "code_digest": self.code(train=script),
        }
        launch = Launch(
            key=AttemptKey(experiment_id=experiment, number=number, attempt=attempt),
            nonce=nonce,
            lineage=self.lineage,
            spec=LaunchSpec(**(fields | spec)),
        )
        self.send(launch)
        return launch

    def folder(self, nonce: str = "n1", *, number: int = 1, attempt: int = 1, experiment: str = "exp") -> Path:
        return self.home / "attempts" / experiment / str(number) / f"{attempt}-{nonce}{self._suffix}"

    # ── what the agent said ───────────────────────────────────────────────────────────────────
    def of(self, kind: type[Any], nonce: str | None = None) -> list[Any]:
        return [m for m in list(self.messages) if isinstance(m, kind) and nonce in {None, getattr(m, "nonce", None)}]

    def wait_for(
        self, kind: type[Any], nonce: str | None = None, *, count: int = 1, timeout_s: float = PATIENCE_S
    ) -> Any:
        """The ``count``-th message of the kind."""
        wait_until(lambda: len(self.of(kind, nonce)) >= count, timeout_s)
        return self.of(kind, nonce)[count - 1]

    def wait_for_exit(self, nonce: str = "n1", timeout_s: float = PATIENCE_S) -> Exited:
        found: Exited = self.wait_for(Exited, nonce, timeout_s=timeout_s)
        return found

    def values(self, name: str, nonce: str = "n1") -> list[float]:
        return [r["values"][name] for r in self.spools.get(nonce, []) if name in r.get("values", {})]

    def forget(self, nonce: str) -> None:
        self.send(Forget(nonce=nonce))

    # ── the channel ───────────────────────────────────────────────────────────────────────────
    def _handle(self, connection: ServerConnection) -> None:
        assert connection.request is not None
        assert connection.request.headers["Authorization"] == "Bearer secret-token"
        try:
            for frame in connection:
                if isinstance(frame, bytes):
                    self._take_blob(connection, frame)
                else:
                    for message in messages_in(frame):
                        self._answer(connection, self._short(decode_plain(message)))
        except ConnectionClosed:
            return

    def _answer(self, connection: ServerConnection, message: Message) -> None:
        if isinstance(message, Hello) and self.orders_to_leave:
            connection.send(encode(Leave(version=self.version, reason="it is of another version")))
        elif isinstance(message, Hello):
            known = {nonce + self._suffix: len(records) for nonce, records in self.spools.items()}
            welcome = Welcome(
                version=self.version,
                lineage=self.lineage,
                acknowledged=known,
                checkpoint_store=self.checkpoint_store,
            )
            connection.send(encode(welcome))
            self._connection = connection
        elif isinstance(message, Reports) and self.busy_answers:
            self.busy_answers -= 1
            connection.send(encode(Busy(nonce=message.nonce + self._suffix, retry_after_s=0.01)))
        elif isinstance(message, Reports):
            records = self.spools.setdefault(message.nonce, [])
            new = message.lines[max(0, len(records) + 1 - message.first_sequence) :]
            assert message.first_sequence <= len(records) + 1, "a gap in the reports"
            records.extend(json.loads(line) for line in new)
            self.locations |= message.locations
            if self.answers_reports:
                last = message.first_sequence + len(message.lines) - 1
                connection.send(encode(Acknowledge(nonce=message.nonce + self._suffix, sequence=last)))
        elif isinstance(message, CheckpointsWanted):
            found = self.others.get(message.number, ())
            error = None if found else f"trial {message.number} has saved no checkpoint so far"
            answer = CheckpointsFound(
                request_id=message.request_id,
                nonce=message.nonce + self._suffix,
                checkpoints=tuple(ref for ref in found if message.step in (None, ref.step)),
                error=error,
            )
            connection.send(encode(answer))
        elif isinstance(message, BlobOffered):
            self._incoming = (message.digest, message.size, b"")
        elif isinstance(message, BlobWanted):
            data = self.blobs.get(message.digest)
            connection.send(encode(BlobSent(digest=message.digest, size=-1 if data is None else len(data))))
            if data:
                connection.send(data)
        self.messages.append(message)

    def _short(self, message: Message) -> Message:
        if isinstance(message, Hello):
            attempts = tuple(replace(a, nonce=a.nonce.removesuffix(self._suffix)) for a in message.attempts)
            return replace(message, attempts=attempts)
        nonce = getattr(message, "nonce", None)
        if nonce is None:
            return message
        return replace(message, nonce=nonce.removesuffix(self._suffix))

    def _take_blob(self, connection: ServerConnection, frame: bytes) -> None:
        assert self._incoming is not None
        digest, size, data = self._incoming
        self._incoming = (digest, size, data + frame)
        if len(data) + len(frame) == size:
            self.blobs[digest] = data + frame
            assert hashlib.sha256(self.blobs[digest]).hexdigest() == digest
            connection.send(encode(BlobStored(digest=digest)))


class AgentProcess:
    """A real agent of ``home``."""

    def __init__(self, home: Path, *arguments: str, **environment: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "trials.agent", "--home", str(home), "--agent-id", "a1", *arguments],
            env={**os.environ, **environment},
        )

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def terminate(self) -> int:
        self._process.terminate()
        return self._process.wait(timeout=180)

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        return self._process.wait(timeout=timeout_s)


def started(service: FakeService, nonce: str = "n1", **arguments: Any) -> Started:
    found: Started = service.wait_for(Started, nonce, **arguments)
    return found


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"

"""The shared data servers of a node: one for each dataset that trials name, started by the first that asks.

A trial asks over a stream socket beside the wake socket: one line of JSON, answered by one. A server ends by itself
once no trial is left; this removes what it leaves. Servers outlive the agent, and the next one adopts them.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trials.agent.home import Home
from trials.agent.supervision.command import environment
from trials.agent.supervision.secrets import secret_values
from trials.agent.supervision.starting import LaunchFailedError
from trials.agent.wake import make_own
from trials.files import ATTEMPT_BYTES, is_full_disk, read_json, to_json, write_atomically
from trials.processes.identity import identity, is_alive, send_verified
from trials.processes.usage import memory_of
from trials.wire.files import FILE_ATTEMPT
from trials.wire.plain import ProtocolError, from_plain
from trials.wire.sockets import data_socket_path

REQUEST_BYTES = 64 << 10
REQUEST_TIMEOUT_S = 10.0
START_TIMEOUT_S = 120.0  # to import the dataset's module and to decode the first sample
ASKING_MAX = 256  # trials at a time; a further one is told so
SERVERS_MAX = 32
WORKERS_MAX = 64  # of one server
LOGS_KEPT = 32  # of servers that ended
IDLE_EXIT_S = 10.0  # of a server without a trial: the next trial may be about to start
MEMORY_SHARE = 0.25  # of the node's memory, for the rings and caches of all servers together
MEMORY_MIN_BYTES = 16 << 20
MEMORY_MOST_SHARE = 0.5  # with their datasets and workers; beyond, the largest is ended and its trials load themselves
LOOK_S = 5.0
FILE_SERVER = "server.json"
FILE_LOG = "server.log"
FOLDER_DATA = "data"
FOLDER_WORK = "work"
logger = logging.getLogger(__name__)
FindAttempt = Callable[[str], Path | None]  # the folder of a running attempt, by its nonce


class NotServedError(Exception):
    """No server for this dataset; the text tells the trial why, and it decodes for itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    shuffle: bool = True
    block_size: int
    group_seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a trial asks for. Everything but the nonce and the sizes decides which server it is."""

    nonce: str
    factory: str
    arguments: dict[str, Any]
    order: Order
    memory_bytes: int
    workers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Server:
    """One that runs, as it is written beside its folder."""

    key: str
    pid: int
    start_time: int
    boot_id: str
    memory_bytes: int

    def is_alive(self) -> bool:
        return is_alive(pid=self.pid, start_time=self.start_time, boot=self.boot_id)


def node_memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


class DataServers:
    """Lives in the agent's event loop."""

    def __init__(self, home: Home, find_attempt: FindAttempt, *, memory_bytes: int | None = None) -> None:
        self._home = home
        self._find = find_attempt
        self._folder = home.agent / FOLDER_DATA
        self._limit = int(node_memory_bytes() * MEMORY_SHARE) if memory_bytes is None else memory_bytes
        self._idle_s = float(os.environ.get("TUNER_DATA_IDLE_EXIT_S", IDLE_EXIT_S))
        self._path = data_socket_path(home.path)
        self._servers: dict[str, _Server] = {}
        self._pidfds: dict[str, int] = {}
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._starting: dict[str, asyncio.Task[None]] = {}
        self._asking: set[asyncio.Task[None]] = set()
        self._listening: socket.socket | None = None
        self._looking: asyncio.Task[None] | None = None

    # ── life ──────────────────────────────────────────────────────────────────────────────────
    def open(self) -> None:
        """Adopt the servers of an earlier agent, remove what is left of dead ones, and listen."""
        for path in sorted(self._folder.glob(f"*/{FILE_SERVER}")):
            server = _read_server(path)
            if server is not None and server.is_alive():
                self._follow(server)
            else:
                self._remove(path.parent.name)
        for folder in self._folder.glob("*"):
            if folder.name not in self._servers:
                shutil.rmtree(folder, ignore_errors=True)
        make_own(self._path.parent)
        self._path.unlink(missing_ok=True)
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._listening.bind(str(self._path))
        self._path.chmod(0o600)
        self._listening.listen(ASKING_MAX)
        asyncio.get_running_loop().add_reader(self._listening, self._accept)
        self._looking = asyncio.ensure_future(self._look_now_and_then())

    async def close(self) -> None:
        """The servers run on for their trials, and end by themselves."""
        loop = asyncio.get_running_loop()
        if self._listening is not None:
            loop.remove_reader(self._listening)
            self._listening.close()
            self._path.unlink(missing_ok=True)
        tasks = [*self._asking, *self._starting.values(), *filter(None, [self._looking])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for descriptor in self._pidfds.values():
            loop.remove_reader(descriptor)
            os.close(descriptor)
        self._pidfds.clear()

    def reserved_bytes(self) -> int:
        """What the rings and caches of all servers may take."""
        return sum(server.memory_bytes for server in self._servers.values())

    def memory_bytes(self) -> dict[str, int]:
        """What each server takes now, its workers included; of pages shared with trials its part."""
        return {
            key: sum(memory_of(pid) for pid in (server.pid, *_children(server.pid)))
            for key, server in self._servers.items()
        }

    async def _look_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            if self._servers:
                self.keep_within(int(node_memory_bytes() * MEMORY_MOST_SHARE))

    def keep_within(self, most: int) -> None:
        """End the largest server while all together take more than ``most`` bytes."""
        taken = self.memory_bytes()
        while taken and sum(taken.values()) > most:
            key = max(taken, key=lambda key: taken[key])
            server, bytes_taken = self._servers[key], taken.pop(key)
            logger.error("data_server_too_large", extra={"key": key, "bytes": bytes_taken, "most": most})
            send_verified(signal.SIGKILL, pid=server.pid, start_time=server.start_time)

    # ── trials that ask ───────────────────────────────────────────────────────────────────────
    def _accept(self) -> None:
        assert self._listening is not None
        try:
            connection, _ = self._listening.accept()
        except OSError:
            return  # it was gone again
        connection.setblocking(False)  # noqa: FBT003  the standard library takes it by position only
        if len(self._asking) >= ASKING_MAX or not _is_own_user(connection):
            connection.close()
            return
        task = asyncio.ensure_future(self._converse(connection))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _converse(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with connection:
            try:
                async with asyncio.timeout(REQUEST_TIMEOUT_S):
                    line = await _read_line(connection)
                answer = {"socket": str(await self._served(_read_request(line)))}
            except (NotServedError, ProtocolError, TimeoutError) as error:
                logger.warning("data_not_served", extra={"error": error})
                answer = {"error": str(error) or "the request did not come in time"}
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                answer = {"error": f"the attempt's {FILE_ATTEMPT} is damaged: {error!r}"}
                logger.error("data_not_served", extra={"error": repr(error)})
            except OSError as error:
                answer = {"error": f"the server cannot be started: {error}", "again": str(is_full_disk(error))}
                logger.error("data_not_served", extra={"error": error})
            try:
                await loop.sock_sendall(connection, json.dumps(answer).encode() + b"\n")
            except OSError as error:
                logger.debug("asker_gone", extra={"error": error})

    async def _served(self, request: Request) -> Path:
        folder = self._find(request.nonce)
        attempt = None if folder is None else read_json(str(folder / FILE_ATTEMPT), limit=ATTEMPT_BYTES)
        if attempt is None or folder is None:
            raise NotServedError(f"no attempt with nonce {request.nonce!r} runs here")
        key = key_of(request, attempt)
        path = self._socket_of(key)
        while True:
            server = self._servers.get(key)
            if server is not None and server.is_alive() and path.exists():
                return path
            if key not in self._starting:
                self._starting[key] = asyncio.ensure_future(self._start(key, request, attempt))
                self._starting[key].add_done_callback(lambda _: self._starting.pop(key, None))
                await asyncio.shield(self._starting[key])
                return path
            await asyncio.shield(self._starting[key])  # another trial's, whose failure is this one's, too

    def _socket_of(self, key: str) -> Path:
        return self._path.with_name(f"{self._path.stem[:8]}-{key}.d")

    # ── starting ──────────────────────────────────────────────────────────────────────────────
    async def _start(self, key: str, request: Request, attempt: dict[str, Any]) -> None:
        granted = self._granted(request.memory_bytes)
        self._remove(key)
        folder = self._folder / key
        shutil.rmtree(folder, ignore_errors=True)
        self._forget_old_logs()
        folder.mkdir(parents=True)
        await asyncio.to_thread(self._copy_code, attempt, folder / FOLDER_WORK)
        reading, writing = os.pipe2(os.O_CLOEXEC)
        try:
            spec = self._spec(key, request, granted)
            child = _spawn(folder, attempt, spec, writing)
        except LaunchFailedError as error:
            raise NotServedError(f"the data server of {request.factory} did not start: {error}") from error
        finally:
            os.close(writing)
        server = _Server(key=key, memory_bytes=granted, **_identity(child.pid))
        self._children[child.pid] = child
        write_atomically(str(folder / FILE_SERVER), to_json(_plain(server)))
        self._follow(server)
        said = await _read_to_end(reading, timeout_s=START_TIMEOUT_S)
        if said != "ready\n":
            send_verified(signal.SIGKILL, pid=server.pid, start_time=server.start_time)
            tail = said or _tail(folder / FILE_LOG) or f"it was not ready within {START_TIMEOUT_S:g} s"
            raise NotServedError(f"the data server of {request.factory} did not start: {tail}")
        logger.info("data_server_started", extra={"key": key, "pid": server.pid, "memory_bytes": granted})

    def _granted(self, wanted: int) -> int:
        free = self._limit - self.reserved_bytes()
        if len(self._servers) >= SERVERS_MAX or free < MEMORY_MIN_BYTES:
            raise NotServedError(
                f"{len(self._servers)} data servers have {self.reserved_bytes() >> 20} MiB of the node's "
                f"{self._limit >> 20} MiB for shared data; this trial loads for itself"
            )
        return min(max(wanted, MEMORY_MIN_BYTES), free)

    def _copy_code(self, attempt: dict[str, Any], work: Path) -> None:
        """The dataset's module and the files it reads, apart from every trial's working directory."""
        digest = attempt["spec"].get("code_digest")
        source = self._home.code / str(digest)
        if digest is not None and source.is_dir():
            shutil.copytree(source, work, symlinks=True)
        else:
            work.mkdir()

    def _spec(self, key: str, request: Request, granted: int) -> dict[str, Any]:
        order, workers = request.order, min(max(1, request.workers), WORKERS_MAX)
        return {
            "socket": str(self._socket_of(key)),
            "dataset": {"factory": request.factory, "arguments": request.arguments},
            "order": {"shuffle": order.shuffle, "block_size": order.block_size, "group_seed": order.group_seed},
            "options": {"workers": workers, "memory_bytes": granted, "idle_s": self._idle_s},
        }

    # ── following ─────────────────────────────────────────────────────────────────────────────
    def _follow(self, server: _Server) -> None:
        try:
            descriptor = os.pidfd_open(server.pid)
        except OSError:
            self._remove(server.key)
            return
        self._servers[server.key] = server
        self._pidfds[server.key] = descriptor
        asyncio.get_running_loop().add_reader(descriptor, self._ended, server)

    def _ended(self, server: _Server) -> None:
        descriptor = self._pidfds.pop(server.key)
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)
        child = self._children.pop(server.pid, None)
        code = child.wait() if child is not None else None
        logger.info("data_server_ended", extra={"key": server.key, "pid": server.pid, "code": code})
        if self._servers.get(server.key) is server:
            del self._servers[server.key]
        if server.key not in self._starting:
            self._remove(server.key)

    def _remove(self, key: str) -> None:
        """What a server that was killed could not remove itself; its log stays until the next start."""
        path = self._socket_of(key)
        path.unlink(missing_ok=True)
        path.with_suffix(".lock").unlink(missing_ok=True)
        folder = self._folder / key
        shutil.rmtree(folder / FOLDER_WORK, ignore_errors=True)
        (folder / FILE_SERVER).unlink(missing_ok=True)
        if folder.exists() and not (folder / FILE_LOG).exists():
            shutil.rmtree(folder, ignore_errors=True)

    def _forget_old_logs(self) -> None:
        ended = [path for path in self._folder.glob("*") if path.name not in self._servers]
        for path in sorted(ended, key=lambda path: path.stat().st_mtime)[:-LOGS_KEPT]:
            shutil.rmtree(path, ignore_errors=True)


def key_of(request: Request, attempt: dict[str, Any]) -> str:
    """Which server: of this code, interpreter, environment, dataset and order."""
    spec = attempt["spec"]
    order = request.order
    parts = [
        spec.get("code_digest"),
        spec.get("python") or attempt["local"]["python"],
        sorted(spec.get("environment", {}).items()),
        sorted(spec.get("pass_environment", ())),
        sorted(spec.get("secrets", {}).items()),
        request.factory,
        request.arguments,
        [order.shuffle, order.block_size, order.group_seed],
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def _read_request(line: bytes) -> Request:
    try:
        request: Request = from_plain(Request, json.loads(line), where="request")
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"not understood: {error}") from error
    return request


def _spawn(folder: Path, attempt: dict[str, Any], spec: dict[str, Any], ready: int) -> subprocess.Popen[bytes]:
    python = attempt["spec"].get("python") or attempt["local"]["python"] or sys.executable
    variables = environment(os.environ, attempt, attempt_dir=str(folder), paths=attempt["local"]["paths"])
    variables |= secret_values(attempt["spec"], folder=attempt["local"].get("secrets", ""))
    # It belongs to no trial: nothing that ends an attempt may find it by the attempt's nonce.
    variables = {name: text for name, text in variables.items() if not name.startswith(("TUNER_", "TRIAL_PARAM_"))}
    with (folder / FILE_LOG).open("wb") as log:
        return subprocess.Popen(
            [python, "-m", "trials.data.sharing.producer_main", json.dumps(spec)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder / FOLDER_WORK,
            env=variables | {"TUNER_DATA_READY": str(ready)},
            pass_fds=(ready,),
            start_new_session=True,
        )


async def _read_line(connection: socket.socket) -> bytes:
    loop = asyncio.get_running_loop()
    data = b""
    while not data.endswith(b"\n"):
        part = await loop.sock_recv(connection, REQUEST_BYTES)
        data += part
        if not part or len(data) > REQUEST_BYTES:
            raise ProtocolError(f"a request is one line of at most {REQUEST_BYTES} bytes")
    return data


async def _read_to_end(descriptor: int, *, timeout_s: float) -> str:
    """What is written to the pipe until its other ends are closed, or until the time is up."""
    loop = asyncio.get_running_loop()
    os.set_blocking(descriptor, False)
    data, ended = b"", asyncio.Event()

    def read() -> None:
        nonlocal data
        part = os.read(descriptor, REQUEST_BYTES)
        data += part
        if not part or len(data) > REQUEST_BYTES:
            loop.remove_reader(descriptor)
            ended.set()

    loop.add_reader(descriptor, read)
    try:
        async with asyncio.timeout(timeout_s):
            await ended.wait()
    except TimeoutError:
        pass
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
    return data.decode(errors="replace")


def _is_own_user(connection: socket.socket) -> bool:
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(found[4:8], sys.byteorder) == os.getuid()


def _identity(pid: int) -> dict[str, Any]:
    return dict(identity(pid))


def _plain(server: _Server) -> dict[str, Any]:
    return {
        "key": server.key,
        "pid": server.pid,
        "start_time": server.start_time,
        "boot_id": server.boot_id,
        "memory_bytes": server.memory_bytes,
    }


def _read_server(path: Path) -> _Server | None:
    found = read_json(str(path))
    if found is None:
        return None
    try:
        server: _Server = from_plain(_Server, found, where=path.name)
        return server
    except ProtocolError:
        return None  # of another version: it ends by itself


def _children(pid: int) -> list[int]:
    try:
        return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]
    except OSError:
        return []


def _tail(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")[-2000:].strip()
    except OSError:
        return ""

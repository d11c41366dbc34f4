"""The shared data servers of a node: one for each dataset that trials name, started by the first that asks.

A server ends by itself once no trial is left; this module removes what it leaves. Servers outlive the agent, and the
next agent adopts them.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trials.agent.home import Home
from trials.agent.rounds import one_round
from trials.agent.sharing.requests import FindAttempt, NotServedError, Request, RequestSocket, key_of
from trials.agent.supervision.command import environment
from trials.agent.supervision.secrets import secret_values
from trials.agent.supervision.starting import LaunchFailedError
from trials.agent.threads import LEAVE_S, in_own_thread
from trials.files import read_json, remove_tree, to_json, write_atomically
from trials.processes.detached import EndWatch, start_detached
from trials.processes.identity import children_of, identity, is_alive, send_verified
from trials.processes.logs import end_of
from trials.processes.usage import memory_of
from trials.stores import matching
from trials.wire.log_files import BoundedLog
from trials.wire.log_lines import ENV_LOG_FORMAT, LogForm
from trials.wire.plain import ProtocolError, from_plain
from trials.wire.sockets import data_socket_path

START_TIMEOUT_S = 120.0  # to import the dataset's module and to decode the first sample
PROBLEM_BYTES = 64 << 10  # of what a server says of its start
SERVERS_MAX = 32
WORKERS_MAX = 64  # of one server
LOGS_KEPT = 32  # of servers that ended
TAIL_BYTES = 2_000  # of the log of one that did not start
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Server:
    """One that runs, as it is written beside its folder."""

    key: str
    pid: int
    start_time: int
    boot_id: str
    memory_bytes: int


def node_memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


class DataServers:
    """Lives in the agent's event loop."""

    def __init__(self, home: Home, find_attempt: FindAttempt, *, memory_bytes: int | None = None) -> None:
        self._home = home
        self._folder = home.agent / FOLDER_DATA
        self._limit = int(node_memory_bytes() * MEMORY_SHARE) if memory_bytes is None else memory_bytes
        self._idle_s = float(os.environ.get("TUNER_DATA_IDLE_EXIT_S", IDLE_EXIT_S))
        self._path = data_socket_path(home.path)
        self._servers: dict[str, _Server] = {}
        self._ends = EndWatch()
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._starting: dict[str, asyncio.Task[None]] = {}
        self._clearing: dict[str, asyncio.Task[None]] = {}  # a start of the same waits for it
        self._requests = RequestSocket(self._path, find_attempt, serve=self._serve)
        self._looking: asyncio.Task[None] | None = None

    # ── life ──────────────────────────────────────────────────────────────────────────────────
    def open(self) -> None:
        """Adopt the servers of an earlier agent, begin to remove what is left of dead ones, and listen."""
        for path in sorted(self._folder.glob(f"*/{FILE_SERVER}")):
            server = _read_server(path)
            if server is not None and is_alive(server):
                self._follow(server)
        for folder in sorted(self._folder.glob("*")):
            if folder.name not in self._servers:
                self._clear(folder.name, self._remove_all)
        self._requests.open()
        self._looking = asyncio.ensure_future(self._look_now_and_then())

    async def close(self) -> None:
        """The servers run on for their trials, and end by themselves."""
        await self._requests.close()
        tasks = [*self._starting.values(), *filter(None, [self._looking])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._clearing:
            await asyncio.wait(self._clearing.values(), timeout=LEAVE_S)
        self._ends.close()

    def reserved_bytes(self) -> int:
        """What the rings and caches of all servers may take."""
        return sum(server.memory_bytes for server in self._servers.values())

    def memory_bytes(self) -> dict[str, int]:
        """What each server takes now, its workers included; of pages shared with trials its part. Any thread."""
        return {key: _memory_of(server) for key, server in dict(self._servers).items()}

    async def _look_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            with one_round("data servers"):
                self._requests.see_to_it()
                if self._servers:
                    # The kernel walks through all memory of a server to count it, and a long log is copied.
                    await in_own_thread(self._look_at_all)

    def _look_at_all(self) -> None:
        self.bound_logs()
        self.keep_within(int(node_memory_bytes() * MEMORY_MOST_SHARE))

    def bound_logs(self) -> None:
        """A server says something of each sample that fails, and a dataset may print what it likes. Any thread."""
        for key in list(self._servers):
            BoundedLog(self._folder / key / FILE_LOG, older=1).look()

    def keep_within(self, most: int) -> None:
        """End the largest server while all together take more than ``most`` bytes. Any thread."""
        servers = dict(self._servers)
        taken = {key: _memory_of(server) for key, server in servers.items()}
        while taken and sum(taken.values()) > most:
            key = max(taken, key=lambda key: taken[key])
            server, bytes_taken = servers[key], taken.pop(key)
            logger.error("data_server_too_large", extra={"key": key, "bytes": bytes_taken, "most": most})
            send_verified(signal.SIGKILL, server)

    # ── starting ──────────────────────────────────────────────────────────────────────────────
    async def _serve(self, request: Request, attempt: dict[str, Any]) -> Path:
        key = key_of(request, attempt)
        path = self._socket_of(key)
        while True:
            server = self._servers.get(key)
            if server is not None and is_alive(server) and path.exists():
                return path
            if key not in self._starting:
                self._starting[key] = asyncio.ensure_future(self._start(key, request, attempt))
                self._starting[key].add_done_callback(lambda _: self._starting.pop(key, None))
                await asyncio.shield(self._starting[key])
                return path
            await asyncio.shield(self._starting[key])  # another trial's, whose failure is this one's, too

    def _socket_of(self, key: str) -> Path:
        return self._path.with_name(f"{self._path.stem[:8]}-{key}.d")

    async def _start(self, key: str, request: Request, attempt: dict[str, Any]) -> None:
        self._granted(request.memory_bytes)  # else nothing is laid out
        folder = self._folder / key
        if key in self._clearing:
            await asyncio.wait([self._clearing[key]])
        await asyncio.to_thread(self._lay_out, key, attempt, in_use={*self._servers, *self._starting})
        try:
            granted = self._granted(request.memory_bytes)  # others may have been started meanwhile
            server, reading = self._begun(key, request, attempt, granted)
        except BaseException:
            self._clear(key, self._remove)
            raise
        said = await _read_to_end(reading, timeout_s=START_TIMEOUT_S)
        if said != "ready\n":
            send_verified(signal.SIGKILL, server)
            tail = (
                said or end_of(str(folder / FILE_LOG), TAIL_BYTES) or f"it was not ready within {START_TIMEOUT_S:g} s"
            )
            raise NotServedError(f"the data server of {request.factory} did not start: {tail}")
        logger.info("data_server_started", extra={"key": key, "pid": server.pid, "memory_bytes": granted})

    def _begun(self, key: str, request: Request, attempt: dict[str, Any], granted: int) -> tuple[_Server, int]:
        """Its process, and the descriptor on which it says that it is ready. Where it cannot be kept, none is left."""
        folder, child = self._folder / key, None
        reading, writing = os.pipe2(os.O_CLOEXEC)
        try:
            try:
                child = _spawn(folder, attempt, self._spec(key, request, granted), writing)
            finally:
                os.close(writing)
            server = _Server(key=key, memory_bytes=granted, **_fields(child.pid))
            write_atomically(str(folder / FILE_SERVER), to_json(_plain(server)))
            self._children[child.pid] = child
            if not self._follow(server):
                raise OSError(errno.EMFILE, "its process cannot be watched")
        except BaseException as error:
            os.close(reading)
            if child is not None:
                self._children.pop(child.pid, None)
                child.kill()
                child.wait()
            if isinstance(error, LaunchFailedError):
                raise NotServedError(f"the data server of {request.factory} did not start: {error}") from error
            raise
        return server, reading

    def _granted(self, wanted: int) -> int:
        free = self._limit - self.reserved_bytes()
        if len(self._servers) >= SERVERS_MAX or free < MEMORY_MIN_BYTES:
            raise NotServedError(
                f"{len(self._servers)} data servers have {self.reserved_bytes() >> 20} MiB of the node's "
                f"{self._limit >> 20} MiB for shared data; this trial loads for itself"
            )
        return min(max(wanted, MEMORY_MIN_BYTES), free)

    def _lay_out(self, key: str, attempt: dict[str, Any], *, in_use: Collection[str]) -> None:
        """The folder of a server that is about to start. ``in_use``: the names of folders that others need."""
        self._remove_all(key)
        self._forget_old_logs(in_use)
        folder = self._folder / key
        folder.mkdir(parents=True)
        self._copy_code(attempt, folder / FOLDER_WORK)

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
    def _follow(self, server: _Server) -> bool:
        """False where it has ended, or cannot be watched; what is left of it goes."""
        is_watched = self._ends.add(server.key, server.pid, lambda: self._ended(server), start_time=server.start_time)
        if is_watched:
            self._servers[server.key] = server
        return is_watched

    def _ended(self, server: _Server) -> None:
        child = self._children.pop(server.pid, None)
        code = child.wait() if child is not None else None
        logger.info("data_server_ended", extra={"key": server.key, "pid": server.pid, "code": code})
        if self._servers.get(server.key) is not server:
            return  # another one has its place, and its folder, already: it was asked for while this one was leaving
        del self._servers[server.key]
        if server.key not in self._starting:
            self._clear(server.key, self._remove)

    def _clear(self, key: str, remove: Callable[[str], None]) -> None:
        """By a thread: its folder holds a copy of the code, and in that whatever its dataset has written."""

        async def cleared() -> None:
            try:
                await asyncio.to_thread(remove, key)
            except OSError as error:  # the next start of the same tries it again, and says so to its trial
                logger.warning("data_server_not_removed", extra={"key": key, "error": error})

        def ended(task: asyncio.Task[None]) -> None:
            if self._clearing.get(key) is task:  # and not one that has begun since
                del self._clearing[key]

        self._clearing[key] = clearing = asyncio.ensure_future(cleared())
        clearing.add_done_callback(ended)

    def _remove_all(self, key: str) -> None:
        self._remove(key)
        remove_tree(self._folder / key, ignore_errors=True)

    def _remove(self, key: str) -> None:
        """What a server that was killed could not remove itself; its log stays until the next start."""
        path = self._socket_of(key)
        path.unlink(missing_ok=True)
        path.with_suffix(".lock").unlink(missing_ok=True)
        folder = self._folder / key
        remove_tree(folder / FOLDER_WORK, ignore_errors=True)
        (folder / FILE_SERVER).unlink(missing_ok=True)
        if folder.exists() and not (folder / FILE_LOG).exists():
            remove_tree(folder, ignore_errors=True)

    def _forget_old_logs(self, in_use: Collection[str]) -> None:
        ended: list[tuple[float, Path]] = []
        for path in matching(self._folder, "*"):
            with suppress(OSError):  # another start has removed it meanwhile
                ended += [(path.stat().st_mtime, path)] if path.name not in in_use else []
        for _, path in sorted(ended)[:-LOGS_KEPT]:
            remove_tree(path, ignore_errors=True)


def _spawn(folder: Path, attempt: dict[str, Any], spec: dict[str, Any], ready: int) -> subprocess.Popen[bytes]:
    python = attempt["spec"].get("python") or attempt["local"]["python"] or sys.executable
    variables = environment(os.environ, attempt, attempt_dir=str(folder), paths=attempt["local"]["paths"])
    variables |= secret_values(attempt["spec"], folder=attempt["local"].get("secrets", ""))
    # It belongs to no trial: nothing that ends an attempt may find it by the attempt's nonce.
    variables = {name: text for name, text in variables.items() if not name.startswith(("TUNER_", "TRIAL_PARAM_"))}
    return start_detached(
        [python, "-m", "trials.data.sharing.producer_main", json.dumps(spec)],
        log=folder / FILE_LOG,
        folder=folder / FOLDER_WORK,
        environment=variables
        | {"TUNER_DATA_READY": str(ready), ENV_LOG_FORMAT: os.environ.get(ENV_LOG_FORMAT, LogForm.AUTO.value)},
        passed=(ready,),
    )


async def _read_to_end(descriptor: int, *, timeout_s: float) -> str:
    """What is written to the pipe until its other ends are closed, or until the time is up."""
    loop = asyncio.get_running_loop()
    data, ended = b"", asyncio.Event()

    def read() -> None:
        nonlocal data
        part = os.read(descriptor, PROBLEM_BYTES)
        data += part
        if not part or len(data) > PROBLEM_BYTES:
            loop.remove_reader(descriptor)
            ended.set()

    try:
        os.set_blocking(descriptor, False)
        loop.add_reader(descriptor, read)
        async with asyncio.timeout(timeout_s):
            await ended.wait()
    except TimeoutError:
        pass
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
    return data.decode(errors="replace")


def _memory_of(server: _Server) -> int:
    return sum(memory_of(pid) for pid in (server.pid, *children_of(server.pid)))


def _fields(pid: int) -> dict[str, Any]:
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

"""The fork servers of one agent: started where trials want them, adopted from an earlier agent, ended when idle."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import secrets
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from trials.agent.forks import fork_server as forkserver
from trials.agent.forks import supervisor_server
from trials.agent.forks.isolation import Fork, Spawn, Wanted, choose, of_supervisors, shadowed
from trials.agent.forks.remembered import FILE_IMPORTS, Remembered, modules_in, script_in
from trials.agent.forks.server import Server
from trials.agent.home import Home
from trials.agent.supervision.orders import send_order
from trials.files import ATTEMPT_BYTES, read_json, to_json, write_atomically
from trials.processes.control_groups import ENV_CGROUPS
from trials.processes.detached import EndWatch, start_detached
from trials.processes.logs import end_of
from trials.processes.marks import NONCE_PLACE_BYTES, NONCE_VARIABLE
from trials.wire.files import FILE_CLAIM, FILE_EXIT, FILES_FORMAT, FOLDER_WORK, FORMAT
from trials.wire.log_lines import ENV_LOG_FORMAT
from trials.wire.records import ProcessRecord
from trials.wire.sockets import wake_socket_path

FORK_SERVERS_MAX = 4  # of one agent; when all have trials, further ones are started anew
SUPERVISORS_AGAIN_S = 1.0  # the server of supervisors is started this often at most
SUPERVISORS_HANG_PAUSE_S = 30.0  # before another takes the place of one that hung; twice as long for each in a row
SUPERVISORS_HANG_PAUSE_MAX_S = 1800.0
FORK_SERVER_START_TIMEOUT_S = 120.0  # for its imports; then the trial that waits is started anew
LEARNED_WAIT_S = 60.0  # for one that imports what the first trial imported; then each trial does so by itself
WORTH_WAITING_MODULES = 300  # fewer are imported by a trial in the time in which a server starts
TAIL_BYTES = 8_000  # of the log of one that did not start
REFUSED_S = 600.0  # after one that did not start, before another of its kind is tried
FORK_SERVER_IDLE_S = 600.0  # one that had no trial for so long is ended
AGENT_GONE_S = 10.0  # one that has no trial and no agent ends by itself after so long
ORDER_TIMEOUT_S = 10.0  # a fork server that takes no order for so long is done without
SUPERVISOR_ORDER_TIMEOUT_S = 0.1  # and the server of supervisors, as a start without it takes no longer
CLAIM_TIMEOUT_S = 30.0  # after which an attempt whose supervisor was ordered, and that nobody has claimed, gets another
ORDER_PAUSE_S = 0.005  # before an order that found its queue full is sent again
ENV_AGENT_IDLE = "TUNER_AGENT_IDLE_EXIT_S"
logger = logging.getLogger(__name__)


class ForkServers:
    """``on_lost``: these attempts were given to a server, and it has ended, or nobody has claimed them for long."""

    def __init__(self, home: Home, *, on_lost: Callable[[list[Path]], None]) -> None:
        self._home = home
        self._on_lost = on_lost
        self._servers: dict[str, Server] = {}  # by key; the newest of each
        self._leaving: list[Server] = []  # told to end, or replaced; they follow their trials to the end
        self._beginning: dict[str, float] = {}  # numbers of an earlier agent's, until when their state is waited for
        self._learned: dict[str, tuple[str, ...]] = {}
        self._learning: dict[str, str] = {}  # experiment by nonce
        self._scripts: dict[str, str | None] = {}  # of experiments whose first trial tells what it imports
        self._remembered = Remembered(home.forks / "scripts")
        self._ends = EndWatch()
        self._refused: dict[str, tuple[str, float]] = {}  # keys that cannot be forked from: why, and until when
        self._unreaped: dict[str, Server] = {}  # by nonce: those that wait for the word that the service has the exit
        self._supervisors_from = 0.0  # when their server may be started, on the monotonic clock
        self._hangs = 0  # of servers of supervisors, in a row

    # ── placing ───────────────────────────────────────────────────────────────────────────────
    async def place(self, folder: Path, attempt: Mapping[str, Any]) -> str | None:
        """Let a fork server start the ``attempt`` in ``folder``. Where none can, the reason to start it anew."""
        experiment_id = attempt["key"]["experiment_id"]
        asked = tuple(attempt["spec"].get("preload", ()))
        learned = () if asked else self._learned_by(experiment_id) or self._recalled(experiment_id, folder, attempt)
        choice = choose(attempt, base=os.environ, preload=asked or learned or ())
        if isinstance(choice, Spawn):
            return choice.why
        found = await (self._server_of(choice, learned) if learned else self._server(choice))
        if learned and isinstance(found, str):
            # Where the libraries cannot be imported, or are not yet, trials go on as the first one did.
            plain = choose(attempt, base=os.environ, preload=())
            choice = plain if isinstance(plain, Fork) else choice
            found = await self._server(choice)
        if isinstance(found, str):
            return found
        why = _own_module(folder, choice, found)
        if why is not None:
            return why
        learns = not asked and learned is None and experiment_id not in self._learning.values()
        nonce = attempt["nonce"]
        if learns:
            self._learning[nonce] = experiment_id
        if await self._order(found, {"start": str(folder), "learn": learns}, nonce=nonce, folder=folder):
            return None
        self._learning.pop(nonce, None)
        return "the fork server takes no orders"

    async def supervise(self, folder: Path, *, nonce: str, why: str) -> bool:
        """Let a supervisor be forked for the attempt in ``folder``, which is not forked itself because of ``why``.

        False where that cannot be done now: the caller starts one, and does not wait for the server of supervisors.
        What that has taken and nobody claims is given to ``on_lost`` by ``look_for_unclaimed``.
        """
        try:
            return await self._supervised(folder, nonce=nonce, why=why)
        except OSError as error:  # no descriptor, or no memory: what the caller starts is waited for where it must be
            logger.warning("not_ordered", extra={"nonce": nonce, "error": str(error)})
            return False

    async def _supervised(self, folder: Path, *, nonce: str, why: str) -> bool:
        wanted = of_supervisors(os.environ, python=sys.executable)
        server = self._up_to_date(wanted.key)
        if server is None:
            if time.monotonic() >= self._supervisors_from:
                self._supervisors_from = time.monotonic() + SUPERVISORS_AGAIN_S
                with suppress(OSError):  # neither can it be started when nothing can
                    self._start(wanted)
            return False
        order = {"start": str(folder), "why": why}
        if not server.ready.is_set() or not await self._order(
            server, order, nonce=nonce, folder=folder, timeout_s=SUPERVISOR_ORDER_TIMEOUT_S
        ):
            return False
        server.claimed_by[nonce] = time.monotonic() + CLAIM_TIMEOUT_S
        return True

    async def _server_of(self, choice: Fork, learned: Sequence[str]) -> Server | str:
        """One that has imported what was ``learned``: waited for where a trial would take as long for it by itself."""
        server = self._servers.get(choice.key)
        if len(learned) < WORTH_WAITING_MODULES and server is not None and not server.ready.is_set():
            return "the fork server is not ready yet"
        return await self._server(choice, timeout_s=LEARNED_WAIT_S)

    async def _order(
        self, server: Server, order: dict[str, Any], *, nonce: str, folder: Path, timeout_s: float = ORDER_TIMEOUT_S
    ) -> bool:
        """Whether the server has it, and the attempt of ``nonce`` with it."""
        server.used_at = time.monotonic()
        deadline = time.monotonic() + timeout_s
        while not send_order(server.orders, order):
            if time.monotonic() > deadline or not server.is_alive():
                return False
            await asyncio.sleep(ORDER_PAUSE_S)
        server.given[nonce] = folder
        return True

    def _up_to_date(self, key: str) -> Server | None:
        """The server of ``key``, ready or not. One that has ended, or whose files are others now, is let go."""
        server = self._servers.get(key)
        if server is not None and server.ready.is_set():
            changed = server.changed_file()
            # A watched one that has ended is taken out by that.
            if changed is not None or (server.id not in self._ends and not server.is_alive()):
                logger.info("fork_server_replaced", extra={"id": server.id, "changed": changed})
                self._let_go(server)
                return None
        return server

    async def _server(self, choice: Fork, *, timeout_s: float = FORK_SERVER_START_TIMEOUT_S) -> Server | str:
        """A server that is ready within ``timeout_s``, or why there is none."""
        why, until = self._refused.get(choice.key, ("", 0.0))
        if time.monotonic() < until:
            return why
        server = self._up_to_date(choice.key)
        if server is None:
            if not self._has_room() and not self._make_room():
                return f"all {FORK_SERVERS_MAX} fork servers have trials of other experiments"
            server = self._start(choice)
        return await self._when_ready(server, timeout_s)

    async def _when_ready(self, server: Server, timeout_s: float) -> Server | str:
        deadline = time.monotonic() + timeout_s
        while not server.ready.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(server.ready.wait(), 0.2)
            self.look()
            if not server.ready.is_set() and not server.is_alive():
                # Killed for want of memory, perhaps, or of room on the disk: later there may be some.
                why = f"the fork server did not start: {server.problem or 'it says nothing'}"
                return self._refuse(server, why, until=time.monotonic() + REFUSED_S)
            if time.monotonic() > deadline:
                return f"the fork server was not ready after {timeout_s:g} s"
        if server.problem is not None:
            return self._refuse(server, f"nothing can be forked after the imports: {server.problem}", until=math.inf)
        return server

    def _refuse(self, server: Server, why: str, *, until: float) -> str:
        self._refused[server.key] = why, until
        self._let_go(server)
        return why

    def _has_room(self) -> bool:
        return sum(not server.supervises for server in self._servers.values()) < FORK_SERVERS_MAX

    def _make_room(self) -> bool:
        forks = [server for server in self._servers.values() if not server.supervises]
        idle = [server for server in forks if server.ready.is_set() and not server.given]
        if not idle:
            return False
        self._let_go(min(idle, key=lambda server: server.used_at))
        return True

    # ── what to import ────────────────────────────────────────────────────────────────────────
    def _learned_by(self, experiment_id: str) -> tuple[str, ...] | None:
        """What the experiment's first trial imported; None as long as nobody knows."""
        if experiment_id not in self._learned:
            found = modules_in(self._imports(experiment_id))
            if found is None:
                return None
            self._learned[experiment_id] = found
        return self._learned[experiment_id]

    def _recalled(self, experiment_id: str, folder: Path, attempt: Mapping[str, Any]) -> tuple[str, ...] | None:
        """What trials of another experiment with the same script imported; looked for once."""
        if experiment_id in self._learned or experiment_id in self._scripts:
            return self._learned.get(experiment_id)
        script = self._scripts[experiment_id] = script_in(folder / FOLDER_WORK, attempt["spec"]["command"])
        found = self._remembered.find(script)
        if found is not None:
            self._keep(experiment_id, found)
            logger.info("imports_recalled", extra={"experiment": experiment_id, "modules": len(found)})
        return found

    def _keep(self, experiment_id: str, modules: tuple[str, ...]) -> None:
        with suppress(OSError):  # on a full disk it is known as long as this agent lives
            write_atomically(str(self._imports(experiment_id)), to_json({"modules": list(modules)}))
        self._learned[experiment_id] = modules

    def _imports(self, experiment_id: str) -> Path:
        return self._home.forks / f"{experiment_id}{FILE_IMPORTS}"

    def note_end(self, nonce: str, folder: Path) -> None:
        """The attempt is over: learn from it, if it was the first.

        A server that knows as much starts with the next launch, which follows within milliseconds where there is one.
        """
        for server in [*self._servers.values(), *self._leaving]:
            if server.given.pop(nonce, None) is not None and not server.supervises:
                self._unreaped[nonce] = server
        experiment_id = self._learning.pop(nonce, None)
        if experiment_id is None:
            return
        modules = modules_in(folder / FILE_IMPORTS)
        if modules is None:
            return  # it did not come to its end, or failed; the next one tells
        self._keep(experiment_id, modules)
        with suppress(OSError):
            self._remembered.keep(self._scripts.get(experiment_id), modules)
        logger.info("imports_learned", extra={"experiment": experiment_id, "modules": len(modules)})

    def note_forgotten(self, nonce: str) -> None:
        """The service has the exit on its disk: the fork server need not bring it onto this one, if it has not yet."""
        server = self._unreaped.pop(nonce, None)
        if server is not None:
            send_order(server.orders, {"forget": nonce})

    def forget(self, experiment_id: str) -> None:
        """The experiment was removed."""
        self._learned.pop(experiment_id, None)
        self._scripts.pop(experiment_id, None)
        self._imports(experiment_id).unlink(missing_ok=True)

    # ── servers ───────────────────────────────────────────────────────────────────────────────
    def _start(self, choice: Wanted) -> Server:
        number = f"{choice.key[:8]}-{secrets.token_hex(3)}"
        folder = self._home.forks
        folder.mkdir(parents=True, exist_ok=True)
        wake = wake_socket_path(self._home.path)
        orders = str(_orders_path(wake, number))
        server = Server(self._home, number=number, key=choice.key, orders=orders, state=folder / f"{number}.state.json")
        server.supervises = not isinstance(choice, Fork)
        config: dict[str, Any] = {
            "id": number,
            "key": choice.key,
            "orders": orders,
            "state": str(server.state),
            "preload": list(choice.preload),
            "wake": str(wake),
            "agent_gone_s": float(os.environ.get(ENV_AGENT_IDLE, AGENT_GONE_S)),
            "log_format": os.environ.get(ENV_LOG_FORMAT, ""),
            "makes_groups": os.environ.get(ENV_CGROUPS) != "off",
            "supervises": server.supervises,
        }
        path = folder / f"{number}.config.json"
        write_atomically(str(path), to_json(config))
        command = [sys.executable, forkserver.__file__, str(path)]
        environment = {**choice.variables, NONCE_VARIABLE: "-" * NONCE_PLACE_BYTES}
        if server.supervises:
            place = supervisor_server.ARGUMENTS_PLACE
            command = [sys.executable, "-I", "-S", supervisor_server.__file__, str(path), place]
            environment = dict(choice.variables)  # its children are no processes of an attempt
        server.process = start_detached(command, log=folder / f"{number}.log", environment=environment)
        self._servers[choice.key] = server
        self._watch(server, server.process.pid)
        logger.info(
            "fork_server_started", extra={"id": number, "pid": server.process.pid, "modules": len(choice.preload)}
        )
        return server

    def prepare(self, paths: Sequence[str]) -> None:
        """Have servers for the first trial of an experiment that sets no variables of its own: one for scripts that
        report, one for those whose output is read.
        """
        local = {"python": sys.executable, "paths": list(paths), "wake": ""}
        key = {"experiment_id": "", "number": 0, "attempt": 0}
        for pattern in (None, "any"):
            spec = {"command": ["python", "script.py"], "parameters": {}, "objective": "", "seed": 0}
            spec["metrics_pattern"] = pattern
            attempt = {"spec": spec, "local": local, "key": key, "nonce": ""}
            choice = choose(attempt, base=os.environ, preload=())
            if isinstance(choice, Fork) and choice.key not in self._servers and self._has_room():
                self._start(choice)

    def adopt(self) -> None:
        """Take over the servers of an earlier agent; what is left of dead ones is removed."""
        kinds = ("*.config.json", "*.state.json")
        for number in sorted({path.name.partition(".")[0] for kind in kinds for path in self._home.forks.glob(kind)}):
            if self._state_of(number).exists():
                self._adopt(number)
            else:  # it imports, or was killed meanwhile
                self._beginning[number] = time.monotonic() + FORK_SERVER_START_TIMEOUT_S

    def _state_of(self, number: str) -> Path:
        return self._home.forks / f"{number}.state.json"

    def _adopt(self, number: str) -> None:
        path = self._state_of(number)
        state = read_json(str(path), limit=ATTEMPT_BYTES) or {}
        try:
            server = Server(self._home, number=state["id"], key=state["key"], orders=state["orders"], state=path)
            alive = server.read_state() and server.is_alive()
        except (LookupError, TypeError, ValueError, AttributeError):
            alive = False  # of another version
        if not alive or server.identity is None:
            self._remove_files(number)
            return
        is_readable = state.get(FORMAT, 1) == FILES_FORMAT  # else it could not read what it would be given
        if is_readable and server.problem is None and server.key not in self._servers:
            self._servers[server.key] = server
        else:  # of no use; it would take this agent for the one that it waits for
            self._leaving.append(server)
            send_order(server.orders, {"end": True})
        self._watch(server, server.identity.pid)

    def look(self) -> None:
        """Take note of servers that have become ready."""
        for server in self._servers.values():
            if not server.ready.is_set():
                server.read_state()
        for number, until in list(self._beginning.items()):
            if self._state_of(number).exists():
                del self._beginning[number]
                self._adopt(number)
            elif time.monotonic() > until:
                del self._beginning[number]
                self._remove_files(number)

    def end_idle(self) -> None:
        """End those that nobody has wanted for long."""
        for server in list(self._servers.values()):
            if server.ready.is_set() and not server.given and time.monotonic() - server.used_at > FORK_SERVER_IDLE_S:
                self._let_go(server)

    def look_for_unclaimed(self) -> None:
        """Take back what the server of supervisors was given and has not followed in its time, for whatever reason.

        The server is ended: it hangs, and what it is given next would wait as long.
        """
        now = time.monotonic()
        for server in [*self._servers.values(), *self._leaving]:
            late, has_followed = [], False
            for nonce in [nonce for nonce, until in server.claimed_by.items() if until <= now]:
                del server.claimed_by[nonce]
                folder = server.given.get(nonce)
                if folder is None:
                    continue
                if not os.path.lexists(folder / FILE_CLAIM):
                    late.append(server.given.pop(nonce))
                elif os.path.lexists(folder / FILE_EXIT):  # it was stopped while the order waited for room
                    del server.given[nonce]
                else:
                    has_followed = True
            if late:
                self._end_hanging(server, late)
            elif has_followed:
                self._hangs = 0

    def _end_hanging(self, server: Server, late: list[Path]) -> None:
        """The supervisors that it has forked go on. Others are started without a server, until there is another one."""
        logger.error("supervisor_server_hangs", extra={"id": server.id, "attempts": len(late)})
        self._hangs += 1
        pause = min(SUPERVISORS_HANG_PAUSE_S * 2.0 ** min(self._hangs - 1, 10), SUPERVISORS_HANG_PAUSE_MAX_S)
        self._supervisors_from = time.monotonic() + pause
        if self._servers.get(server.key) is server:
            self._let_go(server)
        server.kill()
        self._on_lost(late)

    def processes(self) -> list[ProcessRecord]:
        """Those that have attempts to start or to follow."""
        found = [server.identity for server in [*self._servers.values(), *self._leaving] if server.given]
        return [ProcessRecord(boot_id=p.boot_id, pid=p.pid, start_time=p.start_time) for p in found if p is not None]

    def has_given(self, nonce: str) -> bool:
        """Whether a living server has the attempt, or will claim it."""
        return any(nonce in server.given for server in [*self._servers.values(), *self._leaving])

    def close(self) -> None:
        """End them when their trials have ended; let go of them now."""
        for server in list(self._servers.values()):
            self._let_go(server)
        self._ends.close()
        for server in self._leaving:
            if server.process is not None:
                # Not waited for: it follows its trials to their end, longer than this process lives.
                server.process.returncode = server.process.poll() or 0

    def _let_go(self, server: Server) -> None:
        self._servers.pop(server.key, None)
        self._leaving.append(server)
        if not send_order(server.orders, {"end": True}) and server.process is not None and not server.ready.is_set():
            server.process.kill()  # it is still importing, and has no trials

    def _watch(self, server: Server, pid: int) -> None:
        if not self._ends.add(server.id, pid, lambda: self._ended(server)):
            self._ended(server)

    def _ended(self, server: Server) -> None:
        if server.process is not None:
            server.process.wait()
        logger.info("fork_server_ended", extra={"id": server.id})
        if self._servers.get(server.key) is server:
            del self._servers[server.key]
        if server in self._leaving:
            self._leaving.remove(server)
        if not server.ready.is_set():
            server.problem = _last_line(self._home.forks / f"{server.id}.log")
        self._remove_files(server.id)
        given, server.given = list(server.given.values()), {}
        self._on_lost(given)

    def _remove_files(self, number: str) -> None:
        for kind in ("state.json", "config.json", "log"):
            (self._home.forks / f"{number}.{kind}").unlink(missing_ok=True)
        _orders_path(wake_socket_path(self._home.path), number).unlink(missing_ok=True)


def _orders_path(wake: Path, number: str) -> Path:
    """Beside the agent's own socket, and no longer than it: the length of such paths is limited."""
    own = number.rpartition("-")[2]
    return wake.with_name(f"{wake.stem[: -len(own) - 1]}{own}.fork")


def _last_line(path: Path) -> str | None:
    lines = end_of(str(path), TAIL_BYTES).splitlines()
    return lines[-1][-500:] if lines else None


def _own_module(folder: Path, choice: Fork, server: Server) -> str | None:
    """Why the script must not be forked from ``server``: it has a module that the server has another one of."""
    work = f"{folder}/{FOLDER_WORK}"
    is_file = choice.script.kind == "file"
    place = os.path.dirname(os.path.realpath(f"{work}/{choice.script.name}")) if is_file else work  # noqa: PTH120
    try:
        with os.scandir(place) as entries:
            names = [e.name for e in entries if not e.is_dir() or Path(place, e.name, "__init__.py").exists()]
    except OSError:
        return None  # the script says so itself
    name = shadowed(names, server.loaded)
    return None if name is None else f"the script's folder has {name}, and a library of that name is loaded already"

"""The agent of one node: ``python -m trials.agent --home HOME``."""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import gc
import logging
import logging.handlers
import math
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from trials.agent import bounds
from trials.agent.agent import LOOK_S, Agent
from trials.agent.bounds import EXIT_SERVICE_LOST, service_lost_s
from trials.agent.channel import Channel
from trials.agent.home import Home, plain_name
from trials.agent.joining import add_join_options, join_of
from trials.agent.moving.blobs import drop_left
from trials.agent.moving.service_files import Pace, ServiceFiles
from trials.agent.rounds import one_round
from trials.agent.sharing.servers import DataServers
from trials.agent.threads import OWN, Threads, leave
from trials.agent.wake import WakeSocket
from trials.agent.ways import HomeWay, Way
from trials.files import is_full_disk
from trials.processes.identity import boot_id
from trials.wire.homes import is_foreign
from trials.wire.log_files import LOG_BYTES, OLDER_LOGS
from trials.wire.log_format import configure_logging
from trials.wire.log_lines import ENV_LOG_FORMAT, LogForm, form_named
from trials.wire.plain import ProtocolError
from trials.wire.sockets import wake_socket_path

IDLE_EXIT_S = 10.0
EXIT_INTERRUPTED = 130  # as a shell tells it
PRIVATE_UMASK = 0o077  # what the agent and the parents of trials write is its owner's alone
logger = logging.getLogger("trials.agent")


def main() -> int:
    """Serve until idle without a service, or until SIGTERM; the trials run on. 0 also if another agent does already.

    The service that has started it is waited for while it lives, however long its database takes to open.
    """
    parser = argparse.ArgumentParser(
        prog="python -m trials.agent", description="Runs the trials of one node.", allow_abbrev=False
    )
    parser.add_argument("--home", type=Path, required=True, help="folder of the attempts, their logs and checkpoints")
    parser.add_argument("--service-file", type=Path, help="where the service's address is (default: HOME/service.json)")
    parser.add_argument("--service-pid", type=int, help="of the service that starts it, for which it waits")
    parser.add_argument("--agent-id", help="name of this agent (default: kept in HOME/agent/id)")
    parser.add_argument("--umask", type=lambda text: int(text, 8), help="of trials (default: the agent's own)")
    parser.add_argument(
        "--log-format",
        type=LogForm,
        choices=[form.value for form in LogForm],
        default=form_named(os.environ.get(ENV_LOG_FORMAT)),
        help="of its log and those of what it starts (default: auto, which is json in files)",
    )
    add_join_options(parser)
    options = parser.parse_args()
    joined = join_of(parser, options)
    if (fault := bounds.fault()) is not None:
        parser.error(fault)
    os.environ[ENV_LOG_FORMAT] = options.log_format.value  # for what it starts
    own_umask = os.umask(PRIVATE_UMASK)
    home = Home(options.home)
    home.umask = own_umask if options.umask is None else options.umask
    if options.service_file is not None:
        home.service_file = options.service_file.resolve()
    if is_foreign(home.agent):
        parser.error(
            f"the folder {home.agent} holds files that are no agent's, and stays as it is; name another --home"
        )
    try:
        home.make()
        lock = _locked(home)
        if lock is None:
            if joined is None:
                return 0
            parser.error(f"another agent serves the home {home.path} already; give this one a --home of its own")
        home.drop_unsynced(boot_id())
        drop_left(home)
        if joined is None:
            _leave_session()
        _log_to(home.agent / "agent.log", options.log_format, aloud=joined is not None)
        agent_id = plain_name(options.agent_id, what="agent id") if options.agent_id else home.agent_id()
    except OSError as error:
        parser.error(_unusable(home, error))
    except ProtocolError as error:
        parser.error(str(error))  # of its name
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # ``tuner agent join`` held it back
        threads, way = Threads(), joined or HomeWay(home, starter=options.service_pid)
        return leave(asyncio.run(_serve(home, agent_id, lock, way, threads)), threads, OWN)
    except KeyboardInterrupt:  # before it serves; later it ends as at SIGTERM
        return EXIT_INTERRUPTED


def _locked(home: Home) -> int | None:
    """The lock of the one agent of the home; None where another one has it."""
    lock = os.open(home.agent / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock


def _unusable(home: Home, error: OSError) -> str:
    """For people: an agent that another user has started before leaves files that only that one may use."""
    where = f"the home {home.path} cannot be used: {error.filename or 'a file of it'}: {error.strerror or error}"
    if is_full_disk(error):
        return f"{where}; make room there, or name another --home"
    return f"{where}; give its user the right to, with all that is in it, or name another --home"


def _leave_session() -> None:
    """The end of the terminal or of the service's session must not end the agent."""
    if os.getsid(0) != os.getpid() and os.getpgid(0) != os.getpid():
        os.setsid()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _log_to(path: Path, form: LogForm, *, aloud: bool) -> None:
    """``aloud``: on standard error, too, where a person or systemd looks."""
    handler = logging.handlers.RotatingFileHandler(path, maxBytes=LOG_BYTES, backupCount=OLDER_LOGS, encoding="utf-8")
    configure_logging(handler, form=form)
    if aloud:
        spoken = logging.StreamHandler()
        spoken.setFormatter(handler.formatter)
        logging.getLogger().addHandler(spoken)
    logging.getLogger("websockets").setLevel(logging.WARNING)


async def _serve(home: Home, agent_id: str, lock: int, way: Way, threads: Threads) -> int:
    asyncio.get_running_loop().set_default_executor(threads)
    agent = Agent(home)
    agent.facts.is_joined = way.is_joined or bounds.is_lent()
    if agent.facts.is_joined:
        ServiceFiles(way, agent_id=agent_id, pace=Pace(bounds.bandwidth())).use()
    idle_exit_s = float(os.environ.get("TUNER_AGENT_IDLE_EXIT_S", math.inf if way.is_joined else IDLE_EXIT_S))
    lost_exit_s = service_lost_s()
    channel = Channel(agent, way=way, agent_id=agent_id, idle_exit_s=idle_exit_s, lost_exit_s=lost_exit_s)
    wake = WakeSocket(wake_socket_path(home.path), on_wake=agent.woken, on_connect=channel.connect_now)
    data = DataServers(home, agent.folder_of_running)
    data.open()
    gc.freeze()  # what was imported stays: reading reports need not look through it
    logger.info("agent_started", extra={"pid": os.getpid(), "agent": agent_id})
    agent.adopt()
    agent.prepare_fork_server()
    await agent.devices.open()
    serving = asyncio.ensure_future(channel.run())
    watching = asyncio.ensure_future(agent.devices.watch())
    looking = asyncio.ensure_future(_look_now_and_then(agent, lock, wake=wake, leave=serving.cancel))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)
    is_lost = False
    try:
        is_lost = await serving
    except asyncio.CancelledError:
        logger.info("agent_terminated")
    finally:
        looking.cancel()
        watching.cancel()
        wake.close()
        await data.close()
        await agent.close()
        logger.info("agent_ended")
    return EXIT_SERVICE_LOST if is_lost else 0


async def _look_now_and_then(agent: Agent, lock: int, *, wake: WakeSocket, leave: Callable[[], object]) -> None:
    while True:
        await asyncio.sleep(LOOK_S)
        if not _is_in_place(lock, agent.home.agent / "lock"):
            # Its lock would keep another agent from serving the home where it is now.
            logger.error("home_moved", extra={"home": agent.home.path})
            leave()
            return
        with one_round("attempts"):
            wake.see_to_it()
            agent.look_thoroughly()


def _is_in_place(lock: int, path: Path) -> bool:
    """Whether the home is still where this agent found it."""
    try:
        return os.path.samestat(os.fstat(lock), path.stat())
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:  # nobody can say now, as where its server is away
        return True


if __name__ == "__main__":
    sys.exit(main())

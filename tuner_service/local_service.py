"""The service of a home folder: finds it, starts it where asked, and ends it. Standard library only."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from trials.wire.peers import NotHeldError, require_peer
from trials.wire.variables import with_path
from tuner_service.client import (
    HEALTH_TIMEOUT_S,
    Client,
    ClientError,
    ProblemError,
    TokenWithheldError,
    UnreachableError,
)
from tuner_service.client_tls import context_of, context_of_home
from tuner_service.config import SQLITE_SCHEME, Settings

START_TIMEOUT_S = 120.0  # of a service that was started and lives; beyond: UnreachableError with the end of its log
START_POLL_S = 0.01
LOG_TAIL_BYTES = 2_000
MOST_PID = 2**31 - 1  # that the kernel is asked for; a file that names another was not written by a service


def find_service(settings: Settings) -> Client | None:
    """The service of the settings' URL or home folder; None when none runs. UnreachableError: it runs and hangs.

    The home's own token goes to the process that the home names as its service, and to nobody else. A token that was
    given beside a URL goes there. TokenWithheldError: there is a URL, and no token for it.
    """
    described = read_service_file(settings)
    if settings.url and (described is None or described["url"] != settings.url or settings.token_is_for_url):
        return Client(settings.url, _token_for_url(settings), tls=context_of(settings))
    if described is None or not process_is_alive(described["pid"]):
        return None
    admit = partial(_admit, settings)
    client = Client(described["url"], _token(settings), admit=admit, tls=context_of_home)
    try:
        health = client.health()
    except UnreachableError as exc:
        client.close()
        if isinstance(exc.__cause__, TimeoutError):
            raise UnreachableError(
                f"the service of {settings.home} (process {described['pid']}) does not answer: {exc}; "
                "its log is service.log there"
            ) from exc
        return None  # it is on its way out, or another process has its address or its number now
    except ProblemError:
        client.close()
        return None  # something else listens at its old address
    if health.get("pid") != described["pid"]:
        client.close()
        return None
    return client


def _admit(settings: Settings, connection: socket.socket) -> None:
    """NotHeldError unless the other end is the service that the home names now, of the user whose token it is."""
    described = read_service_file(settings)
    if described is None:
        raise NotHeldError(f"no service runs on {settings.home} any more")
    try:
        owner = settings.token_file.stat().st_uid
    except OSError:
        owner = os.geteuid()
    timeout_s = connection.gettimeout() or HEALTH_TIMEOUT_S
    require_peer(connection, pid=described["pid"], uid=owner, timeout_s=timeout_s)


def require_service(settings: Settings) -> Client:
    """UnreachableError, with what to do, when none runs."""
    client = find_service(settings)
    if client is None:
        raise UnreachableError(
            f"no service runs on {settings.home}; start one with `tuner serve --home {settings.home}`"
        )
    return client


def read_service_file(settings: Settings) -> dict[str, Any] | None:
    """None when there is none, or it is not what a service writes."""
    try:
        described = json.loads(settings.service_file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(described, dict) or type(described.get("pid")) is not int:
        return None
    return described if 1 <= described["pid"] <= MOST_PID and _is_address(described.get("url")) else None


def _is_address(url: Any) -> bool:
    try:
        address = urlsplit(url if isinstance(url, str) else "")
        return address.scheme in {"http", "https"} and bool(address.hostname) and address.port != 0
    except ValueError:
        return False


@dataclass
class StartingService:
    """A service on its way; ``wait`` ends in a client, whoever started it."""

    settings: Settings
    process: subprocess.Popen[bytes]
    log_start: int

    def wait(self) -> Client:
        """Returns once it answers. UnreachableError with the end of its log if it does not come up in time."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            code = self.process.poll()
            described = read_service_file(self.settings)
            # One that another command started at the same moment is as good, and ours will give way: nobody waits for
            # that, who may hold trials that are given back meanwhile.
            if described is not None:
                with suppress(UnreachableError):  # it is there, and has more to do than it can: on a slow machine
                    client = find_service(self.settings)
                    if client is not None:
                        return client
            if code is not None and not self._another_is_starting():
                raise UnreachableError(f"the service ended with exit code {code} at its start:\n{self._log_tail()}")
            time.sleep(START_POLL_S)
        raise UnreachableError(f"the service did not answer within {START_TIMEOUT_S:g} s:\n{self._log_tail()}")

    def _another_is_starting(self) -> bool:
        """Whether another living process holds the database: its lock file names it, or what refused this one does."""
        if self.settings.database_file is None:
            return f"(home {self.settings.home})" in self._log_tail()
        return database_holder(self.settings) not in {None, self.process.pid}

    def _log_tail(self) -> str:
        try:
            with self.settings.log_file.open("rb") as stream:
                size = stream.seek(0, os.SEEK_END)
                start = self.log_start if self.log_start <= size else 0  # it was too long, and is begun anew
                stream.seek(max(start, size - LOG_TAIL_BYTES))
                return stream.read().decode("utf-8", "replace").strip()
        except OSError as exc:
            return f"(its log {self.settings.log_file} cannot be read: {exc.strerror})"


def database_holder(settings: Settings) -> int | None:
    """The living process that the database's lock file names; None without one."""
    file = settings.database_file
    if file is None:
        return None
    try:
        holder = file.with_name(file.name + ".lock").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    if not (holder.isdecimal() and len(holder) <= len(str(MOST_PID)) and 1 <= int(holder) <= MOST_PID):
        return None
    return int(holder) if process_is_alive(int(holder)) else None


def database_told(db: str) -> str:
    """Which database a service works on, as it says in its home: of a server without who may use it, and how."""
    if db.startswith(SQLITE_SCHEME) or "://" not in db:
        return db.removeprefix(SQLITE_SCHEME)
    try:
        parts = urlsplit(db)
    except ValueError:
        return "postgresql://"
    return f"postgresql://{parts.netloc.rpartition('@')[2]}{parts.path}"


def require_its_database(settings: Settings) -> None:
    """ClientError where the service of the home works on another database than the one that is named: what was meant
    for that one is not to come into this one without a word."""
    other = _other_database(settings)
    if other and not settings.url:
        raise ClientError(
            f"the service of {settings.home} works on the database {other}, and not on {database_told(settings.db)} "
            f"({settings.origins['db']}): name another home, end the service with `tuner serve --stop`, or name no "
            "database"
        )


def _other_database(settings: Settings) -> str:
    """Of the service that runs on the home, where the settings name another one; else "".

    Only what is certainly another one: a server may have many names.
    """
    told = (read_service_file(settings) or {}).get("database")
    if not isinstance(told, str) or settings.origins.get("db", "default") == "default":
        return ""
    meant = database_told(settings.db)
    if ("://" in told) != ("://" in meant):
        return told
    if "://" in told:
        is_other = urlsplit(told).path.strip("/") != urlsplit(meant).path.strip("/")
    else:
        is_other = not _is_same_file(Path(told), Path(meant))
    return told if is_other else ""


def _is_same_file(one: Path, other: Path) -> bool:
    """Also where that cannot be told: what a service in a container names need not be there by the same name."""
    try:
        return one.resolve() == other.resolve() or not one.exists() or one.samefile(other)
    except FileNotFoundError:
        return False  # the other one
    except (OSError, RuntimeError):
        return True


def start_service(settings: Settings) -> StartingService:
    """Start a service on the settings' home folder; it outlives this process. Returns before it answers."""
    try:
        settings.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        log = os.fdopen(os.open(settings.log_file, flags, 0o600), "ab")
    except OSError as exc:
        raise UnreachableError(f"the home folder {settings.home} cannot be used: {exc.strerror}") from exc
    # -P: what lies in the folder that a command was called in is no part of the service.
    command = [sys.executable, "-P", "-m", "tuner_service.cli.main", "serve"]
    command += ["--home", str(settings.home)]
    command += ["--port", str(settings.port), "--host", settings.host, "--log-level", settings.log_level]
    command += ["--log-format", settings.log_format]
    for flag, value in (("--tls-cert", settings.tls_cert), ("--tls-key", settings.tls_key)):
        command += [flag, value] if value else []
    command += ["--insecure-network"] if settings.insecure_network else []
    if settings.profile:  # it may say more of the service than these flags do
        command += ["--profile", settings.profile]
    with log:
        start = log.seek(0, os.SEEK_END)
        process = _spawn(command, log, settings)
    return StartingService(settings=settings, process=process, log_start=start)


def _spawn(command: list[str], log: IO[bytes], settings: Settings) -> subprocess.Popen[bytes]:
    stores = {"TUNER_ASSET_STORE": settings.asset_store} if settings.asset_store else {}
    executor = {"TUNER_EXECUTOR": settings.executor.text} if settings.origins["executor"] != "default" else {}
    root = str(Path(__file__).resolve().parent.parent)
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,  # where it listens stands in its log, too
        stderr=log,
        # The address of a database may hold its password, and other users see command lines.
        env=with_path(os.environ, root) | {"TUNER_DB": settings.db} | stores | executor,
        start_new_session=True,  # Ctrl-C in this terminal, or its end, is no reason for the service to stop
    )


def stop_service(settings: Settings, *, timeout_s: float = 30.0) -> bool:
    """Ask the service of the home folder to end; trials run on. Whether there was one.

    No other process is ever signalled. UnreachableError: it does not end.
    """
    described = read_service_file(settings)
    if described is None:
        return False
    try:
        process = os.pidfd_open(described["pid"])
    except OSError:
        return False  # it has ended
    try:
        # Asked of the process that is held: its number cannot become another one's from here on.
        if not process_is_alive(described["pid"]) or not _is_that_process(settings, described):
            return False
        signal.pidfd_send_signal(process, signal.SIGTERM)
        # A process that has ended is readable at once, also where nobody reaps it.
        if not select.select([process], [], [], timeout_s)[0]:
            raise UnreachableError(
                f"the service (process {described['pid']}) was told to end and has not within {timeout_s:g} s; "
                f"`kill -9 {described['pid']}` ends it, and loses nothing"
            )
    except PermissionError as exc:
        raise UnreachableError(f"process {described['pid']}, the service, belongs to another user") from exc
    finally:
        os.close(process)
    return True


def _is_that_process(settings: Settings, described: dict[str, Any]) -> bool:
    """Whether the process is the service that wrote the file: after a crash its number may be another program's."""
    if described.get("process"):
        return bool(described["process"] == process_mark(described["pid"]))
    client = find_service(settings)  # an earlier version wrote the file: then it has to answer
    if client is not None:
        client.close()
    return client is not None


def process_mark(pid: int) -> str:
    """The same for as long as the process lives, and of no other process of any time; "" where there is none."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        started = _stat_fields(pid)[19]
    except (OSError, IndexError):
        return ""
    return f"{boot} {pid} {started}"


def _token_for_url(settings: Settings) -> str:
    if settings.token_is_for_url:
        return settings.token
    whose = f"the token of {settings.origins['token']}" if settings.token else f"the token of {settings.home}"
    raise TokenWithheldError(
        f"{whose} is not sent to {settings.url} ({settings.origins['url']}): it belongs to another service; set "
        "TUNER_TOKEN to the token of that one, or write it beside the url in your own config.toml"
    )


def _token(settings: Settings) -> str:
    if settings.token:
        return settings.token
    file: Path = settings.token_file
    try:
        token = file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError as exc:
        raise ClientError(
            f"the token file {file} cannot be read ({exc.strerror}); set TUNER_TOKEN to the service's token"
        ) from exc
    if not (token and token.isascii() and token.isprintable()):
        raise ClientError(
            f"the token file {file} is damaged; remove it and start the service again, which makes a new token"
        )
    return token


def process_is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not _waits_to_be_reaped(pid)


def _waits_to_be_reaped(pid: int) -> bool:
    """It has ended, though its number is taken: in a container nobody may ever reap it."""
    try:
        return _stat_fields(pid)[0] in {"Z", "X"}
    except (OSError, IndexError):
        return False


def _stat_fields(pid: int) -> list[str]:
    """Of /proc/PID/stat what stands behind the name, which may itself hold spaces and parentheses."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()

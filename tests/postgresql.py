"""A real PostgreSQL server of the tests' own: one a process, a new database for whoever asks.

Started as a user without rights, which the server insists on, with its socket in a temporary folder; nobody else's
server is touched. Without the programs the tests that need one are skipped, and say how to install them.
"""

from __future__ import annotations

import atexit
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import wait_until

INSTALL = "apt-get install --no-install-recommends postgresql"
USERS = ("postgres", "nobody")  # as whom it runs where the tests run as root
SETTINGS = (
    "listen_addresses=",
    "fsync=off",  # what is killed here are processes, never the machine
    "shared_buffers=32MB",
    "max_connections=80",
    "max_wal_size=1GB",
    "autovacuum_naptime=10s",
)


def programs() -> Path | None:
    """The folder of the newest server's programs."""
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"),
        key=lambda path: [int(part) for part in path.parts[-3].split(".")],
    )
    if found:
        return found[-1].parent
    named = shutil.which("initdb")
    return None if named is None else Path(named).resolve().parent


@dataclass
class Server:
    """``folder`` is gone with ``end``."""

    folder: Path
    programs: Path
    settings: tuple[str, ...] = ()
    _process: subprocess.Popen[bytes] | None = None
    _numbers: Any = field(default_factory=lambda: itertools.count(1))
    _templates: set[str] = field(default_factory=set)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def make(self) -> None:
        self.folder.chmod(0o711)
        data = self.folder / "data"
        data.mkdir(mode=0o700)
        if user_of_the_server() is not None:
            for path in (self.folder, data):
                shutil.chown(path, user_of_the_server())
        self._run("initdb", "-D", str(data), "-U", "tuner", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")

    def replica(self) -> Server:
        """Another server that follows this one, and is its own to end; it takes over with ``promote``."""
        folder = Path(tempfile.mkdtemp(prefix="tuner-pg-"))
        follower = Server(folder, self.programs, self.settings)
        folder.chmod(0o711)
        if (user := user_of_the_server()) is not None:
            shutil.chown(folder, user)
        source = ("-h", str(self.folder), "-U", "tuner")
        self._run("pg_basebackup", *source, "-D", str(folder / "data"), "-R", "-X", "stream", "-c", "fast", "--no-sync")
        follower.start()
        return follower

    def promote(self) -> None:
        """A replica becomes a server that takes writes."""
        assert self.execute("SELECT pg_promote(true, 60)") == [(True,)]

    def start(self) -> None:
        """Returns when it takes connections."""
        options = [part for setting in (*SETTINGS, *self.settings) for part in ("-c", setting)]
        command = [str(self.programs / "postgres"), "-D", str(self.folder / "data"), "-k", str(self.folder), *options]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen([*_as_user(), *command], stdout=log, stderr=log, cwd="/")
        wait_until(self.answers)

    def answers(self) -> bool:
        done = self._tool("pg_isready", "-q", "-h", str(self.folder), "-d", "postgres", "-U", "tuner")
        return done.returncode == 0

    def stop(self) -> None:
        """As its operator does; a second start finds everything."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """kill -9 of the server and, as it notices, of every process of it."""
        self._end(signal.SIGKILL)
        wait_until(self._is_free)

    def url(self, database: str) -> str:
        return f"postgresql://tuner@/{database}?host={self.folder}"

    def new_database(self, *, template: str = "template0") -> str:
        """Its URL."""
        name = f"t{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY ENCODING 'UTF8'")
        return self.url(name)

    def filled_database(self) -> str:
        """As ``new_database``, with the tables of a service that ran and ended."""
        if "tuner_template" not in self._templates:
            from tests.builders import START
            from tuner_service.storage.engine import open_store

            class StillClock:
                def now(self) -> float:
                    return START

            self.execute("CREATE DATABASE tuner_template TEMPLATE template0 ENCODING 'UTF8'")
            open_store(self.url("tuner_template"), StillClock()).close()
            self._templates.add("tuner_template")
        return self.new_database(template="tuner_template")

    def execute(self, statement: str, *, database: str = "postgres") -> list[tuple[Any, ...]]:
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(statement)  # type: ignore[call-overload]  # statements of tests
            return list(cursor.fetchall()) if cursor.description else []

    def end(self) -> None:
        with suppress(ProcessLookupError):
            self._end(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(60)
            self._process = None

    def _is_free(self) -> bool:
        """Whether the processes that the server left have ended, and let go of the memory that they share."""
        postmaster = self.folder / "data" / "postmaster.pid"
        pids = subprocess.run(["pgrep", "-f", str(self.folder)], capture_output=True, text=True, check=False).stdout
        if pids.split():
            return False
        postmaster.unlink(missing_ok=True)
        return True

    def _run(self, *command: str) -> None:
        done = self._tool(*command)
        assert done.returncode == 0, done.stderr

    def _tool(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [*_as_user(), str(self.programs / name), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=180, cwd="/")


def user_of_the_server() -> str | None:
    """As whom the server runs; None: as this process does."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in USERS if name in known)


def _as_user() -> list[str]:
    """It ends with the tests, however they end."""
    user = user_of_the_server()
    if shutil.which("setpriv") is None:
        return []
    command = ["setpriv", "--pdeathsig", "QUIT"]
    if user is None:
        return command
    group = pwd.getpwnam(user).pw_gid
    return [*command, f"--reuid={user}", f"--regid={group}", "--clear-groups"]


def a_server(*settings: str) -> Server:
    """A server of one's own, to be ended by who asked. Skips the test where there is none."""
    found = programs()
    if found is None:
        pytest.skip(f"there is no PostgreSQL server here: {INSTALL}")
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("PostgreSQL refuses to run as root, and there is no setpriv: apt-get install util-linux")
    pytest.importorskip("psycopg", reason="pip install 'psycopg[binary]'")
    server = Server(Path(tempfile.mkdtemp(prefix="tuner-pg-")), found, settings)
    try:
        server.make()
        server.start()
    except BaseException:
        server.end()
        raise
    return server


@cache
def the_server() -> Server:
    """The one that tests of this process share, and leave as it is."""
    server = a_server()
    atexit.register(server.end)
    return server

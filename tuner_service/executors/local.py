"""The local executor: keeps one agent alive on this machine for the home folder.

The agent is a session of its own and outlives the service. One that is alive already is only told where the service is;
one of another version is made to leave, and the next one takes its trials over.
"""

from __future__ import annotations

import fcntl
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from trials.files import create_once
from trials.wire.sockets import WAKE_CONNECT, wake_socket_path
from trials.wire.variables import with_path

AGENT_ID = "local"
OF_THE_SERVICE = frozenset({"TUNER_TOKEN", "TUNER_DB", "TUNER_URL"})
WATCH_EVERY_S = 0.5  # of an agent that another service started; the end of its own is seen at once
RESPAWN_BACKOFF_S = 0.1  # doubled with every start in a row that did not last
RESPAWN_BACKOFF_LIMIT_S = 10.0
LEAVE_S = 1.0  # for an agent of another version to follow the order to leave; then it gets SIGTERM
LEAVE_AFTER_TERM_S = 45.0  # it finishes what it is about to write; then it gets SIGKILL, which harms no trial either

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class _Leaving:
    """The agent that has to go, by a descriptor that no later process of the same pid can have."""

    process: int
    due: float  # by the monotonic clock: when ``next_signal`` is sent
    next_signal: signal.Signals = signal.SIGTERM

    def press(self, now: float) -> bool:
        """Send it what is due; whether it has ended, after which the descriptor is closed."""
        look = select.poll()
        look.register(self.process, select.POLLIN)
        if look.poll(0):
            os.close(self.process)
            return True
        if now >= self.due:
            logger.warning("agent_does_not_leave", extra={"signal": self.next_signal.name})
            with suppress(ProcessLookupError):  # it has ended just now: the next look sees it
                signal.pidfd_send_signal(self.process, self.next_signal)
            self.next_signal, self.due = signal.SIGKILL, now + LEAVE_AFTER_TERM_S
        return False


@dataclass(kw_only=True)
class LocalExecutor:
    home: Path
    service_file: Path
    log_format: str = "auto"  # of the agent and what it starts
    umask: int | None = None  # of trials; None: this process's own
    token: str = ""  # of the agent; written anew where its file was removed while the service runs
    _agent: subprocess.Popen[bytes] | None = None
    _closing: bool = False
    _wake: int = field(default_factory=lambda: os.eventfd(0))
    _ends: int | None = None  # readable once the agent that was started here has ended
    _thread: threading.Thread | None = None
    _backoff: float = 0.0
    _leaving: _Leaving | None = None
    _changing: threading.Lock = field(default_factory=threading.Lock)  # held to set _leaving or _closing, and to wake
    _dismissed_own: bool = False  # the package was exchanged while this service ran: every agent it starts has to go

    def start(self) -> None:
        """See to it that an agent is there, now and for as long as the service lives. Returns at once.

        OSError where none can be started; later on that is logged and tried again.
        """
        self._see_to_it()
        self._thread = threading.Thread(target=self._watch, name="local-executor", daemon=True)
        self._thread.start()

    def announce(self) -> None:
        """Tell the agent that the service listens; its address is in the service file."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as wake:
            wake.settimeout(0)
            try:
                wake.sendto(WAKE_CONNECT, str(wake_socket_path(self.home)))
            except OSError:
                logger.debug("no_agent_to_wake")

    def dismiss(self, pid: int) -> None:
        """The agent ``pid`` was ordered to leave: see to it that it does, and that one of this version follows it.

        Returns at once, from any thread. A process that is not the agent of this home is left alone.
        """
        try:
            process = os.pidfd_open(pid)
        except (OSError, OverflowError):
            return  # it has gone, or said a number that no process has
        # The descriptor first: what is verified after it is true of the process that is signalled.
        is_agent = holds_lock(pid, self.home)
        with self._changing:
            if self._leaving is not None or self._closing or not is_agent:
                os.close(process)
                return
            self._dismissed_own |= self._agent is not None and self._agent.pid == pid
            self._leaving = _Leaving(process=process, due=time.monotonic() + LEAVE_S)
            os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Stop watching. The agent and its trials go on."""
        with self._changing:
            if self._closing:
                return
            self._closing = True
            os.eventfd_write(self._wake, 1)
        if self._thread is not None:
            self._thread.join()
        os.close(self._wake)
        self._forget_end()
        if self._leaving is not None:
            os.close(self._leaving.process)
        if self._agent is not None:
            self._agent.poll()
            self._agent.returncode = self._agent.returncode or 0  # not ours to wait for: it outlives this process

    def _watch(self) -> None:
        while True:
            self._wait()
            if self._closing:
                return
            try:
                self._see_to_it()
            except OSError as error:  # no process, descriptor or room on the disk is to be had
                self._wait_longer()
                logger.error("agent_not_started", extra={"error": str(error)})

    def _wait(self) -> None:
        """Until the agent ends, or for a moment where it lives by itself, has to leave, or was just started anew."""
        look = select.poll()
        look.register(self._wake, select.POLLIN)
        if self._leaving is not None:
            look.register(self._leaving.process, select.POLLIN)
            events = look.poll(1000 * WATCH_EVERY_S)
        elif self._ends is not None and not self._backoff:
            look.register(self._ends, select.POLLIN)
            events = look.poll()
        else:
            events = look.poll(1000 * max(WATCH_EVERY_S, self._backoff))
        if not self._closing and any(descriptor == self._wake for descriptor, _ in events):
            os.eventfd_read(self._wake)
        if self._leaving is not None and self._leaving.press(time.monotonic()):
            self._leaving = None

    def _see_to_it(self) -> None:
        if self._agent is not None and self._agent.poll() is None:
            self._backoff = self._backoff if self._dismissed_own else 0.0
            return
        self._forget_end()
        if agent_is_alive(self.home):
            return
        if self._agent is not None:
            self._wait_longer()
            logger.warning("agent_ended", extra={"code": self._agent.returncode})
            self._agent = None
        self._agent = self._spawn()
        self._ends = os.pidfd_open(self._agent.pid)

    def _wait_longer(self) -> None:
        self._backoff = min(RESPAWN_BACKOFF_LIMIT_S, max(RESPAWN_BACKOFF_S, self._backoff * 2))

    def _forget_end(self) -> None:
        if self._ends is not None:
            os.close(self._ends)
            self._ends = None

    def _spawn(self) -> subprocess.Popen[bytes]:
        folder = self.home / "agent"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The id is constant, so that attempts are still this agent's when its own folder was lost.
        command = [sys.executable, "-P", "-m", "trials.agent", "--home", str(self.home), "--agent-id", AGENT_ID]
        command += ["--log-format", self.log_format, "--service-pid", str(os.getpid())]
        if self.umask is not None:
            command += ["--umask", f"{self.umask:03o}"]
        if self.token and not (folder / "token").exists():  # where it is, a full disk keeps no agent from starting
            create_once(str(folder / "token"), f"{self.token}\n".encode())
        with (folder / "agent.out").open("ab") as output:
            return subprocess.Popen(
                [*command, "--service-file", str(self.service_file)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=_environment(),
                start_new_session=True,
                close_fds=True,
            )


def _environment() -> dict[str, str]:
    """Without what only the service needs, and with this very package found wherever the agent is started.

    The agent has the rest: it reaches the checkpoint store, and passes on to trials what their experiments name.
    """
    environment = {k: v for k, v in os.environ.items() if k not in OF_THE_SERVICE}
    root = str(Path(__file__).resolve().parents[2])
    return with_path(environment, root)


def holds_lock(pid: int, home: Path) -> bool:
    """Whether ``pid`` has the lock of this home's agent open, which nothing but an agent of it does."""
    try:
        lock = (home / "agent" / "lock").stat()
        return any(_is_file(descriptor, lock) for descriptor in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False


def _is_file(descriptor: Path, wanted: os.stat_result) -> bool:
    try:
        return os.path.samestat(descriptor.stat(), wanted)
    except OSError:
        return False  # closed meanwhile


def agent_is_alive(home: Path) -> bool:
    """Whether an agent of this home holds its lock."""
    try:
        with (home / "agent" / "lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False

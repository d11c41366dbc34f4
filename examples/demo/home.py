"""The demo's own service: its home folder, and which processes belong to it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from tuner_service.client import Client
from tuner_service.config import Settings, resolve_settings
from tuner_service.local_service import start_service

AGENT_IDLE_EXIT_S = 2.0  # an agent that has nothing to do and no service ends itself after it
GONE_TIMEOUT_S = 600.0  # on the slowest machine: what stays longer is a fault
POLL_S = 0.1
PARTS = ("tuner_service", "trials.agent", "supervisor.py")


@dataclass
class DemoHome:
    """A service on a folder of its own, apart from every other service of this machine."""

    path: Path
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def settings(self) -> Settings:
        return resolve_settings({"home": str(self.path)}, environment={}, folder=Path.cwd())

    def prepare(self) -> None:
        """An empty folder; what an interrupted demo left running in it is ended first."""
        os.environ["TUNER_HOME"] = str(self.path)
        os.environ["TUNER_AGENT_IDLE_EXIT_S"] = str(AGENT_IDLE_EXIT_S)
        if self.path.exists():
            self.end()
            shutil.rmtree(self.path)
        self.path.mkdir(parents=True)

    @property
    def hold_file(self) -> Path:
        """While it is there, no trial comes to its end."""
        return self.path / "hold"

    def hold(self) -> None:
        self.hold_file.touch()

    def let_go(self) -> None:
        self.hold_file.unlink(missing_ok=True)

    def start(self) -> Client:
        starting = start_service(self.settings)
        self._process = starting.process
        return starting.wait()

    def kill(self) -> int:
        """SIGKILL, as a crash would: the service has no chance to say or to save anything. Its process id."""
        if self._process is None:
            raise RuntimeError("start the service before killing it")
        self._process.kill()
        self._process.wait(GONE_TIMEOUT_S)
        return self._process.pid

    def end(self) -> None:
        """End the service, then every trial of the folder; the agent goes by itself. TimeoutError if one stays."""
        self.tuner("serve", "--stop", quiet=True)
        if self._process is not None:
            self._process.wait(GONE_TIMEOUT_S)
        if self.trial_processes():
            self.tuner("stop", "--local", quiet=True)
        deadline = time.monotonic() + GONE_TIMEOUT_S
        while remaining := self.processes():
            if time.monotonic() > deadline:
                named = ", ".join(f"{pid} ({command})" for pid, command in remaining.items())
                raise TimeoutError(f"processes of {self.path} are still there: {named}")
            time.sleep(POLL_S)

    def tuner(self, *arguments: str, quiet: bool = False) -> int:
        """Run the ``tuner`` command on this home; its exit code."""
        command = [sys.executable, "-m", "tuner_service.cli.main", *arguments]
        if quiet:
            return subprocess.run(command, check=False, capture_output=True).returncode
        sys.stdout.flush()
        return subprocess.run(command, check=False, stderr=subprocess.STDOUT).returncode

    def processes(self) -> dict[int, str]:
        """The service, workers, agent, supervisors and trials of this folder: their commands by process id."""
        found = {}
        for process in Path("/proc").iterdir():
            if process.name.isdecimal() and int(process.name) != os.getpid():
                command = _command_of(process)
                if command and (self._is_named_in(command) or self._is_worked_in_by(process)):
                    found[int(process.name)] = command
        return found

    def trial_processes(self) -> dict[int, str]:
        return {
            pid: command for pid, command in self.processes().items() if self._is_worked_in_by(Path(f"/proc/{pid}"))
        }

    def _is_named_in(self, command: str) -> bool:
        return str(self.path) in command and any(part in command for part in PARTS)

    def _is_worked_in_by(self, process: Path) -> bool:
        try:
            return (process / "cwd").readlink().is_relative_to(self.path / "attempts")
        except OSError:
            return False


def _command_of(process: Path) -> str:
    """Empty for a process that has ended."""
    try:
        return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        return ""


def is_alive(pid: int) -> bool:
    """Whether it runs; one that has ended and waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] not in {"Z", "X"}
    except OSError:
        return False


def on_interrupt_raise() -> None:
    """So that SIGTERM, too, ends the demo by way of its clean-up."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))

"""The ``tuner`` command as processes of its own, on a home folder of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import forked_services
from tests.process_table import agents_of
from tests.waiting import wait_until
from trials.agent.local import stop_local
from tuner_service.client import Client, ProblemError, UnreachableError
from tuner_service.config import Settings
from tuner_service.executors.local import agent_is_alive
from tuner_service.local_service import stop_service

ROOT = Path(__file__).resolve().parents[1]
COMMAND_TIMEOUT_S = 120.0
ENDED = {"completed", "stopped", "failed"}
SCRIPT = """\
import sys, time, trials
steps, pause = int(sys.argv[1]), float(sys.argv[2])
with trials.init() as trial:
    for step in range(steps):
        trial.report(step=step, accuracy=trial.parameters["lr"])
        time.sleep(pause)
    trial.report_final(accuracy=trial.parameters["lr"])
    print("the learning rate was", trial.parameters["lr"])
"""
QUICK, SLOW = "python train.py 2 0", "python train.py 12000 0.05"


class Process(subprocess.Popen[str]):
    """Killed when its ``with`` is left by an error: waiting for it would hide that error, for ever perhaps."""

    def __exit__(self, exc_type: Any, value: Any, traceback: Any) -> None:
        if exc_type is not None:
            self.kill()
        super().__exit__(exc_type, value, traceback)


@dataclass(kw_only=True)
class CommandLine:
    """Runs ``tuner`` as its own process, on a home folder of its own."""

    folder: Path
    homes: list[Path] = field(default_factory=list)

    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TUNER_")}
        own = {"TUNER_HOME": str(self.home), "PYTHONPATH": str(ROOT), "TUNER_AGENT_IDLE_EXIT_S": "2"}
        return kept | own | {"XDG_CONFIG_HOME": str(self.folder / "config")}

    @property
    def home(self) -> Path:
        return self.homes[0]

    def begin_service(self) -> None:
        """Where the command that follows would have started one."""
        forked_services.begin(self.home, folder=self.folder, environment=self.environment())

    def start(self, *arguments: str) -> Process:
        return Process(
            [sys.executable, "-P", "-m", "tuner_service.cli.main", *arguments],  # -P: as the installed command
            cwd=self.folder,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, code: int = 0) -> str:
        """Standard output of a command that must end with ``code``."""
        with self.start(*arguments) as process:
            out, err = process.communicate(timeout=COMMAND_TIMEOUT_S)
        assert process.returncode == code, f"{arguments} ended with {process.returncode}: {out}\n{err}"
        return out if code == 0 else out + err

    def read(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "-o", "json"))

    def experiment_file(self, **overrides: Any) -> str:
        (self.folder / "code").mkdir(exist_ok=True)
        (self.folder / "code" / "train.py").write_text(SCRIPT)
        body: dict[str, Any] = {
            "name": "digits",
            "seed": 7,
            "objective": {"metric": "accuracy", "goal": "maximize"},
            "search_space": {"lr": {"_type": "uniform", "_value": [0, 1]}},
            "tuner": {"name": "random"},
            "budget": {"trials": 3, "parallel": 2},
            "trial": {"code": "code", "command": QUICK, "stop_grace": "2s"},
        } | overrides
        path = self.folder / "search.json"
        path.write_text(json.dumps(body))
        return str(path)

    def slow_file(self, **overrides: Any) -> str:
        return self.experiment_file(trial={"code": "code", "command": SLOW, "stop_grace": "2s"}, **overrides)

    def running(self) -> list[dict[str, Any]]:
        """What the newest experiment runs with a process and a first report: asked of the service, not by a command."""
        described = json.loads((self.home / "service.json").read_text())
        with closing(Client(described["url"], self.token())) as client:
            running = client.experiment(client.experiments()[0]["id"])["running"]
        return [a for a in running if a["pid"] and a["step"] is not None]

    def token(self) -> str:
        return (self.home / "token").read_text().strip()

    def service_pid(self) -> int:
        return int(json.loads((self.home / "service.json").read_text())["pid"])


@contextmanager
def command_line(folder: Path) -> Iterator[CommandLine]:
    """Ends every service and trial of its homes at the end."""
    line = CommandLine(folder=folder, homes=[folder / "home"])
    try:
        yield line
    finally:
        _end(line)


@contextmanager
def in_shared_home(home: Path, folder: Path) -> Iterator[CommandLine]:
    """With a folder of its own, in a home where searches of other tests have ended: the service need not start anew."""
    line = CommandLine(folder=folder, homes=[home])
    try:
        yield line
    finally:
        _stop_searches(line)


def _stop_searches(line: CommandLine) -> None:
    """Nothing to stop where no service answers: a test may have ended or killed it."""
    try:
        described = json.loads((line.home / "service.json").read_text())
    except FileNotFoundError:
        return
    with suppress(UnreachableError), closing(Client(described["url"], line.token())) as client:
        for one in client.experiments():
            if one["status"] not in ENDED:
                with suppress(ProblemError):  # it has ended meanwhile
                    client.stop(one["id"])
        wait_until(lambda: all(one["status"] in ENDED for one in client.experiments()))


def _end(line: CommandLine) -> None:
    """As ``tuner serve --stop`` and ``tuner stop --local``, without two processes, and no agent waits for a service."""
    for home in line.homes:
        stop_service(Settings(home=home, db=""))
        stop_local(home)
        for agent in agents_of(home):
            with suppress(ProcessLookupError):
                os.kill(agent, signal.SIGTERM)
        wait_until(lambda home=home: not agent_is_alive(home))

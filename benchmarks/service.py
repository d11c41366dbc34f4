"""A service of its own for a measurement: a home in a temporary folder, what it costs, and what it has stored."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PATIENCE_S = 30.0
POLL_S = 0.01
AGENT_IDLE_EXIT_S = "3"  # an agent is there before its service listens: one that left sooner would be started again
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass
class Service:
    """``tuner`` commands against one home. ``environment`` is what trials get, too.

    Python may keep the modules it compiled, as an installer leaves them; otherwise every command compiles its own.
    """

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.environment = {
            **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
            "TUNER_HOME": str(self.home),
            "TUNER_AGENT_IDLE_EXIT_S": AGENT_IDLE_EXIT_S,
            **self.environment,
        }

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def database(self) -> Path:
        return self.home / "tuner.db"

    def tuner(self, *arguments: str) -> str:
        """What the command printed; RuntimeError with its errors where it failed."""
        command = [str(Path(sys.executable).with_name("tuner")), *arguments]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"tuner {' '.join(arguments)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def start(self, experiment: dict[str, Any], script: str) -> None:
        """Start ``experiment``, whose trials run ``script``; the service too, where it is not up."""
        self.tuner("start", str(self.write(experiment, script)))

    def write(self, experiment: dict[str, Any], script: str) -> Path:
        """The experiment file, with the script where it says."""
        code = self.folder / "code"
        code.mkdir(exist_ok=True)
        (code / "script.py").write_text(script, encoding="utf-8")
        file = self.folder / "experiment.json"
        file.write_text(json.dumps(experiment), encoding="utf-8")
        return file

    def address(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.home / "service.json").read_text(encoding="utf-8"))
        return found

    def processes(self) -> dict[str, list[int]]:
        """Process ids of the service, its agent and its algorithm workers."""
        service = int(self.address()["pid"])
        agents, workers = [], []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if "trials.agent" in command and str(self.home) in command and "supervisor" not in command:
                agents.append(int(entry.name))
            elif "workers.worker" in command and service in (parent, _parent(parent), _parent(_parent(parent))):
                workers.append(int(entry.name))
        return {"service": [service], "agent": agents, "worker": workers}

    def close(self) -> None:
        for arguments in (("stop", "@last", "--wait"), ("serve", "--stop"), ("stop", "--local")):
            command = [str(Path(sys.executable).with_name("tuner")), *arguments]
            subprocess.run(command, env=self.environment, capture_output=True, check=False)
        self._wait_for_ends()

    def end(self) -> None:
        """End the service where no trial runs, and its agent: what starts next finds neither."""
        self.tuner("serve", "--stop")
        self._wait_for_ends()

    def _wait_for_ends(self) -> None:
        wait_for(lambda: not self._has_processes(), "the service's processes to end", patience_s=20)

    def _has_processes(self) -> bool:
        for process in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if str(self.home).encode() in process.read_bytes():
                    return True
            except OSError:
                continue
        return False

    @contextmanager
    def reading(self) -> Iterator[Any]:
        """A connection that takes statements with ``?``, beside the service."""
        url = self.environment.get("TUNER_DB", "")
        if url.startswith("postgresql://"):
            import psycopg

            with psycopg.connect(url, autocommit=True) as connection:
                yield _WithQuestionMarks(connection)
            return
        with closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True, timeout=10)) as connection:
            yield connection


class _WithQuestionMarks:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def execute(self, query: str, values: tuple[Any, ...]) -> Any:
        return self._connection.execute(query.replace("?", "%s"), values)


def _parent(pid: int) -> int:
    """0 where it has ended. A worker is the child of a keeper, and that the service's."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


@contextmanager
def service(*, removed_with: ExitStack | None = None, **environment: str) -> Iterator[Service]:
    """``environment`` reaches the service and its trials.

    ``removed_with``: its home is removed when that is closed, and not before. A file system that has just removed
    thousands of files looks at each of them when it makes new ones, so whatever is measured next would be slower.
    """
    with ExitStack() as own:
        owner = own if removed_with is None else removed_with
        folder = owner.enter_context(tempfile.TemporaryDirectory(prefix="tuner-bench-"))
        made = Service(Path(folder), environment)
        try:
            yield made
        finally:
            made.close()


def cpu_s(pids: list[int]) -> float:
    """User and system time of these processes so far, all their threads."""
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICKS_PER_S


def memory_mb(pids: list[int], *, peak: bool = False) -> float:
    """Resident memory; shared pages count for each process."""
    name, total = ("VmHWM:" if peak else "VmRSS:"), 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(name):
                total += int(line.split()[1])
    return total / 1024


def wait_for(
    condition: Callable[[], bool], what: str, *, patience_s: float = PATIENCE_S, poll_s: float = POLL_S
) -> None:
    deadline = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {patience_s:g} s for {what}")
        time.sleep(poll_s)

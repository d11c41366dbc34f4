"""A home of its own for one test: the installed command, what runs under it, and what may be done to it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.acceptance.campaign import Search
from tests.process_table import parent, processes
from tests.waiting import wait_until
from tuner_service.client import ProblemError

ROOT = Path(__file__).resolve().parents[2]
COMMAND_TIMEOUT_S = 120.0
ENDED = {"completed", "stopped", "failed"}
IDLE_EXIT_S = 1.0  # of the agents here: so a test sees that they leave by themselves
HELD = """
import os, pathlib, time, trials

gate = pathlib.Path(os.environ["GATE"])
with trials.init() as trial:
    state = trial.restore()
    for step in range(state["step"] + 1 if state else 0, 10):
        trial.report(step=step, loss=trial.parameters["x"] + 1 / (step + 1))
        trial.save_checkpoint({"step": step}, step=step)
        while step >= 4 and not gate.exists():
            time.sleep(0.01)
    trial.report_final(loss=trial.parameters["x"])
"""


@dataclass(kw_only=True)
class Home(Search):
    """``HELD`` trials wait at step 4, or where they go on after it, until the gate is opened."""

    name: str = "home"
    place: Path | None = None  # of the home, where other tests have it, too; else it is in the folder
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        return self.place or self.folder / self.name

    @property
    def gate(self) -> Path:
        return self.folder / "gate"

    # ── commands ────────────────────────────────────────────────────────────────────────────────
    def variables(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TUNER_")}
        own = {"PYTHONPATH": str(ROOT), "TUNER_AGENT_IDLE_EXIT_S": str(IDLE_EXIT_S)}
        return kept | own | {"XDG_CONFIG_HOME": str(self.folder / "config")} | self.environment

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "tuner_service.cli.main", *arguments, "--home", str(self.home)]

    def ended(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            env=self.variables(),
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )

    def tuner(self, *arguments: str, check: bool = True) -> str:
        done = self.ended(*arguments)
        if check and done.returncode != 0:
            raise AssertionError(
                f"tuner {' '.join(arguments)} ended with {done.returncode}: {done.stderr}{done.stdout}"
            )
        return done.stdout

    def read(self, *arguments: str) -> Any:
        return json.loads(self.tuner(*arguments, "-o", "json"))

    def begin(self, script: str = HELD, **overrides: Any) -> str:
        """Start an experiment of two trials at a time; ``trial`` is added to its trial template."""
        code = self.folder / "code"
        code.mkdir(exist_ok=True)
        (code / "train.py").write_text(script)
        trial = {"code": "code", "command": "python train.py", "stop_grace": "2s"}
        trial |= {"environment": {"GATE": str(self.gate)}} | overrides.pop("trial", {})
        body: dict[str, Any] = {
            "name": "faults",
            "seed": 7,
            "objective": {"metric": "loss"},
            "search_space": {"x": {"_type": "uniform", "_value": [0, 1]}},
            "tuner": "random",
            "budget": {"trials": 2, "parallel": 2},
        } | overrides
        file = self.folder / "search.json"
        file.write_text(json.dumps(body | {"trial": trial}))
        self.begin_service()
        self.id = self.tuner("start", str(file)).strip()
        return self.id

    def open_gate(self) -> None:
        self.gate.touch()

    # ── what there is ───────────────────────────────────────────────────────────────────────────
    def revisions(self) -> list[dict[str, Any]]:
        """Every search space it had."""
        with self.service() as service:
            return service.search_space_revisions(self.id)

    def running(self, count: int, *, step: int = 0) -> list[dict[str, Any]]:
        """So many attempts that run and have reported up to ``step``."""

        def found() -> list[dict[str, Any]]:
            alive = [a for a in self.show()["running"] if a["pid"] and a["step"] is not None and a["step"] >= step]
            return alive if len(alive) >= count else []

        return wait_until(found)

    def completed(self) -> dict[str, Any]:
        return self.reached("completed")

    def reached(self, status: str) -> dict[str, Any]:
        wait_until(lambda: self.show()["status"] not in {"created", "running", "stopping"})
        shown = self.show()
        assert shown["status"] == status, (shown["status"], shown["reason"], shown["message"], shown["detail"])
        return shown

    def attempts(self) -> list[tuple[int, int]]:
        """(trial, attempt) of everything that was ever launched here."""
        folders = self.home.glob(f"attempts/{self.id}/*/*")
        return sorted((int(f.parent.name), int(f.name.partition("-")[0])) for f in folders)

    def folder_of(self, number: int, attempt: int = 1) -> Path:
        (found,) = self.home.glob(f"attempts/{self.id}/{number}/{attempt}-*")
        return found

    def steps(self, number: int) -> list[int]:
        """Of the stored reports; a step two attempts reported stands there twice."""
        (found,) = [t for t in self.trials() if t["number"] == number]
        return [report["step"] for report in found["metrics"] if report["step"] is not None]

    # ── what is done to it ──────────────────────────────────────────────────────────────────────
    def one(self, target: str) -> int:
        return wait_until(lambda: self.pids(target))[0]

    def kill_all(self, *targets: str) -> list[int]:
        """SIGKILL, and wait until they are gone."""
        pids = [pid for target in targets for pid in self.pids(target)]
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not any(is_running(pid) for pid in pids))
        return pids

    def begin_service(self) -> bool:
        is_this_version = self.variables()["PYTHONPATH"] == str(ROOT)
        return is_this_version and super().begin_service()

    def serve(self) -> None:
        """A service, if there is none: it continues what was running by itself."""
        if not self.begin_service():
            self.tuner("resume", self.id)

    def stop_searches(self) -> None:
        """What still runs, so that the next test of this home has it for itself."""
        if self.pids("service"):
            with self.service() as service:
                for one in service.experiments():
                    if one["status"] not in ENDED:
                        with suppress(ProblemError):  # it has ended meanwhile
                            service.stop(one["id"])
                wait_until(lambda: all(one["status"] in ENDED for one in service.experiments()))

    def end(self) -> None:
        """End all of it as a person would; what stays is a fault."""
        if self.pids("service"):
            self.end_service()
        if self.pids("trial"):
            self.tuner("stop", "--local", check=False)
        for pid in self.pids("agent"):
            os.kill(pid, signal.SIGTERM)
        try:
            wait_until(lambda: not self.all_pids())
        finally:
            for pid in self.all_pids():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def left(self) -> list[list[str]]:
        """Command lines of all that runs and has anything to do with this home."""
        own = str(self.home)
        return [words for pid, words in processes() if pid != os.getpid() and any(own in word for word in words)]


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def descendants(pid: int) -> list[int]:
    found = [p for p, _ in processes() if parent(p) == pid]
    return found + [p for child in found for p in descendants(child)]


def values(trial: dict[str, Any], name: str = "loss") -> Sequence[Any]:
    return [report["values"][name] for report in trial["metrics"]]

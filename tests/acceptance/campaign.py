"""The promise of exact resume, tried on the real thing: processes, files, SIGKILL.

A deterministic search is run once untouched, then again and again while something of it is killed at random moments:
the service, the algorithm worker, the agent, the parent of trials (a fork server, or a supervisor in every second
round), a trial. Every run must end with the same rows, every exit must be recorded as it was, and nothing may be left.

    python -m tests.acceptance.campaign --rounds 10 --seed 1
    python -m tests.acceptance.campaign --rounds 20 --kills 12 --script digits      training, equal to the last bit
    python -m tests.acceptance.campaign --rounds 6 --postgresql      on a server, which is killed as everything else is

A seed fixes what is killed and how long is waited before, not what the machine does meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import forked_services
from tests.acceptance.home_processes import TARGETS, Table
from tests.postgresql import Server, a_server
from tests.waiting import wait_until
from tuner_service.client import Client, UnreachableError
from tuner_service.config import Settings
from tuner_service.local_service import stop_service

DATABASE = "database"  # a PostgreSQL server with all its processes; started again at once
ISOLATIONS = ("fork", "spawn")
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
DIGITS_EPOCHS = 8
# What takes a process some seconds to import, the first optimizer's part included: once, and not for each first trial.
DIGITS_IMPORTS = ["torch", "sklearn.datasets", "trials.data", "torch._dynamo"]
DIGITS_SPACE = {
    "lr": {"type": "float", "low": 1e-4, "high": 1, "log": True},
    "channels": {"type": "int", "low": 4, "high": 12},
    "dropout": {"type": "float", "low": 0.0, "high": 0.6},
    "batch_size": {"type": "categorical", "choices": [16, 32, 64]},
    "optimizer": {"type": "categorical", "choices": ["adam", "sgd"]},
    "weight_decay": {"type": "float", "low": 1e-6, "high": 1e-2, "log": True},
}
TRAIN = """
import hashlib, json, time
import trials

def unit(*parts):
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:6], "big") / 2**48

with trials.init() as trial:
    lr, width = trial.parameters["lr"], trial.parameters["width"]
    state = trial.restore()
    level = abs(lr - 0.01) * 10 + width / 100
    for step in range(state["step"] + 1 if state else 0, 12):
        time.sleep(0.1 + 0.2 * unit(lr, "pace"))
        trial.report(step=step, loss=level + 1 / (step + 1) + 0.05 * unit(lr, step), step2=step * 2)
        if step % 3 == 2:
            trial.save_checkpoint({"step": step}, step=step)
        if trial.should_stop():
            break
    else:
        trial.report_final(loss=level + unit(lr, "end") * 0.01)
"""


def experiment_file(*, trials: int, deterministic: bool, tuner: str, isolation: str = "fork") -> dict[str, Any]:
    return {
        "name": "campaign",
        "seed": 7,
        "objective": {"metric": "loss", "goal": "minimize"},
        "search_space": {
            "lr": {"_type": "loguniform", "_value": [0.0001, 0.1]},
            "width": {"type": "int", "low": 1, "high": 64},
        },
        "tuner": {"name": tuner},
        "assessor": {"name": "median_stop", "args": {"min_trials": 2, "start_step": 1}},
        "budget": {"trials": trials, "parallel": 4},
        "deterministic": deterministic,
        "trial": {"code": ".", "command": "python train.py", "stop_grace": "5s", "isolation": isolation},
    }


def digits_file(*, trials: int, isolation: str = "fork") -> dict[str, Any]:
    """Training that anybody can repeat, whose every number must come out the same."""
    content = experiment_file(trials=trials, deterministic=True, tuner="tpe", isolation=isolation)
    content["trial"]["preload"] = DIGITS_IMPORTS
    return content | {"objective": {"metric": "accuracy", "goal": "maximize"}, "search_space": DIGITS_SPACE}


def digits_script() -> str:
    text = (EXAMPLES / "digits" / "train.py").read_text(encoding="utf-8")
    shorter = text.replace("EPOCHS = 25", f"EPOCHS = {DIGITS_EPOCHS}")
    assert shorter != text
    return shorter


@dataclass(kw_only=True)
class Search:
    """One home with one experiment, driven through the installed command."""

    folder: Path
    id: str = ""
    kills: dict[str, int] = field(default_factory=dict)
    killed: dict[int, str] = field(default_factory=dict)  # process → what it was
    script: str = TRAIN
    server: Server | None = None  # the search's database is one of its own there, instead of a file
    database_url: str = ""

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def tuner(self, *arguments: str, check: bool = True) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "tuner_service.cli.main", *arguments, "--home", str(self.home)],
            cwd=self.folder,
            env=self.variables(),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        if check and done.returncode != 0:
            raise AssertionError(f"tuner {' '.join(arguments)} ended with {done.returncode}: {done.stderr}")
        return done.stdout

    def variables(self) -> dict[str, str]:
        return os.environ | ({"TUNER_DB": self.database_url} if self.database_url else {})

    def begin_service(self) -> bool:
        """Where the command that follows would start one, if there is none. Whether it need not."""
        return forked_services.begin(self.home, folder=self.folder, environment=self.variables())

    def end_service(self) -> None:
        """As ``tuner serve --stop``, without a process for it."""
        with suppress(UnreachableError):
            stop_service(Settings(home=self.home, db=""))

    def start(self, content: dict[str, Any]) -> None:
        if self.server is not None:
            self.database_url = self.server.new_database()
        (self.folder / "train.py").write_text(self.script)
        (self.folder / "experiment.json").write_text(json.dumps(content))
        (self.folder / ".tunerignore").write_text("home\n")
        self.begin_service()
        self.id = self.tuner("start", "experiment.json").strip().splitlines()[-1].strip()

    def resume(self) -> None:
        """After the service was killed. That the search came to its end meanwhile is no fault."""
        self.begin_service()
        self.tuner("resume", self.id, check=False)
        assert self.show()["status"] in {"running", "completed"}, self.show()

    @contextmanager
    def service(self) -> Iterator[Client]:
        """The REST interface of the service that runs."""
        address = wait_until(self._address)
        client = Client(address, (self.home / "token").read_text().strip())
        try:
            yield client
        finally:
            client.close()

    def _address(self) -> str:
        try:
            return str(json.loads((self.home / "service.json").read_text())["url"])
        except FileNotFoundError:
            return ""

    # Asked of the service itself: a command is a process, which takes longer than its answer.
    def show(self) -> dict[str, Any]:
        with self.service() as service:
            return service.experiment(self.id)

    def trials(self) -> list[dict[str, Any]]:
        """With every report."""
        with self.service() as service:
            return service.trials(self.id, {"metrics": "true"})

    def trial(self, number: int) -> dict[str, Any]:
        with self.service() as service:
            return service.trial(self.id, number)

    # ── who is who ──────────────────────────────────────────────────────────────────────────────
    def pids(self, target: str) -> list[int]:
        return Table(self.home).pids(target)

    def parents(self) -> list[int]:
        """Supervisors and fork servers, also those without a trial."""
        return Table(self.home).parents()

    def all_pids(self) -> list[int]:
        """Everything that belongs to this home, however it was started."""
        table = Table(self.home)
        return sorted(
            {*table.parents(), *table.supervisor_servers(), *(p for target in TARGETS for p in table.pids(target))}
        )

    def kill(self, target: str, rng: random.Random) -> bool:
        if target == DATABASE:
            assert self.server is not None
            self.server.kill()
            self.server.start()
            self.kills[target] = self.kills.get(target, 0) + 1
            return True
        pids = self.pids(target)
        if not pids:
            return False
        pid = rng.choice(pids)
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        self.killed[pid] = target
        self.kills[target] = self.kills.get(target, 0) + 1
        return True

    def close(self) -> None:
        """End the service and the agent, and say what is left."""
        self.end_service()
        for pid in self.pids("agent"):
            os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + 25  # a fork server whose agent was killed waits for another one first
        while self.all_pids() and time.monotonic() < deadline:
            time.sleep(0.05)
        left = self.all_pids()
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert not left, f"processes left behind: {left}"

    def reports(self) -> set[str]:
        """Every stored report as text; one that is there twice is an AssertionError."""
        found: set[str] = set()
        for trial in self.trials():
            for report in trial["metrics"]:
                text = json.dumps([trial["number"], report["attempt"], report["step"], report["values"]])
                assert text not in found, f"a report is stored twice: {text}"
                found.add(text)
        return found

    def check_exits(self) -> None:
        """Every attempt that ended was recorded as what it was: AssertionError names the first that was not."""
        for trial in self.trials():
            for attempt in self.trial(trial["number"])["attempt_details"]:
                name, ended = f"{trial['number']}/{attempt['attempt']}", attempt["exit"]
                assert ended is not None, f"attempt {name} has no exit"
                told = self.killed.get(attempt["pid"])
                if told == "trial":
                    assert ended["cause"] in {"signaled", "supervisor_lost", "stopped"}, (name, ended)
                    assert ended["cause"] != "signaled" or ended["signal"] == signal.SIGKILL, (name, ended)
                elif "supervisor" not in self.killed.values():
                    assert ended["cause"] in {"exited", "stopped"}, (name, ended)
                else:
                    # A launch that no agent had got when its trial was to stop is not repeated.
                    never = {"attempt_lost"} if attempt["pid"] is None else set()
                    assert ended["cause"] in {"exited", "stopped", "supervisor_lost"} | never, (name, ended)
                if ended["cause"] == "exited":
                    assert ended["code"] == 0, (name, ended)

    # ── what must not change ────────────────────────────────────────────────────────────────────
    def rows(self) -> list[dict[str, Any]]:
        rows = []
        for trial in self.trials():
            metrics: dict[int, Any] = {}
            for report in trial["metrics"]:
                if report["step"] is not None:
                    known = metrics.setdefault(report["step"], report["values"])
                    assert known == report["values"], f"trial {trial['number']} reported step {report['step']} twice"
            kept = ("number", "status", "reason", "parameters", "final", "last")
            rows.append({name: trial[name] for name in kept} | {"metrics": dict(sorted(metrics.items()))})
        return rows


@contextmanager
def search(content: dict[str, Any], *, script: str = TRAIN, server: Server | None = None) -> Iterator[Search]:
    folder = Path(tempfile.mkdtemp(prefix="tuner-campaign-"))
    made = Search(folder=folder, script=script, server=server)
    try:
        made.start(content)
        yield made
        made.close()
    except BaseException:
        print(f"kept for a look: {folder}", file=sys.stderr)
        for pid in made.all_pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        raise
    shutil.rmtree(folder)


def run_untouched(content: dict[str, Any], *, script: str = TRAIN) -> tuple[list[dict[str, Any]], float]:
    """The rows, and the seconds from the start command to the end of the search."""
    with search(content, script=script) as made:
        begun = time.monotonic()
        wait_for_end(made, deadline_s=300)
        return made.rows(), time.monotonic() - begun


def wait_for_end(made: Search, *, deadline_s: float) -> None:
    deadline = time.monotonic() + deadline_s
    while (shown := made.show())["status"] != "completed":
        assert shown["status"] == "running", (shown["status"], shown["reason"], shown.get("message"))
        assert time.monotonic() < deadline, f"the search did not end within {deadline_s:g} s: {shown}"
        time.sleep(0.1)


def run_killed(
    content: dict[str, Any], *, seed: int, most: int, script: str = TRAIN, server: Server | None = None
) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """The rows of a search of which ``most`` processes were killed while at least two trials ran."""
    rng = random.Random(seed)
    targets = TARGETS if server is None else (*TARGETS, DATABASE)
    with search(content, script=script, server=server) as made:
        deadline = time.monotonic() + 600
        for _ in range(most):
            time.sleep(rng.uniform(0.05, 0.9))
            while len(made.pids("trial")) < 2 and made.show()["status"] == "running":
                assert time.monotonic() < deadline, f"stuck: {made.show()}"
                time.sleep(0.02)
            target = rng.choice(targets)
            if made.kill(target, rng) and target == "service":
                made.resume()
            if made.show()["status"] == "completed":
                break
        wait_for_end(made, deadline_s=300)
        made.check_exits()
        return made.rows(), made.kills


def run_free(
    content: dict[str, Any], *, seed: int, most: int, targets: tuple[str, ...], server: Server | None = None
) -> dict[str, int]:
    """Without ``deterministic``: nothing acknowledged is lost, nothing is doubled, what runs is adopted, not run again.

    With ``targets`` that are no parents of trials, every trial must end in its first attempt.
    """
    rng = random.Random(seed)
    with search(content, server=server) as made:
        known: set[str] = set()
        for _ in range(most):
            time.sleep(rng.uniform(0.1, 0.9))
            if made.show()["status"] == "completed":
                break
            known |= made.reports()
            target = rng.choice(targets)
            if made.kill(target, rng) and target == "service":
                made.resume()
        wait_for_end(made, deadline_s=300)
        made.check_exits()
        lost = known - made.reports()
        assert not lost, f"reports that were acknowledged are gone: {sorted(lost)[:5]}"
        trials = made.trials()
        numbers = [t["number"] for t in trials]
        assert numbers == list(range(1, len(numbers) + 1)), f"trial numbers {numbers}"
        if not {"supervisor", "trial"} & set(targets):
            again = [t["number"] for t in trials if t["attempts"] != 1]
            assert not again, f"trials that were run again: {again}"
        return made.kills


def difference(expected: list[dict[str, Any]], found: list[dict[str, Any]]) -> str:
    """A sentence for the first difference; empty where there is none."""
    if [r["number"] for r in expected] != [r["number"] for r in found]:
        return f"trials {[r['number'] for r in found]} instead of {[r['number'] for r in expected]}"
    for one, other in zip(expected, found, strict=True):
        for name, value in one.items():
            if other[name] != value:
                return f"trial {one['number']}: {name} is {other[name]!r} instead of {value!r}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=12, help="in each round, at most")
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--tuner", default="tpe")
    parser.add_argument("--script", choices=["short", "digits"], default="short", help="what the trials do")
    parser.add_argument("--postgresql", action="store_true", help="with the database on a server of its own")
    arguments = parser.parse_args()
    arguments.server = a_server() if arguments.postgresql else None
    try:
        return _rounds(arguments)
    finally:
        if arguments.server is not None:
            arguments.server.end()


def _rounds(arguments: argparse.Namespace) -> int:
    failed = digits_rounds(arguments) if arguments.script == "digits" else short_rounds(arguments)
    return 1 if failed else 0


def short_rounds(arguments: argparse.Namespace) -> int:
    """How many rounds ended with other rows."""
    content = experiment_file(trials=arguments.trials, deterministic=True, tuner=arguments.tuner)
    expected, seconds = run_untouched(content)
    free = experiment_file(trials=arguments.trials, deterministic=False, tuner=arguments.tuner)
    _, free_seconds = run_untouched(free)
    print(f"untouched: {seconds:.1f} s; without deterministic {free_seconds:.1f} s, ratio {seconds / free_seconds:.2f}")
    failed = killed_rounds(arguments, content, expected, script=TRAIN)
    for number in range(arguments.rounds):
        targets = TARGETS if number % 2 else ("service", "worker", "agent")
        targets = targets if arguments.server is None else (*targets, DATABASE)
        seed = arguments.seed + number
        kills = run_free(free, seed=seed, most=arguments.kills, targets=targets, server=arguments.server)
        print(f"free round {number + 1}: killed {kills}: nothing lost, nothing doubled", flush=True)
    return failed


def digits_rounds(arguments: argparse.Namespace) -> int:
    """Likewise, of training with torch."""
    content, script = digits_file(trials=arguments.trials), digits_script()
    expected, seconds = run_untouched(content, script=script)
    print(f"untouched: {seconds:.1f} s")
    return killed_rounds(arguments, content, expected, script=script)


def killed_rounds(
    arguments: argparse.Namespace, content: dict[str, Any], expected: list[dict[str, Any]], *, script: str
) -> int:
    print("statuses:", {s: sum(r["status"] == s for r in expected) for s in {r["status"] for r in expected}})
    failed, total = 0, dict.fromkeys((*TARGETS, DATABASE), 0)
    for number in range(arguments.rounds):
        isolation = ISOLATIONS[number % len(ISOLATIONS)]
        this = content | {"trial": content["trial"] | {"isolation": isolation}}
        seed, server = arguments.seed + number, arguments.server
        rows, kills = run_killed(this, seed=seed, most=arguments.kills, script=script, server=server)
        total = {target: total[target] + kills.get(target, 0) for target in total}
        told = difference(expected, rows)
        failed += bool(told)
        print(f"round {number + 1}, {isolation}: killed {kills}: {told or 'the same rows'}", flush=True)
    print(f"{arguments.rounds} rounds, {failed} differ; killed {total}, {sum(total.values())} in all")
    return failed


if __name__ == "__main__":
    sys.exit(main())

"""A large experiment: resuming it and reading it; the service at rest; many clients."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from statistics import median

from benchmarks.machine import describe
from benchmarks.scale import clients
from benchmarks.scale.build import EXPERIMENT_ID, SCRIPT, Size, build
from benchmarks.service import Service, cpu_s, memory_mb, service, wait_for
from benchmarks.writing import Row, save, verdict

SLOW_SCRIPT = """
import time, trials
trial = trials.init()
for step in range(100_000):
    trial.report(step=step, loss=1 / (step + 1))
    time.sleep(1)
"""
NOTES = (
    (
        "Seconds of a command are those of a whole process, from its start to its end. At rest: four trials that "
        "report once a second. Clients: each waits a tenth of a second in the mean between an answer and its next "
        "request, so that 64 ask at most 640 times a second however fast they are answered; they are on the same cores "
        "as the service. With five reads in turn, four trials report meanwhile, and most answers are "
        "bytes that an equal read was given since the last commit, at most a tenth of a second ago; where each reads "
        "another trial of the large experiment, every answer is built. Commands run from compiled modules, as "
        "installed. The database was written shortly before: everything is read from the page cache, and resuming from "
        "a disk takes longer."
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__, allow_abbrev=False)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--reports", type=int, default=100, help="of each trial (default: 100)")
    parser.add_argument("--runs", type=int, default=3, help="of resuming and of each command (default: 3)")
    parser.add_argument("--seconds", type=float, default=60.0, help="at rest, and with clients (default: 60)")
    parser.add_argument("--clients", type=int, default=64)
    options = parser.parse_args()
    machine = describe()
    rows = [*_large(options), *_small(options)]
    command = f"python -m benchmarks.scale --trials {options.trials} --reports {options.reports}"
    command += f" --runs {options.runs} --seconds {options.seconds:g} --clients {options.clients}"
    save("scale", command=command, machine=machine, rows=rows, notes=NOTES)
    return 0


def _row(what: str, value: float, target: str) -> Row:
    shown = round(value, 3)
    row = {"what": what, "measured": shown, "target": target, "target is": verdict(shown, target)}
    print(row, flush=True)
    return row


# ── a large experiment ──────────────────────────────────────────────────────────────────────────
def _large(options: argparse.Namespace) -> list[Row]:
    with service() as made:
        made.home.mkdir()
        build(made.database, Size(trials=options.trials, reports=options.reports))
        size = f"{options.trials:,} trials, {options.trials * options.reports:,} reports"
        resumed, memory = [], 0.0
        for _ in range(options.runs):
            resumed.append(resumed_s(made))
            memory = max(memory, memory_mb(made.processes()["service"], peak=True))
            made.tuner("stop", EXPERIMENT_ID, "--wait")
            made.end()
        rows = [
            _row(f"{size}: resume without a service, s to the next trial's first line", median(resumed), "3"),
            _row("memory of the service for it, MB at most, of all runs", memory, "500"),
        ]
        resumed_s(made)
        middle = options.trials // 2
        for what, command in (
            ("tuner show EXPERIMENT, s", ("show", EXPERIMENT_ID)),
            ("tuner show TRIAL, s", ("show", f"{EXPERIMENT_ID}/{middle}")),
            ("tuner trials, all printed, s", ("trials", EXPERIMENT_ID)),
        ):
            rows.append(_row(what, _timed(options.runs, partial(made.tuner, *command)), "0.3"))
        for what, path in (("first page of trials", "trials?limit=100"), ("page of 1,000", "trials?limit=1000")):
            rows.append(_row(f"REST: {what}, s", _get(made, options, f"experiments/{EXPERIMENT_ID}/{path}"), "0.3"))
        rows.append(
            _row("REST: metrics of a trial, s", _get(made, options, f"trials/{EXPERIMENT_ID}/{middle}/metrics"), "0.3")
        )
        rows += _clients(made, options, _reads_of_trials(options), what="each reading another trial")
        made.tuner("stop", EXPERIMENT_ID, "--wait")
        return rows


def _reads_of_trials(options: argparse.Namespace) -> list[str]:
    trials = [f"/api/v1/trials/{EXPERIMENT_ID}/{number}" for number in range(1, options.trials + 1)]
    return [path for trial in trials for path in (trial, f"{trial}/metrics")]


def resumed_s(made: Service) -> float:
    """Seconds from the command to the first line of the next trial's code."""
    known = set(made.home.glob("attempts/*/*/*/stdout.log"))
    begun = time.time()
    made.tuner("resume", EXPERIMENT_ID)
    said: list[float] = []

    def has_begun() -> bool:
        for file in set(made.home.glob("attempts/*/*/*/stdout.log")) - known:
            text = file.read_text(encoding="utf-8")
            if text.endswith("\n"):
                said.append(float(text))
        return bool(said)

    wait_for(has_begun, f"the first line of {SCRIPT!r}")
    return said[0] - begun


def _timed(runs: int, action: Callable[[], object]) -> float:
    seconds = []
    for _ in range(runs):
        begun = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - begun)
    return median(seconds)


def _get(made: Service, options: argparse.Namespace, path: str) -> float:
    found = clients.measure(made.address(), [f"/api/v1/{path}"], clients=1, seconds=0.5 * options.runs)
    if found["errors"]:
        raise RuntimeError(f"{path}: {found['errors'][0]}")
    return float(found["median_ms"]) / 1000


# ── at rest, and with clients ───────────────────────────────────────────────────────────────────
def _small(options: argparse.Namespace) -> list[Row]:
    experiment = {
        "name": "rest",
        "seed": 1,
        "objective": {"metric": "loss"},
        "search_space": {"x": {"type": "float", "low": 0, "high": 1}},
        "tuner": {"name": "random"},
        "assessor": {"name": "median_stop"},
        "budget": {"trials": 100, "parallel": 4},
        "trial": {"code": "code", "command": "python script.py", "stop_grace": 1},
    }
    with service() as made:
        made.start(experiment, SLOW_SCRIPT)
        with made.reading() as connection:
            query = "SELECT count(*), id FROM attempts, experiments WHERE acknowledged > 1"
            wait_for(lambda: connection.execute(query).fetchone()[0] >= 4, "four trials to report")
            experiment_id = connection.execute(query).fetchone()[1]
        processes = made.processes()
        before = {name: cpu_s(pids) for name, pids in processes.items()}
        time.sleep(options.seconds)
        used = {name: (cpu_s(pids) - before[name]) / options.seconds for name, pids in processes.items()}
        rows = [
            _row("at rest, four trials: service, % of a core", 100 * used["service"], "1"),
            _row("its agent, % of a core", 100 * used["agent"], ""),
            _row("its algorithm worker, % of a core", 100 * used["worker"], ""),
            _row("memory of the service, MB", memory_mb(processes["service"]), "200"),
        ]
        one = f"/api/v1/experiments/{experiment_id}"
        paths = ["/api/v1/experiments", one, f"{one}/trials", f"/api/v1/trials/{experiment_id}/1"]
        paths.append(f"/api/v1/trials/{experiment_id}/2/metrics")
        return rows + _clients(made, options, paths, what="five reads in turn")


def _clients(made: Service, options: argparse.Namespace, paths: list[str], *, what: str) -> list[Row]:
    processes = made.processes()["service"]
    before = cpu_s(processes)
    found = clients.measure(made.address(), paths, clients=options.clients, seconds=options.seconds)
    locked = "database is locked" in (made.home / "service.log").read_text(encoding="utf-8", errors="replace")
    what = f"{options.clients} clients, {what}"
    used_ms = 1000 * (cpu_s(processes) - before) / found["answers"]
    return [
        _row(
            f"{what}: answers/s, of {options.clients / clients.THINK_S:.0f} asked",
            found["answers"] / options.seconds,
            "",
        ),
        _row(f"{what}: p99 of a read, ms", found["p99_ms"], "200"),
        _row(f"{what}: processor time of the service for each, ms", used_ms, ""),
        _row(f"{what}: of the clients for each, ms", found["client_ms"], ""),
        _row(f"{what}: answers other than 200, or a locked database", len(found["errors"]) + locked, "0"),
    ]


if __name__ == "__main__":
    sys.exit(main())

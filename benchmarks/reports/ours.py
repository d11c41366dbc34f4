"""Reports through the whole service: trials in processes of their own, until the rows are on disk."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from benchmarks.service import Service, cpu_s, service, wait_for

WARM_UP_REPORTS = 1_000  # of each of the first trials, so that the assessor has medians to compare with
SCRIPT = """
import json, os, time
from pathlib import Path
import trials

place = Path(os.environ["BENCH_FOLDER"])
trial = trials.init()
first = int(os.environ["BENCH_TRIALS"])
number = int(os.environ["TRIAL_NUMBER"]) if "TRIAL_NUMBER" in os.environ else trials.get_sequence_id() + 1
if number <= first:
    for step in range(int(os.environ["BENCH_WARM_UP"])):
        trial.report(step=step, loss=2.0 / (step + 1))
    trial.report_final(loss=1.0)
    raise SystemExit(0)
count, a_second = int(os.environ["BENCH_REPORTS"]), float(os.environ["BENCH_RATE"])
(place / f"ready-{number}").touch()
while not (place / "go").exists():
    time.sleep(0.001)
begun, cpu = time.time(), time.process_time()
for step in range(count):
    trial.report(step=step, loss=1.0 / (step + 1), accuracy=0.5)
    if a_second and step % 16 == 0:
        time.sleep(max(0.0, begun + (step + 1) / a_second - time.time()))
cost = {"begun": begun, "ended": time.time(), "cpu_s": time.process_time() - cpu, "count": count}
(place / f"cost-{number}.tmp").write_text(json.dumps(cost))
(place / f"cost-{number}.tmp").rename(place / f"cost-{number}")
while not (place / "leave").exists():
    time.sleep(0.01)
trial.report_final(loss=0.5)
"""


@dataclass(frozen=True, kw_only=True)
class Load:
    """``a_second``: of each trial; 0 is as fast as it can."""

    trials: int = 4
    reports: int = 50_000
    a_second: float = 0.0


def experiment(trials: int, environment: dict[str, str]) -> dict[str, Any]:
    return {
        "name": "reports",
        "seed": 1,
        "objective": {"metric": "loss"},
        "search_space": {"x": {"type": "float", "low": 0, "high": 1}},
        "tuner": {"name": "random"},
        "assessor": {"name": "median_stop", "args": {"min_trials": trials}},
        "budget": {"trials": 2 * trials, "parallel": trials},
        "trial": {
            "code": "code",
            "command": "python script.py",
            "stop_grace": 1,
            "resources": {"cpus": 0},
            "environment": environment,
        },
    }


def measure(
    load: Load,
    *,
    database: str = "",
    beside: Callable[[Service], AbstractContextManager[object]] = nullcontext,
) -> dict[str, float]:
    """One round, in a new database: that of the home, or an empty one of a server.

    ``beside`` is there while trials report, once they are ready to.
    """
    numbers = range(load.trials + 1, 2 * load.trials + 1)
    environment = {
        "BENCH_TRIALS": str(load.trials),
        "BENCH_WARM_UP": str(WARM_UP_REPORTS),
        "BENCH_REPORTS": str(load.reports),
        "BENCH_RATE": str(load.a_second),
    }
    with service(TUNER_DB=database) if database else service() as made:
        made.start(experiment(load.trials, environment | {"BENCH_FOLDER": str(made.folder)}), SCRIPT)
        ready = [made.folder / f"ready-{number}" for number in numbers]
        wait_for(lambda: all(file.exists() for file in ready), "the trials to be ready")
        processes = made.processes()
        with beside(made):
            before = {name: cpu_s(pids) for name, pids in processes.items()}
            seen = _watch(made, load)
            used = {name: cpu_s(pids) - before[name] for name, pids in processes.items()}
        costs = [_cost(made.folder / f"cost-{number}") for number in numbers]
        delays = _delays(made, seen)
        (made.folder / "leave").touch()
        return _summary(load, seen, used, costs, delays)


Seen = list[tuple[float, dict[int, int]]]


def _watch(made: Service, load: Load) -> Seen:
    """Let them begin; when it was seen how far each trial's reports were on disk, until all are."""
    query = "SELECT number, acknowledged FROM attempts WHERE number > ?"
    wanted = load.trials * load.reports
    seen: Seen = []
    with made.reading() as connection:
        (made.folder / "go").touch()
        deadline = time.monotonic() + 600
        while time.monotonic() < deadline:
            rows = dict(connection.execute(query, (load.trials,)).fetchall())
            at = time.time()
            if not seen or rows != seen[-1][1]:
                seen.append((at, rows))
            if sum(rows.values()) >= wanted:
                return seen
            time.sleep(0.005)
    raise TimeoutError("the reports did not reach the disk")


def _cost(file: Path) -> dict[str, float]:
    wait_for(file.exists, "a trial's own figures")
    found: dict[str, float] = json.loads(file.read_text())
    return found


def _delays(made: Service, seen: Seen) -> list[float]:
    """Of each report, from the call to the first look that found it on disk."""
    delays = []
    with made.reading() as connection:
        for number in seen[-1][1]:
            looks = [(at, rows.get(number, 0)) for at, rows in seen]
            place = 0
            query = "SELECT sequence, at FROM metrics WHERE number = ? ORDER BY sequence"
            for sequence, at in connection.execute(query, (number,)):
                while looks[place][1] < sequence:
                    place += 1
                delays.append(looks[place][0] - float(at))
    return delays


def _summary(
    load: Load, seen: Seen, used: dict[str, float], costs: list[dict[str, float]], delays: list[float]
) -> dict[str, float]:
    count = load.trials * load.reports
    begun = min(cost["begun"] for cost in costs)
    assert len(delays) >= count, f"{len(delays)} of {count} reports are stored"
    return {
        "reports": count,
        "a_second": count / (seen[-1][0] - begun),
        "reported_a_second": count / (max(cost["ended"] for cost in costs) - begun),
        "delay_median_ms": 1000 * median(delays),
        "delay_p99_ms": 1000 * quantiles(delays, n=100)[98],
        "delay_max_ms": 1000 * max(delays),
        "report_us": 1e6 * sum(cost["cpu_s"] for cost in costs) / count,
        **{f"{name}_us": 1e6 * seconds / count for name, seconds in used.items()},
    }

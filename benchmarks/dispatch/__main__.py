"""Trials a second, each a process of its own with ten reports and no imports; beside a bare loop and Optuna."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import peers
from benchmarks.machine import describe
from benchmarks.service import service, wait_for
from benchmarks.writing import Row, save

PEERS = Path(__file__).resolve().parent / "peers"
SCRIPT = 'for step in range(11):\n    print(f"step={step} loss={1 / (step + 1)}", flush=True)\n'
AT_ONCE = 4
NOTES = (
    (
        "Four at a time. The bare loop stores nothing. Ours reads the reports from standard output by a pattern and "
        "stores every one of them durably, with a supervisor process for each trial. The target of 1.2 × the bare loop "
        "belongs to trials that are forked from a warm process; these are started by themselves."
    ),
)


def bare_loop(count: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.py"
        script.write_text(SCRIPT)

        def one(number: int) -> None:
            subprocess.run([sys.executable, str(script), f"--x={number}"], stdout=subprocess.DEVNULL, check=True)

        begun = time.time()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(one, range(count)))
        return {"trials": count, "a_second": count / (time.time() - begun)}


def ours(count: int) -> dict[str, Any]:
    """From the first trial's start to the last one's end, as the rows say."""
    experiment = {
        "name": "dispatch",
        "seed": 1,
        "objective": {"metric": "loss"},
        "search_space": {"x": {"type": "float", "low": 0, "high": 1}},
        "tuner": {"name": "random"},
        "assessor": {"name": "median_stop"},
        "budget": {"trials": count, "parallel": AT_ONCE},
        "trial": {
            "code": "code",
            "command": "python script.py",
            "metrics_pattern": r"step=(?P<step>\d+) loss=(?P<loss>\S+)",
            "final": "last",
        },
    }
    query = "SELECT count(*), min(started_at), max(ended_at) FROM trials WHERE ended_at IS NOT NULL"
    with service() as made:
        made.start(experiment, SCRIPT)
        with made.reading() as connection:
            wait_for(lambda: connection.execute(query).fetchone()[0] >= count, "the trials to end", patience_s=120)
            _, begun, ended = connection.execute(query).fetchone()
            gaps = _gaps(connection.execute("SELECT started_at, ended_at FROM attempts ORDER BY started_at").fetchall())
        return {"trials": count, "a_second": count / (float(ended) - float(begun)), "gap_ms": 1000 * gaps}


def _gaps(attempts: list[tuple[float, float]]) -> float:
    """The median time from an attempt's end to the start of the one that took its place."""
    ends = sorted(ended for _, ended in attempts if ended is not None)
    starts = sorted(begun for begun, _ in attempts if begun is not None)[AT_ONCE:]
    return median([begun - ended for begun, ended in zip(starts, ends, strict=False)] or [0.0])


def optuna(count: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.py"
        script.write_text(SCRIPT)
        return peers.run(PEERS / "optuna_dispatch.py", str(script), str(count))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dispatch", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="of each row, interleaved (default: 3)")
    parser.add_argument("--trials", type=int, default=100, help="of each round (default: 100)")
    options = parser.parse_args()
    machine = describe()
    found: dict[str, list[dict[str, Any]]] = {"bare loop": [], "ours": [], "Optuna, SQLite": []}
    for _ in range(options.rounds):
        for name, measure in (("bare loop", bare_loop), ("ours", ours), ("Optuna, SQLite", optuna)):
            found[name].append(measure(options.trials))
            print(name, found[name][-1], flush=True)
    command = f"python -m benchmarks.dispatch --rounds {options.rounds} --trials {options.trials}"
    save("dispatch", command=command, machine=machine, rows=_rows(found), notes=NOTES)
    return 0


def _rows(found: dict[str, list[dict[str, Any]]]) -> list[Row]:
    rows: list[Row] = []
    bare = median(r["a_second"] for r in found["bare loop"])
    for name, rounds in found.items():
        errors = [r["error"] for r in rounds if "error" in r]
        if errors:
            rows.append({"what": name, "left out": errors[0]})
            continue
        a_second = median(r["a_second"] for r in rounds)
        row: Row = {"what": name, "trials/s": round(a_second, 1), "× bare loop": round(a_second / bare, 2)}
        if "gap_ms" in rounds[0]:
            row["end to next start, median ms"] = round(median(r["gap_ms"] for r in rounds), 1)
        rows.append(row)
    return rows


if __name__ == "__main__":
    sys.exit(main())

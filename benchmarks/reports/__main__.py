"""Reports a second until they are on disk, and how long each takes; beside other libraries, in one run."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import peers
from benchmarks.machine import describe
from benchmarks.reports import inside
from benchmarks.reports.ours import Load, measure
from benchmarks.writing import Row, median_of, save

PEERS = Path(__file__).resolve().parent / "peers"
TARGET_A_SECOND = 25_000
NOTES = (
    (
        "Ours: four trials in processes of their own, one `report()` for each row, `median_stop` judging every one of "
        "them; a report counts when a reader of the database finds it. `synchronous=FULL` for us and for Optuna on "
        "SQLite. Peers are only asked to store: no pruner is asked. Ray's and Syne Tune's reports go to files that are "
        "not synced."
    ),
    "`service`, `agent`, `worker` and `report()` are microseconds of processor time for each report.",
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reports", description=__doc__, allow_abbrev=False)
    parser.add_argument("--rounds", type=int, default=3, help="of each row, interleaved (default: 3)")
    parser.add_argument("--reports", type=int, default=50_000, help="of each of the four trials (default: 50000)")
    parser.add_argument("--peer-reports", type=int, default=1_000, help="of each of a peer's trials (default: 1000)")
    parser.add_argument(
        "--peers-python", action="append", default=[], metavar="NAME=PYTHON", help="ray, syne: an interpreter with it"
    )
    options = parser.parse_args()
    machine = describe()
    others = dict(entry.split("=", 1) for entry in options.peers_python)
    found: dict[str, list[dict[str, Any]]] = {}
    for _ in range(options.rounds):
        for name, row in _round(options, others).items():
            print(name, row, flush=True)
            found.setdefault(name, []).append(row)
    command = f"python -m benchmarks.reports --rounds {options.rounds} --reports {options.reports}"
    command += f" --peer-reports {options.peer_reports}" + "".join(f" --peers-python {name}=…" for name in others)
    with tempfile.TemporaryDirectory() as folder:
        own = inside.measure(Path(folder))
    notes = [*NOTES, "The service's own time, without sockets: " + _parts(own)]
    save("reports", command=command, machine=machine, rows=_rows(found), notes=notes)
    return 0


def _round(options: argparse.Namespace, others: dict[str, str]) -> dict[str, dict[str, Any]]:
    few = str(options.peer_reports)
    round_: dict[str, dict[str, Any]] = {
        "ours, as fast as they report": measure(Load(reports=options.reports)),
        "Optuna, SQLite": peers.run(PEERS / "optuna_reports.py", "sqlite", few),
        f"ours, {TARGET_A_SECOND} a second": measure(Load(reports=options.reports // 2, a_second=TARGET_A_SECOND / 4)),
        "Optuna, journal file": peers.run(PEERS / "optuna_reports.py", "journal", few),
    }
    for name, script in (("ray", "ray_reports.py"), ("syne", "syne_reports.py")):
        if name in others:
            round_[name] = peers.run(PEERS / script, few, python=others[name])
    return round_


def _rows(found: dict[str, list[dict[str, Any]]]) -> list[Row]:
    sqlite = median_of(found["Optuna, SQLite"], "a_second")
    rows = []
    for name, rounds in found.items():
        errors = [r["error"] for r in rounds if "error" in r]
        if errors:
            rows.append({"what": name, "left out": errors[0]})
            continue
        row: Row = {"what": name, "reports/s": median_of(rounds, "a_second")}
        if sqlite:
            row["× Optuna on SQLite"] = round(row["reports/s"] / sqlite, 1)
        columns = {"delay_median_ms": "median ms to disk", "delay_p99_ms": "p99 ms"}
        columns |= {
            "service_us": "service µs",
            "agent_us": "agent µs",
            "worker_us": "worker µs",
            "report_us": "report() µs",
        }
        row |= {title: round(median_of(rounds, key), 1) for key, title in columns.items() if key in rounds[0]}
        rows.append(row)
    return rows


def _parts(own: dict[str, float]) -> str:
    return ", ".join(f"{part} {microseconds:.1f} µs" for part, microseconds in own.items()) + "."


if __name__ == "__main__":
    sys.exit(main())

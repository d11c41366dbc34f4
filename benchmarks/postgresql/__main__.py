"""Durable reports a second on a PostgreSQL server, beside Optuna on the same server, in one run."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from benchmarks import peers
from benchmarks.machine import describe
from benchmarks.reports import ours
from benchmarks.writing import Row, median_of, save
from tests.postgresql import INSTALL, Server, a_server, programs

PEER = Path(__file__).resolve().parents[1] / "reports" / "peers" / "optuna_reports.py"
# As Debian has it, but for where it listens and what it may take: nothing of it makes a commit less durable.
SETTINGS = ("fsync=on", "shared_buffers=128MB", "max_connections=100")
NOTE = (
    "One server on this machine, `fsync` and `synchronous_commit` on, reached by its socket. Ours: four trials in "
    "processes of their own, one `report()` for each row, `median_stop` judging every one of them; a report counts "
    "when a reader of the database finds it. Optuna: four processes, one trial each, `trial.report`; no pruner is "
    "asked."
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.postgresql", description=__doc__, allow_abbrev=False)
    parser.add_argument("--rounds", type=int, default=3, help="of each row, interleaved (default: 3)")
    parser.add_argument("--reports", type=int, default=50_000, help="of each of the four trials (default: 50000)")
    parser.add_argument("--peer-reports", type=int, default=1_000, help="of each of Optuna's trials (default: 1000)")
    options = parser.parse_args()
    if programs() is None:
        parser.error(f"there is no PostgreSQL server here: {INSTALL}")
    machine = describe()
    server = a_server(*SETTINGS)
    try:
        found = _measured(server, options)
    finally:
        server.end()
    command = f"python -m benchmarks.postgresql --rounds {options.rounds} --reports {options.reports}"
    command += f" --peer-reports {options.peer_reports}"
    save("postgresql", command=command, machine=machine, rows=_rows(found), notes=[NOTE])
    return 0


def _measured(server: Server, options: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for _ in range(options.rounds):
        theirs = server.new_database().replace("postgresql://", "postgresql+psycopg://")
        round_: dict[str, dict[str, Any]] = {
            "ours": ours.measure(ours.Load(reports=options.reports), database=server.new_database()),
            "Optuna": peers.run(PEER, theirs, str(options.peer_reports)),
        }
        for name, row in round_.items():
            print(name, row, flush=True)
            found.setdefault(name, []).append(row)
    return found


def _rows(found: dict[str, list[dict[str, Any]]]) -> list[Row]:
    errors = [row["error"] for row in found["Optuna"] if "error" in row]
    theirs = None if errors else median_of(found["Optuna"], "a_second")
    own = found["ours"]
    row: Row = {"what": "ours", "reports/s": median_of(own, "a_second")}
    if theirs:
        row["× Optuna"] = round(row["reports/s"] / theirs, 1)
    titles = {"delay_median_ms": "median ms to disk", "delay_p99_ms": "p99 ms", "service_us": "service µs"}
    row |= {title: round(median_of(own, key), 1) for key, title in titles.items()}
    other: Row = {"what": "Optuna"}
    other |= {"left out": errors[0]} if errors else {"reports/s": theirs, "× Optuna": 1.0}
    return [row, other]


if __name__ == "__main__":
    sys.exit(main())

"""Durable reports a second on a PostgreSQL server, beside Optuna on the same server, in one run."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from benchmarks import peers
from benchmarks.machine import describe
from benchmarks.reports import ours
from benchmarks.writing import Row, median_of, rounds_of, save, spread
from tests.postgresql import INSTALL, Server, a_server, programs

PEER = Path(__file__).resolve().parents[1] / "reports" / "peers" / "optuna_reports.py"
# As Debian has it, but for where it listens (tests/postgresql.py sets some otherwise): all of it as durable.
SETTINGS = ("fsync=on", "shared_buffers=128MB", "max_connections=100", "autovacuum_naptime=1min")
NOTES = (
    (
        "One server on this machine, `fsync` and `synchronous_commit` on, reached by its socket, its settings those of "
        "Debian otherwise. Ours: four trials in processes of their own, one `report()` for each row, `median_stop` "
        "judging every one of them; a report counts when a reader of the database finds it. Optuna: four processes, "
        "one trial each, `trial.report`; no pruner is asked. `× Optuna` is of each round, with the least and the most "
        "of the rounds."
    ),
    (
        "The calls promise different things. Optuna's returns when its row is synced by the server. Ours returns at "
        "once, and the rows of many reports are synced together: a process that is killed, whichever, loses nothing; "
        "a power loss may lose the reports of so long a time as `to disk` shows, and Optuna's would be there. As fast "
        "as they can trials report faster than rows are written: the delay is how long the queue has become by the "
        "end; of a steady 25,000 a second see benchmarks.reports."
    ),
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
    save(
        "postgresql",
        command=command,
        machine=machine,
        rows=_rows(found),
        notes=NOTES,
        rounds=rounds_of(found),
        of_rounds=options.rounds,
    )
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
    own, others = found["ours"], found["Optuna"]
    errors = [row["error"] for row in others if "error" in row]
    row: Row = {"what": "ours", "reports/s": median_of(own, "a_second")}
    if not errors:
        pairs = zip(own, others, strict=True)
        row["× Optuna"] = spread([mine["a_second"] / theirs["a_second"] for mine, theirs in pairs])
    titles = {"delay_median_ms": "median ms to disk", "delay_p99_ms": "p99 ms to disk", "service_us": "service µs"}
    row |= {title: round(median_of(own, key), 1) for key, title in titles.items()}
    other: Row = {"what": "Optuna", "version": others[0].get("version")}
    other |= {"left out": errors[0]} if errors else {"reports/s": median_of(others, "a_second")}
    return [{"what": "ours", "version": None} | row, other]


if __name__ == "__main__":
    sys.exit(main())

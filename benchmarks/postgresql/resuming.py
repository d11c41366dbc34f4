"""A large experiment whose database is on a server: how long resuming it takes, to the next trial's first line."""

from __future__ import annotations

import argparse
import sys
from statistics import median

from benchmarks.machine import describe
from benchmarks.postgresql import __main__ as reports
from benchmarks.scale.__main__ import resumed_s
from benchmarks.scale.build import EXPERIMENT_ID, Size, build
from benchmarks.service import memory_mb, service
from benchmarks.writing import Row, save, verdict
from tests.postgresql import INSTALL, a_server, programs

NOTES = (
    (
        "One server on this machine, `fsync` on. No service runs before; the command starts one, which takes the "
        "lease, reads the rows, rebuilds tuner and assessor from their snapshots and starts the next trial. The figure "
        "is from the start of the command to the first line of that trial's code. The rows were written shortly "
        "before, so they are read from the page cache."
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.postgresql.resuming", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--reports", type=int, default=100, help="of each trial (default: 100)")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    if programs() is None:
        parser.error(f"there is no PostgreSQL server here: {INSTALL}")
    machine, server, resumed, memory = describe(), a_server(*reports.SETTINGS), [], 0.0
    try:
        url = server.new_database()
        build(url, Size(trials=options.trials, reports=options.reports))
        with service(TUNER_DB=url) as made:
            made.home.mkdir()
            for _ in range(options.runs):
                resumed.append(resumed_s(made))
                print(f"resumed in {resumed[-1]:.2f} s", flush=True)
                memory = max(memory, memory_mb(made.processes()["service"], peak=True))
                made.tuner("stop", EXPERIMENT_ID, "--wait")
                made.end()
    finally:
        server.end()
    size = f"{options.trials:,} trials, {options.trials * options.reports:,} reports"
    figures = (
        (f"{size}: resume without a service, s", median(resumed), "4"),
        ("the slowest of them, s", max(resumed), ""),
        ("memory of the service for it, MB at most", memory, "500"),
    )
    rows: list[Row] = [
        {"what": what, "measured": round(measured, 3), "target": target, "target is": verdict(measured, target)}
        for what, measured, target in figures
    ]
    command = f"python -m benchmarks.postgresql.resuming --trials {options.trials} --reports {options.reports}"
    save("postgresql-resume", command=f"{command} --runs {options.runs}", machine=machine, rows=rows, notes=NOTES)
    return 0


if __name__ == "__main__":
    sys.exit(main())

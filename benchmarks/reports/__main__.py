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
from benchmarks.writing import Row, median_of, rounds_of, save, spread

PEERS = Path(__file__).resolve().parent / "peers"
TARGET_A_SECOND = 25_000
OPTUNA = ("Optuna, SQLite", "Optuna, journal file")
PACED = f"ours, {TARGET_A_SECOND} a second"
NOTES = (
    (
        "Ours: four trials in processes of their own, one `report()` for each row, `median_stop` judging every one of "
        "them; a report counts when a reader of the database finds it. `synchronous=FULL` for us and for Optuna on "
        "SQLite; its journal file is synced at every write. Peers are only asked to store: no pruner is asked. Ray's "
        "reports (one logger, JSON, in place of its three) and Syne Tune's go to files that are not synced."
    ),
    (
        "The calls promise different things. Optuna's returns when its row is synced. Ours returns at once: the line "
        "is in a file of the attempt then, not on the disk, and the rows of many reports are synced together. A "
        "process that is killed, whichever, loses nothing; a power loss may lose the reports of so long a time as `to "
        "disk` shows, and Optuna's would be there. What was reported before a checkpoint is synced with it."
    ),
    (
        f"The row of {TARGET_A_SECOND:,} a second is what trials can rely on: as fast as they can they report faster "
        "than rows are written, and the delay is how long the queue has become by the end. `× the better Optuna`: of "
        "each round, its faster one; the least and the most of the rounds in brackets. Optuna's rate is that of calls "
        "which each wait for a sync, so it depends on the disk (fsync above) more than ours does."
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
    save(
        "reports",
        command=command,
        machine=machine,
        rows=rows_of(found),
        notes=notes,
        rounds=rounds_of(found),
        of_rounds=options.rounds,
    )
    return 0


def _round(options: argparse.Namespace, others: dict[str, str]) -> dict[str, dict[str, Any]]:
    """The order of the rows; ours are apart in time, with one of Optuna's after each."""
    few = str(options.peer_reports)
    round_: dict[str, dict[str, Any]] = {
        PACED: measure(Load(reports=options.reports // 2, a_second=TARGET_A_SECOND / 4)),
        OPTUNA[0]: peers.run(PEERS / "optuna_reports.py", "sqlite", few),
        "ours, as fast as they report": measure(Load(reports=options.reports)),
        OPTUNA[1]: peers.run(PEERS / "optuna_reports.py", "journal", few),
    }
    for name, script in (("ray", "ray_reports.py"), ("syne", "syne_reports.py")):
        if name in others:
            round_[name] = peers.run(PEERS / script, few, python=others[name])
    return round_


def rows_of(found: dict[str, list[dict[str, Any]]]) -> list[Row]:
    """A row of each, that of the paced reports first. Ratios are of each round."""
    rows = []
    better = [
        max((one["a_second"] for one in both if "a_second" in one), default=None)
        for both in zip(*(found[name] for name in OPTUNA), strict=True)
    ]
    for name, rounds in found.items():
        errors = [r["error"] for r in rounds if "error" in r]
        if errors:
            rows.append({"what": name, "left out": errors[0]})
            continue
        row: Row = {"what": name, "version": rounds[0].get("version"), "reports/s": median_of(rounds, "a_second")}
        ratios = [one["a_second"] / of for one, of in zip(rounds, better, strict=True) if of]
        row["× the better Optuna"] = spread(ratios)
        columns = {"delay_median_ms": "median ms to disk", "delay_p99_ms": "p99 ms to disk"}
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

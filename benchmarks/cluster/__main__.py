"""A thousand nodes, simulated: the dispatcher and the store of a service, told what their agents would say.

No process, socket or agent: what is measured is what one thread of the service has to do, and how much of a core that
takes. Times are of its processor, but where they say otherwise.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from benchmarks.cluster.nodes import SimulatedCluster, Size
from benchmarks.machine import describe
from benchmarks.writing import Row, save, verdict
from tuner_service.wiring import COLLECT_AFTER

NOTES = (
    (
        "Every node has 8 devices, and a trial on each; the trials are of experiments that run 200 at a time. A "
        "placement decision is one command of the dispatcher that starts trials. A node's loss is settled when its "
        "trials were given up, and those were started that find room, all of it committed. Each report is a command of "
        "its own, as an agent sends it where a trial reports seldom; a step takes what has come in 50 ms, and time "
        "passes every half second, as in the service, whose collector of garbage is set as here. What it takes to make "
        "the reports, which the nodes would do, is not counted."
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster", description=__doc__, allow_abbrev=False)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--experiments", type=int, default=40)
    parser.add_argument("--reports", type=int, default=10, help="of each node in a second (default: 10)")
    parser.add_argument("--seconds", type=int, default=20, help="of reports (default: 20)")
    parser.add_argument("--losses", type=int, default=20, help="nodes that are lost, one after the other (default: 20)")
    parser.add_argument(
        "--ends", type=int, default=400, help="trials that end, each followed by another (default: 400)"
    )
    options = parser.parse_args()
    machine = describe()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER)
    with tempfile.TemporaryDirectory() as folder:
        rows = _rows(options, Path(folder))
    command = f"python -m benchmarks.cluster --nodes {options.nodes} --experiments {options.experiments}"
    command += (
        f" --reports {options.reports} --seconds {options.seconds} --losses {options.losses} --ends {options.ends}"
    )
    save("cluster", command=command, machine=machine, rows=rows, notes=NOTES)
    return 0


def _row(what: str, value: float, target: str) -> Row:
    shown = round(value, 3)
    row = {"what": what, "measured": shown, "target": target, "target is": verdict(shown, target)}
    print(row, flush=True)
    return row


def _rows(options: argparse.Namespace, folder: Path) -> list[Row]:
    size = Size(nodes=options.nodes, experiments=options.experiments)
    cluster = SimulatedCluster(folder / "tuner.db", size)
    begun, processor = time.perf_counter(), time.process_time()
    cluster.fill()
    rows = [
        _row("trials running", cluster.running, f"≥ {size.trials}"),
        _row("from nothing to that, s", time.perf_counter() - begun, ""),
        _row("from nothing to that, s of a processor", time.process_time() - processor, ""),
        _row("a placement decision while it fills, median, ms", 1e3 * median(cluster.placements), "≤ 5"),
        _row("likewise, 99 %, ms", 1e3 * _high(cluster.placements, 0.99), "≤ 5"),
    ]
    cluster.placements.clear()
    took = cluster.report(seconds=options.seconds, each_node=options.reports)
    rows.append(_row("of a core, with all reports", took / options.seconds, "≤ 1"))
    cluster.end_some(options.ends)
    rows += [
        _row("a placement decision after an end, median, ms", 1e3 * median(cluster.placements), "≤ 5"),
        _row("likewise, 99 %, ms", 1e3 * _high(cluster.placements, 0.99), "≤ 5"),
    ]
    losses = cluster.lose_some(options.losses)
    rows += [
        _row("a node's loss settled, median, s", median(losses), "≤ 1"),
        _row("likewise, the longest, s", max(losses), "≤ 1"),
    ]
    cluster.close()
    return rows


def _high(values: list[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


if __name__ == "__main__":
    sys.exit(main())

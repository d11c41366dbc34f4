"""Trials a second, each with ten reports: with nothing imported and with torch; beside a bare loop and peers.

    python -m benchmarks.dispatch --peer ray=/tmp/ray/bin/python --peer vizier=/tmp/vizier/bin/python

A peer is a script ``peers/NAME_dispatch.py``; it runs in the interpreter that is named for it, or else in this one.
"""

from __future__ import annotations

import argparse
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import peers
from benchmarks.machine import describe
from benchmarks.service import Service, service, wait_for
from benchmarks.writing import Row, save

PEERS = Path(__file__).resolve().parent / "peers"
# The first and the last line of the script say when they ran.
SCRIPT = """import time; began = time.time()
for step in range(10):
    print(f"step={step} loss={1 / (step + 1)} at={began if step < 9 else time.time()!r}", flush=True)
"""
LONGER_SCRIPT = SCRIPT.replace("\n    print", "\n    time.sleep(0.03)\n    print", 1)
TORCH_SCRIPT = SCRIPT.replace("\nfor", "\nimport torch\nfor", 1)
AT_ONCE = 4
LOOK_S = 0.1  # between two looks whether a search is over: when it was over, its rows say
GAPS_MS = (10, 20, 30, 50, 100)  # the edges of the histogram
NOTES = (
    (
        "Four at a time. The bare loop starts `python script.py` and stores nothing. Ours asks the tuner for each "
        "trial, reads the reports from standard output by a pattern and stores every one of them durably; peers store "
        "what they store by default in a file. With torch, the row 'first search' includes the start of the fork "
        "server and its import of torch; the row after it is the next search of the same service."
    ),
    (
        "The gap is from the last line of a trial's script to the first line of the script that took its place: "
        "the end of the process, its exit record, the service, the tuner's next suggestion, the launch, and the fork. "
        "Where trials last no longer than this, both cores are busy with it, and it is mostly waiting for them; the "
        "rows of longer trials show it without."
    ),
    "Fewer trials where each imports torch by itself: their rate does not depend on how many they are.",
)


@dataclass(frozen=True, kw_only=True)
class Load:
    """What the trials do, and how many of them there are where each starts an interpreter of its own."""

    name: str
    script: str
    preload: tuple[str, ...]
    ours: int
    others: int


def bare_loop(load: Load) -> dict[str, Any]:
    with _script(load) as script:

        def one(number: int) -> None:
            subprocess.run([sys.executable, str(script), f"--x={number}"], stdout=subprocess.DEVNULL, check=True)

        begun = time.time()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(one, range(load.others)))
        return {"trials": load.others, "a_second": load.others / (time.time() - begun)}


@contextmanager
def _script(load: Load) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.py"
        script.write_text(load.script)
        yield script


def ours(load: Load, homes: ExitStack) -> list[dict[str, Any]]:
    """Of two searches, one after the other, in one service."""
    with service(removed_with=homes) as made:
        return [_search(made, load, earlier=n * load.ours) for n in range(2)]


def _search(made: Service, load: Load, *, earlier: int) -> dict[str, Any]:
    """From the first trial's start to the last one's end, as the rows say."""
    experiment = {
        "name": "dispatch",
        "seed": 1,
        "objective": {"metric": "loss"},
        "search_space": {"x": {"type": "float", "low": 0, "high": 1}},
        "tuner": {"name": "random"},
        "budget": {"trials": load.ours, "parallel": AT_ONCE},
        "trial": {
            "code": "code",
            "command": "python script.py",
            "metrics_pattern": r"step=(?P<step>\d+) loss=(?P<loss>\S+)",
            "final": "last",
            "preload": list(load.preload),
        },
    }
    ended = "SELECT count(*) FROM trials WHERE ended_at IS NOT NULL"
    times = "SELECT started_at, ended_at FROM trials WHERE ended_at IS NOT NULL ORDER BY started_at"
    known = set(made.home.glob("attempts/*"))
    made.start(experiment, load.script)
    with made.reading() as connection:
        total = load.ours + earlier
        all_ended = partial(_has, connection, ended, total)
        wait_for(all_ended, "the trials to end", patience_s=300, poll_s=LOOK_S)
        own = connection.execute(times).fetchall()[earlier:]
    (folder,) = set(made.home.glob("attempts/*")) - known
    spent = max(float(end) for _, end in own) - float(own[0][0])
    return {"trials": load.ours, "a_second": load.ours / spent, "gaps_ms": _gaps_ms(folder)}


def _has(connection: sqlite3.Connection, query: str, count: int) -> bool:
    found: int = connection.execute(query).fetchone()[0]
    return found >= count


def _gaps_ms(experiment: Path) -> list[float]:
    """From the last line of each script to the first line of the one that took its place."""
    begins, ends = [], []
    for log in experiment.glob("*/*/stdout.log"):
        times = re.findall(r"at=([\d.]+)", log.read_text())
        begins.append(float(times[0]))
        ends.append(float(times[-1]))
    starts = sorted(begins)[AT_ONCE:]
    return [1000 * (begun - ended) for begun, ended in zip(starts, sorted(ends), strict=False)]


def peer(load: Load, name: str, python: str) -> dict[str, Any]:
    with _script(load) as script:
        return peers.run(PEERS / f"{name}_dispatch.py", str(script), str(load.others), python=python)


def main() -> int:
    options = _options()
    machine = describe()
    with ExitStack() as homes:
        rows = _all_rows(options, homes)
    command = f"python -m benchmarks.dispatch {' '.join(sys.argv[1:])}".strip()
    save(options.name, command=command, machine=machine, rows=rows, notes=NOTES)
    return 0


def _all_rows(options: argparse.Namespace, homes: ExitStack) -> list[Row]:
    pythons = dict(named.split("=", 1) for named in options.peer)
    rows: list[Row] = []
    for load in (
        Load(name="nothing", script=SCRIPT, preload=(), ours=options.trials, others=options.trials),
        Load(name="nothing, 0.3 s long", script=LONGER_SCRIPT, preload=(), ours=options.trials // 2, others=20),
        Load(name="torch", script=TORCH_SCRIPT, preload=("torch",), ours=options.trials, others=options.torch_trials),
    ):
        if load.name.partition(",")[0] in options.load:
            rows += _rows(load.name, _measure(load, options, pythons=pythons, homes=homes))
    return rows


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.dispatch", description=__doc__.splitlines()[0], allow_abbrev=False
    )
    parser.add_argument("--rounds", type=int, default=3, help="of each row, interleaved (default: 3)")
    parser.add_argument("--trials", type=int, default=200, help="of each round (default: 200)")
    parser.add_argument("--torch-trials", type=int, default=24, help="where each imports torch itself (default: 24)")
    parser.add_argument("--load", nargs="+", choices=["nothing", "torch"], default=["nothing", "torch"])
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PYTHON", help="an interpreter of a peer")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--name", default="dispatch", help="of the files in results/ (default: dispatch)")
    return parser.parse_args()


def _measure(
    load: Load, options: argparse.Namespace, *, pythons: dict[str, str], homes: ExitStack
) -> dict[str, list[dict[str, Any]]]:
    names = [] if options.no_peers else sorted(path.name.removesuffix("_dispatch.py") for path in PEERS.glob("*.py"))
    measures: dict[str, Callable[[], dict[str, Any] | list[dict[str, Any]]]] = {
        "bare loop": partial(bare_loop, load),
        "ours": partial(ours, load, homes),
    }
    for name in names:
        measures[name] = partial(peer, load, name, pythons.get(name, sys.executable))
    found: dict[str, list[dict[str, Any]]] = {}
    for _ in range(options.rounds):
        for name, measure in measures.items():
            if any("error" in earlier for earlier in found.get(name, [])):
                continue
            result = measure()
            if isinstance(result, list):
                for label, one in zip(("ours, first search", "ours, next search"), result, strict=True):
                    found.setdefault(label, []).append(one)
            else:
                found.setdefault(name, []).append(result)
            shown = result if isinstance(result, list) else [result]
            print(load.name, name, [{k: v for k, v in one.items() if k != "gaps_ms"} for one in shown], flush=True)
    return found


def _rows(load: str, found: dict[str, list[dict[str, Any]]]) -> list[Row]:
    rows: list[Row] = []
    bare = median(r["a_second"] for r in found["bare loop"])
    for name, rounds in found.items():
        row: Row = {"imports": load, "what": name}
        errors = [r["error"] for r in rounds if "error" in r]
        if errors:
            rows.append(row | {"left out": errors[0]})
            continue
        a_second = median(r["a_second"] for r in rounds)
        row |= {"trials/s": round(a_second, 2), "× bare loop": round(a_second / bare, 2)}
        gaps = [gap for r in rounds for gap in r.get("gaps_ms", [])]
        if gaps:
            row |= {"gap, median ms": round(median(gaps), 1), "gaps": _histogram(gaps)}
        rows.append(row)
    return rows


def _histogram(gaps: list[float]) -> str:
    edges = [0, *GAPS_MS, float("inf")]
    parts = []
    for low, high in pairwise(edges):
        share = sum(low <= max(gap, 0) < high for gap in gaps) / len(gaps)
        name = f"{low:g} to {high:g} ms" if high != float("inf") else f"more than {low:g} ms"
        parts.append(f"{name}: {100 * share:.0f}%")
    return ", ".join(parts)


if __name__ == "__main__":
    sys.exit(main())

"""How the service grows: 100 to 100,000 trials that ended, 1 to 100 experiments at once, 4 to 64 trials at once.

Databases are written before anything is measured; ``--databases FOLDER`` keeps them for the next run.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.dispatch.loads import Load
from benchmarks.dispatch.ours import experiment_of
from benchmarks.loading.costs import tree
from benchmarks.machine import describe
from benchmarks.scale.__main__ import resumed_s
from benchmarks.scale.build import EXPERIMENT_ID, Size, build
from benchmarks.service import Service, service
from benchmarks.writing import Row, median_of, save
from trials.processes.usage import memory_of
from tuner_service.cli.files.experiment_file import read_body
from tuner_service.client import Client

REPORTS = 10  # of each trial of a built database
LOOK_S, MEMORY_S = 0.05, 1.0
PATIENCE_S = 120.0
LONG_S = 0.3  # of a trial, where many run at once
TRIALS_AT_ONCE = 4  # of each of many experiments
NOTES = (
    (
        f"Ended trials: an experiment of so many, {REPORTS} reports each. `resume` is from the command, no service "
        "running, to the first line of the next trial's code; `show` and `page` are whole commands, and one answer "
        "over REST with 100 trials. The database was copied there just before, so it is read from the page cache. "
        "Memory is that of the service alone."
    ),
    (
        "Experiments at once: all are created over REST, one after the other, each with four trials at a time that do "
        "nothing but ten reports, on one node. There are 200 trials in all rows: with 100 experiments each has two in "
        "all, so that this rate is that of starting 100 algorithm workers, not of launching trials. The rate counts "
        "from the first trial's start to the last one's end, its ramp and its tail included. "
        "Memory is the most that service, agent, algorithm workers, fork servers and trials had at once (proportional "
        "set size)."
    ),
    (
        f"Trials at once: one experiment whose trials last {LONG_S:g} s and compute nothing, so that many fit on two "
        "cores. The rate counts likewise from the first start to the last end, of four trials for each place: the "
        "first trials are launched one after the other, and at the end places stay empty, which both lower it. `of "
        "ideal` is that rate beside so many trials every so many seconds."
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__, allow_abbrev=False)
    parser.add_argument("--rounds", type=int, default=5, help="of each row, interleaved (default: 5)")
    parser.add_argument("--trials", type=int, nargs="*", default=[100, 1_000, 10_000, 100_000])
    parser.add_argument("--experiments", type=int, nargs="*", default=[1, 10, 100])
    parser.add_argument("--at-once", type=int, nargs="*", default=[4, 16, 64])
    parser.add_argument("--databases", type=Path, help="a folder in which they are kept")
    parser.add_argument("--build-only", action="store_true", help="the databases, and measure nothing")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tuner-growth-") as temporary, ExitStack() as homes:
        databases = _databases(options.databases or Path(temporary), options.trials)
        if options.build_only:
            return 0
        machine = describe()
        measures: dict[tuple[str, int], Callable[[], Row]] = {
            **{("trials that ended", count): partial(_ended, database) for count, database in databases.items()},
            **{("experiments at once", count): partial(_many, count, homes) for count in options.experiments},
            **{("trials at once", count): partial(_wide, count, homes) for count in options.at_once},
        }
        found: dict[tuple[str, int], list[Row]] = {key: [] for key in measures}
        for _ in range(options.rounds):
            for key, measure in measures.items():
                found[key].append(measure())
                print(*key, found[key][-1], flush=True)
    rows: list[Row] = [
        {kind: count, **{name: round(median_of(rounds, name), 3) for name in rounds[0]}}
        for (kind, count), rounds in found.items()
    ]
    rounds = [{"what": list(key), "rounds": rounds} for key, rounds in found.items()]
    command = f"python -m benchmarks.growth --rounds {options.rounds}"
    for name in ("trials", "experiments", "at_once"):
        command += f" --{name.replace('_', '-')} {' '.join(map(str, getattr(options, name)))}"
    save(
        "growth",
        command=command,
        machine=machine,
        rows=rows,
        notes=NOTES,
        rounds=rounds,
        of_rounds=options.rounds,
    )
    return 0


# ── trials that ended ───────────────────────────────────────────────────────────────────────────
def _databases(folder: Path, counts: list[int]) -> dict[int, Path]:
    found = {}
    folder.mkdir(parents=True, exist_ok=True)
    for count in counts:
        found[count] = folder / f"{count}.db"
        if not found[count].exists():
            print("writing", found[count].name, flush=True)
            build(found[count], Size(trials=count, reports=REPORTS))
    return found


def _ended(database: Path) -> Row:
    with service() as made:
        made.home.mkdir()
        for file in database.parent.glob(f"{database.name}*"):  # and its write-ahead log
            shutil.copyfile(file, made.home / file.name.replace(database.name, "tuner.db"))
        row: Row = {"resume, s": resumed_s(made)}
        begun = time.perf_counter()
        made.tuner("show", EXPERIMENT_ID)
        row["show, s"] = time.perf_counter() - begun
        with _client(made) as client:
            begun = time.perf_counter()
            client.call("GET", f"/api/v1/experiments/{EXPERIMENT_ID}/trials", query={"limit": "100"})
            row["page, s"] = time.perf_counter() - begun
        row["service, MB"] = memory_of(made.processes()["service"][0]) / 1e6
        row["database, MB"] = made.database.stat().st_size / 1e6
        made.tuner("stop", EXPERIMENT_ID, "--wait")
    return row


@contextmanager
def _client(made: Service) -> Iterator[Client]:
    address = made.address()
    client = Client(address["url"], Path(address["token_file"]).read_text(encoding="utf-8").strip())
    try:
        yield client
    finally:
        client.close()


# ── experiments at once, and trials at once ─────────────────────────────────────────────────────
def _many(count: int, homes: ExitStack) -> Row:
    """Some 200 trials, and two at least for each experiment."""
    load = Load(name="many", trials=max(2, 200 // count))
    bodies = [(load, TRIALS_AT_ONCE)] * count
    return _run(bodies, homes)


def _wide(count: int, homes: ExitStack) -> Row:
    load = Load(name="wide", trials=4 * count, pause=f"time.sleep({LONG_S / 10:g})")
    row = _run([(load, count)], homes)
    return {**row, "of ideal": row["trials/s"] * LONG_S / count}


def _run(wanted: list[tuple[Load, int]], homes: ExitStack) -> Row:
    with service(removed_with=homes) as made:
        times = made.folder / "times"
        first = Load(name="first", trials=TRIALS_AT_ONCE)  # starts the service, its agent and a fork server
        made.tuner("run", str(made.write(experiment_of(first), first.script(made.folder / "first"))))
        times.touch()
        with _client(made) as client:
            bodies = [_body(made, load, at_once, times) for load, at_once in wanted]
            for body in bodies:
                client.create(body)
        expected, peak = sum(load.trials for load, _ in wanted), 0
        deadline, next_look = time.monotonic() + PATIENCE_S, 0.0
        while len(times.read_text().splitlines()) < expected:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{expected} trials did not end within {PATIENCE_S:g} s")
            if time.monotonic() > next_look:  # a look takes a millisecond for each process
                peak = max(peak, sum(map(memory_of, _processes(made))))
                next_look = time.monotonic() + MEMORY_S
            time.sleep(LOOK_S)
        own = [tuple(map(float, line.split())) for line in times.read_text().splitlines()]
    begins, ends = sorted(begin for begin, _ in own), sorted(end for _, end in own)
    return {"trials/s": len(own) / (ends[-1] - begins[0]), "memory, MB": peak / 1e6}


def _body(made: Service, load: Load, at_once: int, times: Path) -> dict[str, Any]:
    experiment = experiment_of(load)
    experiment["budget"]["parallel"] = at_once
    return read_body(str(made.write(experiment, load.script(times))))


def _processes(made: Service) -> list[int]:
    """The service and all below it, and the agent, which is nobody's child, with its own."""
    found = made.processes()
    return sorted(set(tree(*found["service"], *found["agent"])))


if __name__ == "__main__":
    sys.exit(main())

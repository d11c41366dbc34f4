"""Trials a second, each with ten reports: with nothing imported and with torch; beside a bare loop and peers.

    python -m benchmarks.dispatch --peer ray=/tmp/ray/bin/python --peer vizier=/tmp/vizier/bin/python

A peer is a script ``peers/NAME_dispatch.py``; it runs in the interpreter that is named for it, or else in this one.
Everybody is measured in every round, one after the other. ``--add`` puts further rounds to those of the kept result,
where it is of the same commit and command: a run may be made in pieces.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import peers
from benchmarks.dispatch import ours
from benchmarks.dispatch.loads import Load, figures, folder_of, next_figures
from benchmarks.machine import describe, fsync_ms, load
from benchmarks.writing import RESULTS, Row, save

PEERS = Path(__file__).resolve().parent / "peers"
SETTLE_S = 2.0  # before everybody: what the one before has left is over


@dataclass(frozen=True, kw_only=True)
class Beside:
    """A script of ``peers`` and the words that it is given. ``goes_on``: its next search is told, too."""

    script: str
    words: tuple[str, ...] = ()
    goes_on: bool = False
    only: str = ""  # the one load that it is measured with


BARE = {"bare loop": Beside(script="bare"), "bare loop, forked": Beside(script="bare", words=("forked",))}
BESIDE = {
    "Optuna, 4 workers, SQLite": Beside(script="optuna", words=("sqlite",), goes_on=True),
    "Optuna, 4 workers, journal file": Beside(script="optuna", words=("journal",), goes_on=True),
    "Optuna, 4 workers, journal file, TPE": Beside(
        script="optuna", words=("journal", "tpe"), goes_on=True, only="nothing"
    ),
    "Vizier": Beside(script="vizier", goes_on=True),
    "Syne Tune": Beside(script="syne"),
    "Ray Tune, an actor a trial": Beside(script="ray"),
    "Ray Tune, reused actors": Beside(script="ray", words=("reused",), goes_on=True),
    "NNI": Beside(script="nni"),
}
Found = dict[str, dict[str, Any]]  # what was measured: its figures
Measure = Callable[[], dict[str, Any] | list[dict[str, Any]]]
NOTES = (
    (
        "A random search of one parameter (TPE where it says so), four trials at a time, as many for everybody; a "
        "trial does nothing but ten reports. `first trial` and `trials/s from the command` count from the start of the "
        "command (a script that does the whole search; `tuner run`) to the first line of the first trial's code, and "
        "until it says that all trials are done: the start of interpreters, servers and workers is in it for "
        "everybody, and so is the start of our service in the rows of a first experiment. A next experiment finds the "
        "service up; a peer's finds its interpreter up with everything imported, Ray its cluster, Vizier its server. "
        "`steady` leaves out the first quarter of the trials, by their own clocks. The order turns by one with each "
        "round, and everybody begins after two seconds of rest."
    ),
    (
        "What a trial is: a fork of an interpreter that is up, with us (`isolation: fork`, the default), in the forked "
        "loop and with Ray's workers; an interpreter that is started, in the bare loop, with us where it says `spawn`, "
        "with Optuna, Vizier, NNI and Syne Tune, which imports itself in each. Both loops store nothing. Ours asks the "
        "tuner for each trial, reads the reports from standard output by a pattern and stores every one of them "
        "durably, in one transaction where a trial is as short as these; Optuna and Vizier read them from the same "
        "script's output once it has ended and store each with a call of its own, Optuna durably (`synchronous = "
        "FULL`; its journal syncs each line). Syne Tune's, Ray's and NNI's trials report by their own calls, which "
        "write files that are not synced; Ray's three loggers are one here."
    ),
    (
        "The gap is from the last line of a trial's script to the first line of the script that took its place. Where "
        "trials last no longer than this, both cores are busy with it, and it is mostly waiting for them; the rows of "
        "longer trials show it without."
    ),
    (
        "`preload` given: the experiment names torch as what its trials import. Not given: the first trial shows it, "
        "and a fork server imports it beside the trials that run."
    ),
)


def main() -> int:
    options = _options()
    machine = describe()
    names = " ".join(sorted({named.partition("=")[0] for named in options.peer}))
    command = f"python -m benchmarks.dispatch --load {' '.join(options.load)}"
    command += f" --trials {options.trials} --torch-trials {options.torch_trials}"
    command += " --no-peers" if options.no_peers else "".join(f" --peer {name}=PYTHON" for name in names.split())
    rounds = _earlier(options.name, command, str(machine["commit"])) if options.add else []
    with ExitStack() as homes:
        for turn in range(len(rounds), len(rounds) + options.rounds):
            one: Row = {"load": load(), "fsync_ms": fsync_ms(), "found": {}}
            for what in _loads(options):
                one["found"][what.name] = _round(what, options, homes, turn=turn)
            rounds.append(one)
    command += f"  ({len(rounds)} rounds)"
    save(options.name, command=command, machine=machine, rows=_all_rows(rounds), notes=NOTES, rounds=rounds)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.dispatch", description=__doc__.splitlines()[0], allow_abbrev=False
    )
    parser.add_argument("--rounds", type=int, default=5, help="of each row, interleaved (default: 5)")
    parser.add_argument("--add", action="store_true", help="to the rounds of the kept result")
    parser.add_argument("--trials", type=int, default=60, help="of each row (default: 60)")
    parser.add_argument("--torch-trials", type=int, default=24, help="where each imports torch (default: 24)")
    loads = ["nothing", "longer", "torch"]
    parser.add_argument("--load", nargs="+", choices=loads, default=loads)
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PYTHON", help="an interpreter of a peer")
    parser.add_argument("--no-peers", action="store_true", help="only the bare loop beside us")
    parser.add_argument("--name", default="dispatch", help="of the files in results/ (default: dispatch)")
    return parser.parse_args()


def _loads(options: argparse.Namespace) -> list[Load]:
    loads = {
        "nothing": Load(name="nothing", trials=options.trials),
        "longer": Load(name="nothing, 0.3 s long", trials=20, pause="time.sleep(0.03)"),
        "torch": Load(name="torch", trials=options.torch_trials, imports="torch", preload=("torch",)),
    }
    return [loads[name] for name in options.load]


def _earlier(group: str, command: str, commit: str) -> list[Row]:
    file = RESULTS / f"{group}.json"
    kept = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    if kept.get("machine", {}).get("commit") != commit or kept.get("command", "").partition("  (")[0] != command:
        print("no earlier rounds of this commit and command: these are the first", file=sys.stderr)
        return []
    rounds: list[Row] = kept["rounds"]
    return rounds


def _round(what: Load, options: argparse.Namespace, homes: ExitStack, *, turn: int) -> Found:
    measures = list(_measures(what, options, homes).items())
    order: dict[str, Found] = {name: {} for name, _ in measures}  # of the rows, which is not that of measuring
    for name, measure in measures[turn % len(measures) :] + measures[: turn % len(measures)]:
        time.sleep(SETTLE_S)
        result = measure()
        order[name] = {name: result} if isinstance(result, dict) else _by_experiment(name, result)
        print(what.name, order[name], flush=True)
    return {row: figures for labelled in order.values() for row, figures in labelled.items()}


def _by_experiment(name: str, results: Sequence[dict[str, Any]]) -> Found:
    return {f"{name}, {which} experiment": one for which, one in zip(("first", "next"), results, strict=True)}


def _measures(what: Load, options: argparse.Namespace, homes: ExitStack) -> dict[str, Measure]:
    pythons = dict(named.split("=", 1) for named in options.peer)
    measures: dict[str, Measure] = {name: partial(peer, what, of, sys.executable) for name, of in BARE.items()}
    measures["ours, preload given" if what.preload else "ours"] = partial(ours.measure, what, homes)
    if what.preload:
        unnamed = Load(name=what.name, trials=what.trials, imports=what.imports)
        measures["ours, preload not given"] = partial(ours.measure, unnamed, homes)
    if what.name == "nothing":
        measures["ours, isolation: spawn"] = partial(ours.measure, what, homes, isolation="spawn")
        measures["ours, TPE"] = partial(ours.measure, what, homes, tuner="tpe")
    for name, of in ({} if options.no_peers else BESIDE).items():
        if of.only in {"", what.name}:
            measures[name] = partial(peer, what, of, pythons.get(of.script, sys.executable))
    return measures


def peer(what: Load, of: Beside, python: str) -> dict[str, Any] | list[dict[str, Any]]:
    """Its search; and the next one, where it goes on."""
    with folder_of(what) as (folder, script, times):
        state = folder / "state"
        state.mkdir()
        command = [python, str(PEERS / f"{of.script}_dispatch.py"), str(state), str(script), str(what.trials)]
        found = peers.timed([*command, *of.words], folder=folder)
        first = figures(times, what, found)
        return [first, next_figures(times, what, found)] if of.goes_on else first


def _all_rows(rounds: Sequence[Row]) -> list[Row]:
    return [row for what in rounds[0]["found"] for row in _rows(what, [one["found"].get(what, {}) for one in rounds])]


def _rows(what: str, rounds: Sequence[Found]) -> list[Row]:
    rows: list[Row] = []
    bare_whole, bare_steady = (_median(rounds, "bare loop", key) for key in ("whole_s", "steady_a_second"))
    for name in rounds[0]:
        row: Row = {"imports": what, "what": name}
        errors = [one[name]["error"] for one in rounds if "error" in one.get(name, {})]
        if errors:
            rows.append(row | {"left out": errors[0]})
            continue
        whole, steady = (_median(rounds, name, key) for key in ("whole_s", "steady_a_second"))
        trials = rounds[0][name]["trials"]
        row |= {"trials": trials, "first trial, s": round(_median(rounds, name, "first_s"), 2)}
        row |= {"trials/s from the command": round(trials / whole, 2), "× bare loop": round(bare_whole / whole, 2)}
        row |= {"steady trials/s": round(steady, 2), "steady × bare loop": round(steady / (bare_steady or steady), 2)}
        row |= {"gap, median ms": round(_median(rounds, name, "gap_ms"), 1)}
        row |= {"gap, p90 ms": round(_median(rounds, name, "gap_p90_ms"), 1)}
        row |= {"version": rounds[0][name]["version"]}
        rows.append(row)
    return rows


def _median(rounds: Sequence[Found], name: str, key: str) -> float:
    """0 where a round of it failed."""
    return float(median([one[name][key] for one in rounds if key in one.get(name, {})] or [0.0]))


if __name__ == "__main__":
    sys.exit(main())

"""Milliseconds of one suggestion, with the telling of its outcome, after 100, 1,000 and 10,000 trials of eight mixed
parameters; of one early-stopping decision at 1,000 trials of 20 reports.

Optuna beside us in the same run, NNI where an interpreter has it.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from statistics import median
from typing import Any

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = "1"  # as algorithm workers run, and the peers beside them; read when NumPy is imported

from benchmarks import peers  # noqa: E402  # after the above
from benchmarks.machine import describe  # noqa: E402  # likewise
from benchmarks.suggest import ours  # noqa: E402  # likewise
from benchmarks.writing import Row, save  # noqa: E402  # likewise
from tuner_service.assessors.registry import ASSESSORS  # noqa: E402  # likewise

PEERS = Path(__file__).resolve().parent / "peers"
BESIDE = {  # our tuner: the sampler of Optuna to compare with
    "tpe": "tpe, multivariate",
    "gp": "gp",
    "cma_es": "cma_es",
    "nsga2": "nsga2",
    "random": "random",
    "quasi_random": "quasi_random",
}
ALONE = ("evolution", "auto")
SLOW = ("gp", "auto")  # asked a few times only, and Optuna's GP up to this many trials
SLOW_TRIALS = 1_000
ASSESSED = (1_000, 20)  # trials, reports of each
NOTES = (
    (
        "A suggestion is asked for as the algorithm worker does it, and one outcome is told after each; a figure "
        "is the median time of both together, `of it telling` the part of the telling. "
        "`resumed` is what a restarted worker needs to load its snapshot and make its first suggestion."
    ),
    "Past 1,000 trials `tpe` shows its model 300 to 400 of them (tuners/tpe.py says which), `gp` past 250 150 to 200.",
    (
        "Ours is the fold of an algorithm worker in this process: no boundary between worker and service is crossed, "
        "and no row is stored, which a running service does for each suggestion. Likewise Optuna's figures are of its "
        "sampler on an in-memory study, and NNI's of its tuner alone, each in a process of its own in the same run. "
        "`OMP_NUM_THREADS=1` and `OPENBLAS_NUM_THREADS=1` for everybody, as algorithm workers run. NNI's TPE, which "
        "models each parameter by itself, was faster than ours up to about a thousand trials in all runs so far."
    ),
)


def suggest_rows(sizes: list[int], *, asked: int, rounds: int, nni: str | None) -> list[Row]:
    rows: list[Row] = []
    measured: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for _ in range(rounds):
        for size in sizes:
            for label, found in _one_round(size, asked, nni):
                measured.setdefault((label, size), []).append(found)
                print(label, size, _ms(found), flush=True)
    for label in dict.fromkeys(label for label, _ in measured):
        row: Row = {"suggest": label}
        for size in sizes:
            made = measured.get((label, size), [])
            errors = [one["error"] for one in made if "error" in one]
            row[f"{size} trials, ms"] = errors[0] if errors else round(median(map(_ms, made)), 2) if made else None
            told = [1000 * median(one["told_s"]) for one in made if "told_s" in one]
            row[f"of it telling at {size}"] = round(median(told), 2) if told else None
            resumed = [one["resumed_s"] for one in made if "resumed_s" in one]
            row[f"resumed at {size}, ms"] = round(1000 * median(resumed), 0) if resumed else None
        rows.append(row)
    return rows


def _one_round(size: int, asked: int, nni: str | None) -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = []
    for name, beside in BESIDE.items():
        few = 3 if name in SLOW else asked
        found.append((name, ours.suggestions(name, {}, trials=size, asked=few)))
        if name not in SLOW or size <= SLOW_TRIALS:
            script = PEERS / "optuna_suggest.py"
            found.append((f"Optuna {beside}", peers.run(script, str(size), str(few), beside)))
    found.append(("Optuna tpe, default", peers.run(PEERS / "optuna_suggest.py", str(size), str(asked), "tpe")))
    found += [(name, ours.suggestions(name, {}, trials=size, asked=3 if name in SLOW else asked)) for name in ALONE]
    if nni is not None:
        found.append(("NNI tpe", peers.run(PEERS / "nni_suggest.py", str(size), str(asked), python=nni)))
    return found


def assess_rows(*, trials: int, reports: int) -> list[Row]:
    rows = []
    for name, algorithm in ASSESSORS.items():
        if any(option.is_required for option in algorithm.options):
            continue
        times = sorted(ours.decisions(name, {}, trials=trials, reports=reports)["s"])
        worst = times[int(len(times) * 0.99)]
        mean = sum(times) / len(times)
        rows.append({"assess": name, "mean, µs": round(1e6 * mean, 2), "99 of 100 within, µs": round(1e6 * worst, 1)})
    return rows


def _ms(found: dict[str, Any]) -> float:
    """Of asking and telling; nan where there is an error."""
    if "s" not in found:
        return float("nan")
    return 1000 * float(median(asked + told for asked, told in zip(found["s"], found["told_s"], strict=True)))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.suggest", description=__doc__, allow_abbrev=False)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 1_000, 10_000], help="trials before a suggestion")
    parser.add_argument("--asked", type=int, default=20, help="suggestions timed at each (default: 20)")
    parser.add_argument("--rounds", type=int, default=5, help="of everything, interleaved (default: 5)")
    parser.add_argument("--peers-python", action="append", default=[], metavar="nni=PYTHON", help="one that has NNI")
    options = parser.parse_args()
    pythons = dict(one.split("=", 1) for one in options.peers_python)
    machine = describe()
    rows = suggest_rows(options.sizes, asked=options.asked, rounds=options.rounds, nni=pythons.get("nni"))
    trials, reports = ASSESSED
    rows += assess_rows(trials=trials, reports=reports)
    command = f"python -m benchmarks.suggest --asked {options.asked} --rounds {options.rounds}"
    command += "".join(f" --peers-python {name}=PYTHON" for name in pythons)
    save("suggest", command=command, machine=machine, rows=rows, notes=NOTES, of_rounds=options.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())

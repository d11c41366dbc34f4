"""One method on one task with one seed: ``python -m benchmarks.search.one`` reads jobs, one JSON object a line.

Each answer is one JSON line too. Peers that want another interpreter are run so.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.search import clock
from benchmarks.search.outcome import Limits, Outcome
from benchmarks.search.task import Task, load_file, loss_of

PEER_MODULES = {"optuna": "benchmarks.search.peers_optuna", "syne": "benchmarks.search.peers_syne"}
SHARES = 100  # of the budget at which the loss so far is noted


def kind_of(task: Task) -> str:
    """black_box, multi_fidelity (its trials report epochs) or multi_objective."""
    if len(task.objectives) > 1:
        return "multi_objective"
    return "multi_fidelity" if task.max_epochs > 1 else "black_box"


def run(job: dict[str, Any], task: Task) -> dict[str, Any]:
    """``curve``: the loss so far after each hundredth of the budget.

    The budget is a number of trials, or of mean full trainings of each worker, with which the simulated time ends.
    """
    if kind_of(task) == "multi_fidelity":
        limits = Limits(workers=job["workers"], horizon_s=job["budget"] * task.full_seconds)
    else:
        limits = Limits(workers=1, trials=int(job["budget"]))
    outcome = _run(job, task, limits)
    return {
        "curve": _curve(outcome, task, limits),
        "trials": outcome.trials,
        "epochs": len(outcome.evaluations),
        "own_s": round(outcome.own_s, 3),
        "suggest_s": round(outcome.suggest_s, 3),
        "choice": outcome.choice,
    }


def _run(job: dict[str, Any], task: Task, limits: Limits) -> Outcome:
    method, seed = job["method"], job["seed"]
    library = method.partition("_")[0]
    if library in PEER_MODULES:
        peer = import_module(PEER_MODULES[library]).make(method, task, seed)
        return clock.run(peer, task, limits, seed=seed)
    from benchmarks.search.ours import run_ours  # not importable where only a peer is

    return run_ours(method, task, limits, seed=seed)


def _curve(outcome: Outcome, task: Task, limits: Limits) -> list[float | None]:
    """JSON has no infinity: None where nothing is known yet."""
    horizon_s = limits.horizon_s
    total = horizon_s if horizon_s is not None else limits.trials or 0
    curve: list[float | None] = []
    seen: list[dict[str, float]] = []
    place = 0
    evaluations = sorted(outcome.evaluations, key=lambda e: e.at)
    single, best = len(task.objectives) == 1, float("inf")
    for share in range(1, SHARES + 1):
        limit = total * share / SHARES
        before = place
        while place < len(evaluations) and (evaluations[place].at if horizon_s is not None else place + 1) <= limit:
            place += 1
        if place > before:
            fresh = [e.values for e in evaluations[before:place]]
            seen += fresh
            best = min(best, loss_of(task, fresh)) if single else loss_of(task, seen)
        curve.append(None if best == float("inf") else round(best, 6))
    return curve


def main() -> None:
    tasks: dict[tuple[str, str], Task] = {}
    files: dict[str, dict[str, Any]] = {}
    for line in sys.stdin:
        job = json.loads(line)
        key = (job["file"], job["task"])
        if key not in tasks:
            if job["file"] not in files:
                files[job["file"]] = load_file(Path(job["file"]))
            tasks[key] = files[job["file"]][job["task"]]()
        sys.stdout.write(json.dumps(run(job, tasks[key])) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

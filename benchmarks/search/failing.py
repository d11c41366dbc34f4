"""How well the search does where some parameters make trials fail: ``python -m benchmarks.search.failing --seeds 4``.

Tuners run on the tasks of ``failing_tasks`` without epochs, advisors on those with epochs; 100 trials begin, four at a
time. ``failed`` is the share of failed ones among those after the first 30, ``best`` the least loss of the others, the
mean over the seeds; random search says what both are without a model.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.search.failing_tasks import INSIDE, TASKS
from benchmarks.search.outcome import Limits, Outcome
from benchmarks.search.report import provenance
from benchmarks.search.roles import CHOSEN, FAILING_CHOSEN, FREE

BEGUN, LEARNING, WORKERS = 100, 30, 4
INSIDE_LIMIT = 0.10  # of the trials after the first ``LEARNING``, where the best lies inside what works
RANDOM = "random"
TUNERS = (RANDOM, "auto", "tpe", "gp", "cma_es", "nsga2", "nsga3", "evolution")
ADVISORS = tuple(f"advisor:{name}" for name in ("auto", "bohb", "hyperband", "asha_promote", "pbt", "pb2"))
Job = tuple[str, str, int]


def main(arguments: list[str] | None = None) -> int:
    options = _options().parse_args(arguments)
    names = options.only.split(",") if options.only else list(TASKS)
    methods = options.methods.split(",") if options.methods else [*TUNERS, *ADVISORS]
    jobs = [(m, t, seed) for t in names for m in methods if _fits(m, t) for seed in range(options.seeds)]
    os.environ["OMP_NUM_THREADS"] = "1"  # before the libraries are imported
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.processes, mp_context=spawn) as pool:
        found = dict(zip(jobs, pool.map(run, jobs, chunksize=1), strict=True))
    result = provenance(sys.argv[1:] if arguments is None else arguments, program="benchmarks.search.failing")
    result["tasks"] = summary(found)
    text = table(result)
    print(text)
    if options.out is not None:
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        options.out.with_suffix(".md").write_text(text, encoding="utf-8")
    return 0


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search.failing", description=__doc__)
    parser.add_argument("--only", default="", help="names of tasks, with commas; default: all")
    parser.add_argument("--methods", default="", help="tuners and advisor:NAME, with commas; default: all")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--out", type=Path, help="FILE.json; FILE.md is written beside it")
    return parser


def _fits(method: str, task: str) -> bool:
    return method == RANDOM or method.startswith("advisor:") == task.endswith("_epochs")


# ── one run ─────────────────────────────────────────────────────────────────────────────────────
def run(job: Job) -> dict[str, float]:
    from benchmarks.search.ours import run_ours

    method, name, seed = job
    return figures(run_ours(method, TASKS[name](), Limits(workers=WORKERS, trials=BEGUN, begun=BEGUN), seed=seed))


def figures(outcome: Outcome) -> dict[str, float]:
    begun = min(outcome.trials, BEGUN)
    failed = [number for number in outcome.failed if LEARNING < number <= BEGUN]
    losses = [e.values["loss"] for e in outcome.evaluations if e.trial <= BEGUN]
    return {
        "failed": len(failed) / max(1, begun - LEARNING),
        "failed_in_all": len([number for number in outcome.failed if number <= BEGUN]),
        "best": min(losses, default=float("inf")),
        "processor_s": outcome.processor_s,
    }


# ── of all ──────────────────────────────────────────────────────────────────────────────────────
def summary(found: dict[Job, dict[str, float]]) -> dict[str, Any]:
    """{task: {"kind", "methods": {method: means over the seeds, and whether they are as they should be}}}."""
    runs: dict[str, dict[str, list[dict[str, float]]]] = defaultdict(lambda: defaultdict(list))
    for (method, task, _), one in found.items():
        runs[task][method].append(one)
    tasks = {}
    for task, by_method in runs.items():
        kind = TASKS[task]().kind
        means = {
            method: {key: round(float(np.mean([one[key] for one in ones])), 4) for key in ones[0]}
            for method, ones in by_method.items()
        }
        tasks[task] = {
            "kind": kind,
            "methods": {
                method: mean | {"as_it_should": _is_good(kind, mean, means.get(RANDOM))}
                for method, mean in means.items()
            },
        }
    return tasks


def _is_good(kind: str, mean: dict[str, float], random: dict[str, float] | None) -> bool | None:
    """None where random search is not there to compare with."""
    if kind == INSIDE:
        return mean["failed"] <= INSIDE_LIMIT
    if random is None:
        return None
    return mean["failed"] <= random["failed"] and mean["best"] <= random["best"]


def table(result: dict[str, Any]) -> str:
    where, page = result["machine"], "../../docs/search-quality.md#parameters-that-make-trials-fail"
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    parts = [
        "# Search where some parameters make trials fail\n",
        f"`{result['command']}`\n",
        f"{where['processor']}, {where['cores']} cores, {where['date']}; {versions}.\n",
        f"What the figures mean: [search-quality.md]({page}).\n",
        "| task | its part | method | failed after 30 | failed in all | best | processor s |",
        "|---|---|---|---|---|---|---|",
    ]
    for task, found in result["tasks"].items():
        role = CHOSEN if task in FAILING_CHOSEN else FREE
        for method, one in found["methods"].items():
            mark = " (!)" if one["as_it_should"] is False and method != RANDOM else ""
            cells = [f"{one['failed']:.1%}{mark}", f"{one['failed_in_all']:.1f}", f"{one['best']:.4f}"]
            parts.append(f"| {task} | {role} | {method} | " + " | ".join(cells) + f" | {one['processor_s']:.1f} |")
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    raise SystemExit(main())

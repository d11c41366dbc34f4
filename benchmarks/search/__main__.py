"""How well the search searches: ``python -m benchmarks.search --workers 4 --seeds 10 --tuner auto --out FILE.json``.

Every method runs on every task with every seed on a simulated clock; the project's own ones through its dispatcher.
What was computed once for (method, task, seed) is kept in ``--cache`` and not computed again.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from benchmarks.search import report, scoring
from benchmarks.search.cache import Cache
from benchmarks.search.one import PEER_MODULES, kind_of
from benchmarks.search.pool import run_jobs
from benchmarks.search.task import load_file

OWN_TASKS = Path(__file__).parent / "tasks.py"
PEERS = {
    "black_box": (
        "optuna_random", "optuna_tpe", "optuna_tpe_multivariate", "optuna_gp", "optuna_cmaes", "optuna_auto",
        "syne_bore", "syne_cqr",
    ),
    "multi_fidelity": (
        "optuna_random", "optuna_tpe", "optuna_tpe_multivariate", "optuna_random+median", "optuna_tpe+median",
        "optuna_tpe+halving", "optuna_tpe+hyperband", "syne_asha", "syne_bohb", "syne_asha_bore", "syne_asha_cqr",
    ),
    "multi_objective": ("optuna_random", "optuna_tpe", "optuna_tpe_multivariate", "optuna_nsga2", "optuna_gp"),
}  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    options = _options().parse_args(arguments)
    makers = load_file(options.tasks)
    wanted = options.only.split(",") if options.only else list(makers)
    kinds = {name: kind_of(makers[name]()) for name in wanted}
    if options.kinds:
        kinds = {name: kind for name, kind in kinds.items() if kind in options.kinds.split(",")}
    jobs = _jobs(options, kinds)
    cache = Cache(options.cache)
    run_jobs(jobs, cache, processes=options.processes, pythons=_pythons(options))
    runs = [(job, found) for job in jobs if (found := cache.get(job)) is not None]
    result = scoring.summary(runs, kinds)
    result |= report.provenance(sys.argv[1:] if arguments is None else arguments)
    text = report.tables(result)
    print(text)
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        options.out.with_suffix(".md").write_text(text, encoding="utf-8")
        report.plot(result, options.out.with_suffix(".png"))
    return 0


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search", description=__doc__, allow_abbrev=False)
    parser.add_argument("--tasks", type=Path, default=OWN_TASKS, help="file with TASKS (default: the project's own)")
    parser.add_argument("--only", default="", help="names of tasks, with commas; default: all of the file")
    parser.add_argument("--kinds", default="", help="black_box, multi_fidelity, multi_objective; with commas")
    parser.add_argument("--workers", type=int, default=4, help="of tasks with epochs; the others run one at a time")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--tuner", action="append", default=[], help="may be repeated")
    parser.add_argument("--assessor", default="", help="beside the tuners, on tasks with epochs; default: none")
    parser.add_argument("--advisor", action="append", default=[], help="on tasks with epochs; may be repeated")
    parser.add_argument("--peers", nargs="?", const="all", default="", help="all (default), or names, with commas")
    parser.add_argument("--syne-python", default="", help="an interpreter that has syne-tune; its methods run there")
    parser.add_argument("--budget", type=int, default=100, help="trials of tasks without epochs")
    parser.add_argument(
        "--trainings", type=float, default=10.0, help="budget of the others: mean full trainings a worker"
    )
    parser.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "tuner-service" / "search-benchmark")
    parser.add_argument("--out", type=Path, help="FILE.json; FILE.md and FILE.png are written beside it")
    return parser


def _jobs(options: argparse.Namespace, kinds: dict[str, str]) -> list[dict[str, Any]]:
    jobs = []
    for task, kind in kinds.items():
        for method in _methods(options, kind):
            for seed in range(options.seeds):
                job = {"file": str(options.tasks.resolve()), "task": task, "method": method, "seed": seed}
                job |= {"workers": options.workers if kind == "multi_fidelity" else 1}
                jobs.append(job | {"budget": options.trainings if kind == "multi_fidelity" else options.budget})
    return jobs


def _methods(options: argparse.Namespace, kind: str) -> list[str]:
    steps = kind == "multi_fidelity"
    methods = [f"{t}+{options.assessor}" if options.assessor and steps else t for t in options.tuner]
    methods += [f"advisor:{name}" for name in options.advisor if steps]
    if options.peers:
        peers = PEERS[kind] if options.peers == "all" else options.peers.split(",")
        methods += [p for p in peers if p in PEERS[kind] and (options.syne_python or not p.startswith("syne"))]
    return methods


def _pythons(options: argparse.Namespace) -> dict[str, str]:
    return {library: options.syne_python if library == "syne" else sys.executable for library in PEER_MODULES}


if __name__ == "__main__":
    raise SystemExit(main())

"""The documentation's scripts under random search and under each advisor, with a real service that is killed.

A trial has succeeded only where it was trained to its end, none fails, and so the best is one that was trained wholly.

    python -m tests.acceptance.documented_campaign [--only hyperband] [--kills 12] [--rounds 3] [--seed 1]
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

from tests.acceptance.campaign import TARGETS, Search, search, wait_for_end

ROOT = Path(__file__).resolve().parents[2]
EPOCHS = 9
# How a script leaves its loop when it is told to stop, and what stands behind that.
WAYS = {"break": "break", "return": "return", "exit": "raise SystemExit"}
TRAIN = """
import math, random, time

def train(lr):
    time.sleep(0.01)
    loss = abs(math.log10(lr) + 2) + 0.1 * random.random()
    return loss, 1 - loss

random.seed(5)
"""
RUNGS = {"min_step": 1, "max_step": EPOCHS, "reduction_factor": 3}
POPULATION = {"population_size": 3, "interval": 3, "max_step": EPOCHS, "explored": "lr"}
CASES: dict[str, dict[str, Any]] = {
    "random": {"tuner": {"name": "random"}},
    "hyperband": {"advisor": {"name": "hyperband", "args": RUNGS}},
    "asha_promote": {"advisor": {"name": "asha_promote", "args": RUNGS}},
    "bohb": {"advisor": {"name": "bohb", "args": {**RUNGS, "min_results": 3}}},
    "pbt": {"advisor": {"name": "pbt", "args": POPULATION}},
    "pb2": {"advisor": {"name": "pb2", "args": POPULATION}},
    "auto": {"advisor": {"name": "auto"}},
}


def first_script(way: str) -> str:
    """Of the page on training scripts, with a training that takes a moment."""
    page = (ROOT / "docs" / "writing-a-training-script.md").read_text(encoding="utf-8")
    found = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert found is not None
    assert "            break\n" in found[1]
    script = found[1].replace("            break\n", f"            {WAYS[way]}\n")
    return f"{TRAIN}\ndef main():\n{textwrap.indent(script, '    ')}\nmain()\n"


def an_experiment(case: str, *, trials: int, deterministic: bool) -> dict[str, Any]:
    return {
        "name": case,
        "seed": 7,
        "objective": {"metric": "accuracy", "goal": "maximize"},
        "search_space": {
            "lr": {"_type": "loguniform", "_value": [0.0001, 1]},
            "epochs": {"type": "const", "value": EPOCHS},
        },
        "budget": {"trials": trials, "parallel": 3},
        "deterministic": deterministic,
        "trial": {"code": ".", "command": "python train.py", "stop_grace": "5s"},
        **CASES[case],
    }


def check(content: dict[str, Any], *, way: str, kills: int, seed: int) -> dict[str, int]:
    """How many trials ended how, after so many kills; AssertionError where one of them is not what it says."""
    rng = random.Random(seed)
    with search(content, script=first_script(way)) as made:
        for _ in range(kills):
            time.sleep(rng.uniform(0.05, 0.6))
            if made.show()["status"] == "completed":
                break
            target = rng.choice(TARGETS)
            if made.kill(target, rng) and target == "service":
                made.resume()
        wait_for_end(made, deadline_s=300)
        check_trials(made)
        return dict(made.show()["counts"])


def check_trials(made: Search) -> None:
    trials = json.loads(made.tuner("trials", made.id, "--metrics", "-o", "json"))
    whole = {trial["number"] for trial in trials if _epochs(trial, trials) >= set(range(EPOCHS))}
    for trial in trials:
        said = f"trial {trial['number']} is {trial['status']} ({trial['reason']}): {trial['message']}"
        assert trial["status"] in {"succeeded", "early_stopped"}, said
        assert trial["status"] != "succeeded" or trial["number"] in whole, f"{said}, and was not trained to its end"
    assert made.show()["best"]["number"] in whole


def _epochs(trial: dict[str, Any], trials: list[dict[str, Any]]) -> set[int]:
    """That it was trained for, those of the trial it was forked from included."""
    own = {report["step"] for report in trial["metrics"] if report["step"] is not None}
    source = next((other for other in trials if other["number"] == trial["forked_from"]), None)
    return (
        own if source is None else own | {step for step in _epochs(source, trials) if step < min(own, default=EPOCHS)}
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=CASES, action="append")
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--trials", type=int, default=9)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    failed = 0
    for seed in range(arguments.seed, arguments.seed + arguments.rounds):
        for case in arguments.only or CASES:
            for deterministic in (False, True):
                way = random.Random(f"{seed}{case}{deterministic}").choice(sorted(WAYS))
                content = an_experiment(case, trials=arguments.trials, deterministic=deterministic)
                try:
                    found = str(check(content, way=way, kills=arguments.kills, seed=seed))
                except AssertionError as error:
                    failed, found = failed + 1, str(error)
                print(f"{case}, deterministic {deterministic}, {way}, seed {seed}: {found}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

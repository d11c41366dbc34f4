"""A PostgreSQL server is killed and started again, time after time, while the trials of a search report to it.

At the end every report of every trial is there once, each trial ran once and to its end, and what a reader had been
shown is what is there.

    python -m tests.restarts_campaign --restarts 20 --seed 1
"""

from __future__ import annotations

import json
import random
import sys
import time
from typing import Any

from tests.acceptance.campaign import DATABASE, Search, search, wait_for_end
from tests.postgresql import a_server
from tests.rounds import campaign_parser

TRIALS = 4
STEP_S = 0.004
SCRIPT = """
import time
import trials

with trials.init() as trial:
    for step in range({steps}):
        trial.report(step=step, loss=trial.parameters["x"] + 1 / (step + 1))
        time.sleep({pause})
    trial.report_final(loss=trial.parameters["x"])
"""


def experiment_file() -> dict[str, Any]:
    return {
        "name": "restarts",
        "seed": 3,
        "objective": {"metric": "loss"},
        "search_space": {"x": {"type": "float", "low": 0, "high": 1}},
        "tuner": {"name": "random"},
        "assessor": {"name": "median_stop", "args": {"start_step": 10**9}},
        "budget": {"trials": TRIALS, "parallel": TRIALS},
        "trial": {"code": ".", "command": "python train.py"},
    }


def run(*, restarts: int, steps: int, seed: int) -> tuple[int, int, float]:
    """How often the server was killed while reports came in, how many there are, and the seconds of it all."""
    rng, server = random.Random(seed), a_server()
    try:
        script = SCRIPT.format(steps=steps, pause=STEP_S)
        with search(experiment_file(), script=script, server=server) as made:
            begun, known = time.monotonic(), set[str]()
            for _ in range(restarts):
                time.sleep(rng.uniform(0.2, 1.5))
                if made.show()["status"] == "completed":
                    break
                known |= made.reports()
                made.kill(DATABASE, rng)
            wait_for_end(made, deadline_s=600)
            return made.kills.get(DATABASE, 0), check(made, known, steps), time.monotonic() - begun
    finally:
        server.end()


def check(made: Search, known: set[str], steps: int) -> int:
    """AssertionError where a promise was broken."""
    lost = known - made.reports()
    assert not lost, f"reports that had been shown are gone: {sorted(lost)[:5]}"
    made.check_exits()
    trials = json.loads(made.tuner("trials", made.id, "--metrics", "-o", "json"))
    assert [(trial["number"], trial["attempts"], trial["status"]) for trial in trials] == [
        (number, 1, "succeeded") for number in range(1, TRIALS + 1)
    ]
    for trial in trials:
        told = [report["step"] for report in trial["metrics"] if report["step"] is not None]
        assert told == list(range(steps)), f"trial {trial['number']} has {len(told)} of its {steps} steps"
    return sum(len(trial["metrics"]) for trial in trials)


def main() -> int:
    parser = campaign_parser("python -m tests.restarts_campaign", __doc__)
    parser.add_argument("--restarts", type=int, default=20)
    parser.add_argument("--steps", type=int, default=10_000, help="of each of the four trials")
    arguments = parser.parse_args()
    kills, reports, seconds = run(restarts=arguments.restarts, steps=arguments.steps, seed=arguments.seed)
    print(f"{kills} times killed and started again in {seconds:.0f} s: {reports} reports, each there once")
    if kills < arguments.restarts:
        print(f"the search came to its end before: {arguments.restarts - kills} are left out; give it more --steps")
    return int(kills < arguments.restarts)


if __name__ == "__main__":
    sys.exit(main())

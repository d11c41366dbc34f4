"""Two experiments, one after the other, by ``tuner run``: the first of them starts the service."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks import peers
from benchmarks.dispatch.loads import AT_ONCE, Load, figures, folder_of
from benchmarks.service import service

EXPERIMENT: dict[str, Any] = {
    "name": "dispatch",
    "seed": 1,
    "objective": {"metric": "loss"},
    "search_space": {"x": {"type": "float", "low": 0, "high": 1}},
    "tuner": {"name": "random"},
}
TRIAL = {
    "code": "code",
    "command": "python script.py",
    "metrics_pattern": r"step=(?P<step>\d+) loss=(?P<loss>\S+)",
    "final": "last",
}
REST_S = 4.0  # a person types the next command; the service is at rest by then
IDLE_EXIT_S = "6"  # longer than that, so that the agent is there for the next experiment, as it is by default


def experiment_of(load: Load, *, tuner: str = "random", isolation: str = "fork") -> dict[str, Any]:
    budget = {"trials": load.trials, "parallel": AT_ONCE}
    trial = {**TRIAL, "preload": list(load.preload), "isolation": isolation}
    return {**EXPERIMENT, "tuner": {"name": tuner}, "budget": budget, "trial": trial}


def measure(load: Load, homes: ExitStack, **choices: str) -> list[dict[str, Any]]:
    """The first experiment of a service, from the command that starts both; and the next one of the same service.

    ``choices``: as ``experiment_of`` takes them. The command is over when it has seen the experiment completed, printed
    the best trial and ended.
    """
    found = []
    with service(removed_with=homes, TUNER_AGENT_IDLE_EXIT_S=IDLE_EXIT_S) as made:
        for _ in range(2):
            with folder_of(load) as (folder, _, times):
                file = made.write(experiment_of(load, **choices), load.script(times))
                command = [str(Path(sys.executable).with_name("tuner")), "run", str(file)]
                watched = peers.timed(command, folder=folder, environment=made.environment, prints_result=False)
                found.append(figures(times, load, watched))
            time.sleep(REST_S)
    return found

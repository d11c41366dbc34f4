"""Hyperband, asynchronous successive halving and population based training on real networks, killed and resumed.

A deterministic search is run once untouched and once while its service and a trial are killed: the rows are the same,
because a trial that rests goes on from its checkpoint exactly, and a fork from that of another.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.acceptance.campaign import DIGITS_IMPORTS
from tests.acceptance.harness import ROOT, Home
from tests.waiting import wait_until

SCRIPT = (ROOT / "examples" / "digits" / "train.py").read_text().replace("EPOCHS = 25", "EPOCHS = 4")
SPACE = {
    "lr": {"_type": "loguniform", "_value": [0.001, 0.1]},
    "weight_decay": {"_type": "loguniform", "_value": [1e-6, 1e-3]},
    "channels": {"type": "const", "value": 4},
    "dropout": {"type": "const", "value": 0.1},
    "batch_size": {"type": "const", "value": 64},
    "optimizer": {"type": "const", "value": "adam"},
}
ADVISORS: dict[str, dict[str, Any]] = {
    "hyperband": {"max_step": 4, "reduction_factor": 2},
    "asha_promote": {"max_step": 4, "reduction_factor": 2},
    "pbt": {"population_size": 2, "interval": 2, "max_step": 4, "quantile": 0.5},
}
SEARCH_TIMEOUT_S = 240  # some dozen trainings that import torch, on a machine that others share
COMPARED = ("number", "status", "parameters", "value", "final", "forked_from")


def begin(home: Home, advisor: str) -> None:
    home.begin(
        SCRIPT,
        objective={"metric": "accuracy", "goal": "maximize"},
        search_space=SPACE,
        tuner=None,
        advisor={"name": advisor, "args": ADVISORS[advisor]},
        budget={"trials": 4, "parallel": 2},
        deterministic=True,
        trial={"stop_grace": "10s", "preload": DIGITS_IMPORTS},
    )


def rows(home: Home) -> list[dict[str, Any]]:
    found = []
    for trial in home.trials():
        seen = {m["step"]: m["values"] for m in trial["metrics"] if m["step"] is not None}
        found.append({name: trial[name] for name in COMPARED} | {"metrics": sorted(seen.items())})
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "advisor",
    ["asha_promote", *(pytest.param(name, marks=pytest.mark.campaign) for name in ADVISORS if name != "asha_promote")],
)
def test_trials_rest_and_go_on_exactly_whatever_is_killed(home: Home, advisor: str) -> None:
    begin(home, advisor)
    wait_until(lambda: home.show()["status"] == "completed", timeout_s=SEARCH_TIMEOUT_S)
    untouched, attempts = rows(home), home.attempts()
    goes_on = any(attempt > 1 for _, attempt in attempts)
    assert any(row["forked_from"] for row in untouched) if advisor == "pbt" else goes_on

    begin(home, advisor)
    wait_until(lambda: home.pids("trial"), timeout_s=SEARCH_TIMEOUT_S)
    home.kill_all("trial")
    wait_until(lambda: len(home.trials()) >= 3, timeout_s=SEARCH_TIMEOUT_S)
    home.kill_all("service")
    home.serve()
    wait_until(lambda: home.show()["status"] == "completed", timeout_s=SEARCH_TIMEOUT_S)
    assert rows(home) == untouched

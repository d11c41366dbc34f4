"""A search whose space its objective defines by running, killed while the space grows."""

from __future__ import annotations

from typing import Any

import pytest

from tests.acceptance.harness import Home
from tests.waiting import wait_until

OBJECTIVE = """
import time
from trials.integrations.optuna import run

def objective(trial):
    kind = trial.suggest_categorical("kind", ["sgd", "adam"])
    lr = trial.suggest_float("lr", 1e-4, 1e-1, log=True)
    momentum = trial.suggest_float("momentum", 0, 1) if kind == "sgd" else 0.5
    layers = trial.suggest_int("layers", 1, 3)
    units = [trial.suggest_int(f"units_{layer}", 4, 64) for layer in range(layers)]
    loss = (momentum - 0.3) ** 2 + lr + sum(units) / 1000
    for step in range(3):
        time.sleep(0.05)
        trial.report(loss + 1 / (step + 1), step)
    return loss

run(objective)
"""


def branches(parameters: dict[str, Any]) -> set[str]:
    """What the objective asks for where it is given these."""
    asked = {"kind", "lr", "layers"} | {f"units_{layer}" for layer in range(parameters["layers"])}
    return asked | ({"momentum"} if parameters["kind"] == "sgd" else set())


@pytest.mark.slow
def test_a_space_that_grows_is_the_same_search_after_every_kill(home: Home) -> None:
    trial = {"define_by_run": True, "max_attempts": 3}
    home.begin(OBJECTIVE, search_space={}, tuner="tpe", budget={"trials": 12, "parallel": 2}, trial=trial)
    for revisions, target in ((3, "service"), (6, "worker"), (8, "agent"), (9, "service")):
        wait_until(lambda at_least=revisions: len(home.revisions()) >= at_least)
        home.kill_all(target)
        home.serve()
    home.completed()

    spaces = [revision["search_space"] for revision in home.revisions()]
    assert spaces[0] == {}
    assert set(spaces[-1]) >= {"kind", "lr", "layers", "units_0"}
    assert spaces[-1]["momentum"]["when"] == {"kind": "sgd"}
    for ended in home.trials():
        assert ended["status"] == "succeeded"
        assert branches(ended["parameters"]) <= set(ended["parameters"])
    home.tuner("serve", "--stop")
    assert "the same answer" in home.tuner("doctor", "--replay", home.id)


def test_a_misspelt_name_is_a_new_parameter_only_where_that_is_asked_for(home: Home) -> None:
    home.begin(OBJECTIVE, search_space={"kid": {"type": "bool"}}, tuner="random", budget={"trials": 1, "parallel": 1})
    home.reached("paused")
    failed = home.trials()[0]

    assert failed["status"] == "failed"
    assert len(home.revisions()) == 1
    assert "add to search_space" in home.tuner("logs", f"{home.id}/1", "--stderr")

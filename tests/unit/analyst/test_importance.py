"""How much each parameter matters: as Optuna's PED-ANOVA says, whatever the parameters are."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from tuner_service.analyst.importance import TRIALS_LEAST, importance
from tuner_service.domain.search_space import SearchSpace, parse_search_space
from tuner_service.domain.trial import Parameters

SPACE = parse_search_space(
    {
        "x": {"type": "float", "low": -1, "high": 1},
        "noise": {"type": "float", "low": -1, "high": 1},
        "option": {"type": "categorical", "choices": ["a", "b"]},
        "only": {"type": "const", "value": 3},
        "inner": {"type": "int", "low": 0, "high": 5, "when": {"option": "b"}},
    }
)
EVERY_KIND = parse_search_space(
    {
        "x": {"type": "float", "low": -1, "high": 1},
        "lr": {"_type": "loguniform", "_value": [1e-5, 1]},
        "q": {"_type": "quniform", "_value": [0, 10, 0.5]},
        "ql": {"_type": "qloguniform", "_value": [1, 100, 1]},
        "n": {"_type": "normal", "_value": [0, 1]},
        "i": {"type": "int", "low": 1, "high": 1000, "log": True},
        "j": {"type": "int", "low": 0, "high": 7},
        "st": {"type": "float", "low": 0, "high": 1, "step": 0.05},
        "o": {"type": "categorical", "choices": ["a", "b", "c"]},
        "ord": {"type": "ordinal", "choices": [1, 2, 4]},
        "inner": {"type": "int", "low": 0, "high": 5, "when": {"o": "b"}},
        "p": {"type": "permutation", "choices": ["a", "b", "c"]},
        "s": {"type": "subset", "choices": ["u", "v", "w"]},
        "l": {
            "_type": "choice",
            "_value": [{"_name": "none"}, {"_name": "conv", "k": {"_type": "choice", "_value": [3, 5]}}],
        },
    }
)


def drawn(space: SearchSpace, count: int) -> list[Parameters]:
    rng = random.Random(2)
    return [space.sample(rng) for _ in range(count)]


def test_the_parameter_that_matters_has_the_largest_share() -> None:
    parameters = drawn(SPACE, 200)
    shares = importance(SPACE, parameters, [p["x"] ** 2 for p in parameters])

    assert next(iter(shares)) == "x"
    assert shares["x"] > 0.6
    assert sum(shares.values()) == pytest.approx(1)
    assert set(shares) == {"x", "noise", "option", "inner"}


def test_trials_outside_the_space_are_left_out() -> None:
    parameters = drawn(SPACE, 50)
    values = [p["x"] ** 2 for p in parameters]
    strays: list[dict[str, Any]] = [{"x": 7}, {}, {"else": 1}]

    assert importance(SPACE, [*parameters, *strays], [*values, -9.0, -9.0, -9.0]) == importance(
        SPACE, parameters, values
    )


def test_where_every_trial_is_as_good_nothing_matters() -> None:
    shares = importance(SPACE, drawn(SPACE, 30), [1.0] * 30)
    assert set(shares.values()) == {0.0}


def test_a_parameter_that_few_trials_have_is_not_judged() -> None:
    parameters = [p for p in drawn(SPACE, 200) if p["option"] == "a"]
    rare = [p for p in drawn(SPACE, 200) if p["option"] == "b"][: TRIALS_LEAST - 1]
    every = [*parameters, *rare]
    assert "inner" not in importance(SPACE, every, [p["x"] for p in every])


@pytest.mark.parametrize("trials", [20, 150])
def test_shares_are_those_of_optuna(trials: int) -> None:
    optuna = pytest.importorskip("optuna")
    from tuner_service.tuners.optuna_model import Components, frozen
    from tuner_service.tuners.trial_notes import FINISHED, TrialNote

    parameters = drawn(EVERY_KIND, trials)
    losses = [round(p["x"] ** 2 + abs(p["j"] - 3) * 0.1 + (p["o"] == "b") * 0.2, 2) for p in parameters]
    components = Components(EVERY_KIND)
    stored = []
    for number, (given, loss) in enumerate(zip(parameters, losses, strict=True)):
        flat = EVERY_KIND.flatten(given)
        assert flat is not None
        note = TrialNote(number=number, parameters=given, state=FINISHED, values=(loss,))
        stored.append(frozen(note, components.of(flat), [math.inf]))
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    expected: dict[str, float] = {}
    for name in dict.fromkeys(name for trial in stored for name in trial.params):
        having = [trial for trial in stored if name in trial.params]
        if len(having) < TRIALS_LEAST:
            continue
        study = optuna.create_study()
        study.add_trials(having)
        found = optuna.importance.PedAnovaImportanceEvaluator().evaluate(study, params=[name])
        path = name.partition("#")[0]
        expected[path] = expected.get(path, 0.0) + found[name] * len(having) / trials
    total = sum(expected.values())

    assert importance(EVERY_KIND, parameters, losses) == pytest.approx({k: v / total for k, v in expected.items()})

"""An experiment as a study of Optuna's: what is written there, Optuna itself reads."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import optuna
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from tests.contract.extremes import PARAMETERS, TEXTS, VALUES
from tuner_service.exports.study import MOST_CHOICES, distributions_of, write_study

HEAD: dict[str, Any] = {
    "id": "8f3k2",
    "name": "digits",
    "objectives": [{"metric": "loss", "goal": "minimize"}],
    "ranges": {},
}
AT = "2025-06-15T15:06:40.000Z"


def a_row(number: int = 1, **fields: Any) -> dict[str, Any]:
    plain = {"number": number, "id": f"8f3k2/{number}", "status": "succeeded", "reason": "final_metric", "message": ""}
    more = {"source": "tuner", "parameters": {"lr": 0.1}, "final": {"loss": 0.5}, "value": 0.5, "inputs": {}}
    return plain | more | {"created_at": AT, "started_at": AT, "ended_at": AT, "reports": []} | fields


def written(*rows: dict[str, Any], **head: Any) -> bytes:
    target = io.BytesIO()
    write_study(HEAD | head, lambda: iter(rows), target)
    return target.getvalue()


def study(folder: Path, *rows: dict[str, Any], **head: Any) -> optuna.Study:
    file = folder / "study.log"
    file.write_bytes(written(*rows, **head))
    storage = JournalStorage(JournalFileBackend(str(file)))
    return optuna.load_study(study_name=HEAD["name"], storage=storage)


def test_optuna_reads_trials_with_their_reports_in_their_order(tmp_path: Path) -> None:
    rows = [
        a_row(1, reports=[[1, 0.9], [2, "NaN"], [3, "Infinity"]], final={"loss": 0.25, "size": 3}, value=0.25),
        a_row(2, status="early_stopped", value=0.75, final={}),
        a_row(3, status="failed", value=None, final={}, message="it broke", reason="crashed"),
        a_row(4, status="running", value=None, final={}, ended_at=None),
        a_row(5, status="waiting", value=None, final={}, started_at=None, ended_at=None),
        a_row(6, status="canceled", value=None, final={}, started_at=None),
    ]
    found = study(tmp_path, *rows)

    states = [trial.state.name for trial in found.trials]
    assert states == ["COMPLETE", "PRUNED", "FAIL", "RUNNING", "WAITING", "FAIL"]
    first = found.trials[0]
    assert (first.value, first.params, found.best_trial.number) == (0.25, {"lr": 0.1}, 0)
    assert first.intermediate_values[1] == 0.9
    assert math.isnan(first.intermediate_values[2])
    assert first.intermediate_values[3] == math.inf
    assert first.user_attrs["final.size"] == 3
    assert found.trials[1].value == 0.75
    assert found.trials[2].user_attrs["message"] == "it broke"
    assert found.user_attrs == {"experiment": "8f3k2"}
    assert found.metric_names == ["loss"]


def test_a_study_goes_on_in_optuna(tmp_path: Path) -> None:
    found = study(tmp_path, *(a_row(n, parameters={"lr": 0.1 * n}, final={"loss": n}) for n in range(1, 12)))
    found.sampler = optuna.samplers.TPESampler(seed=1)
    found.optimize(lambda trial: trial.suggest_float("lr", 0.01, 2.0), n_trials=3)

    assert len(found.trials) == 14


def test_several_objectives_are_several_directions(tmp_path: Path) -> None:
    objectives = [{"metric": "loss", "goal": "minimize"}, {"metric": "accuracy", "goal": "maximize"}]
    found = study(
        tmp_path,
        a_row(1, final={"loss": 1, "accuracy": 0.5}),
        a_row(2, final={"loss": 2}),
        a_row(3, status="early_stopped", value=3, final={}),
        objectives=objectives,
    )

    assert [direction.name for direction in found.directions] == ["MINIMIZE", "MAXIMIZE"]
    assert [trial.values for trial in found.trials] == [[1, 0.5], None, None]
    assert [trial.number for trial in found.best_trials] == [0]


@pytest.mark.parametrize("value", ["NaN", None])
def test_a_result_that_is_no_number_is_a_failure_to_optuna(value: Any, tmp_path: Path) -> None:
    final = {} if value is None else {"loss": value}
    (trial,) = study(tmp_path, a_row(final=final, value=value)).trials

    assert (trial.state, trial.user_attrs["status"]) == (TrialState.FAIL, "succeeded")


@pytest.mark.parametrize(
    ("values", "known", "expected"),
    [
        ([0.5, 2.0], {}, FloatDistribution(0.5, 2.0)),
        ([1, 5], {}, IntDistribution(1, 5)),
        ([1, 2.5], {}, FloatDistribution(1, 2.5)),
        ([0.5], {"low": 0.001, "high": 1.0, "log": True, "whole": False}, FloatDistribution(0.001, 1.0, log=True)),
        ([3], {"low": 1, "high": 8, "log": True, "whole": True}, IntDistribution(1, 8, log=True)),
        ([0, 3], {"low": 1, "high": 8, "log": True, "whole": True}, IntDistribution(0, 8)),  # a trial outside
        ([1, 2], {"low": 0.0, "high": 3.0, "log": False, "whole": False}, FloatDistribution(0.0, 3.0)),
        ([0.5, -1.0], {"low": 0.1, "high": 1.0, "log": True, "whole": False}, FloatDistribution(-1.0, 1.0)),
        (["b"], {"choices": ["a", "b"]}, CategoricalDistribution(["a", "b"])),
        ([32], {"choices": [16, 32]}, CategoricalDistribution([16, 32])),
        (["c"], {"choices": ["a"]}, CategoricalDistribution(["a", "c"])),
        ([[3, 5], [1]], {}, CategoricalDistribution(["[3, 5]", "[1]"])),
        ([1, True], {}, CategoricalDistribution(["1", "true"])),
        ([None, "x"], {}, CategoricalDistribution([None, "x"])),
        ([2**60, 1], {}, CategoricalDistribution([2**60, 1])),
    ],
)
def test_a_distribution_holds_the_range_and_every_value(
    values: list[Any], known: dict[str, Any], expected: Any
) -> None:
    rows = [a_row(n, parameters={"p": value}) for n, value in enumerate(values, start=1)]

    assert distributions_of(rows, {"p": known} if known else {}) == {"p": expected}


def test_a_parameter_of_too_many_words_is_an_attribute(tmp_path: Path) -> None:
    rows = [a_row(n, parameters={"p": f"word {n}", "lr": 0.5}) for n in range(MOST_CHOICES + 1)]
    found = study(tmp_path, *rows)

    assert found.trials[3].params == {"lr": 0.5}
    assert found.trials[3].user_attrs["parameters.p"] == "word 3"


def test_a_nested_choice_has_its_parameters_beside_its_name(tmp_path: Path) -> None:
    rows = [
        a_row(1, parameters={"layer": {"_name": "conv", "k": 3}}),
        a_row(2, parameters={"layer": {"_name": "none"}}),
    ]
    found = study(tmp_path, *rows)

    assert [trial.params for trial in found.trials] == [{"layer._name": "conv", "layer.k": 3}, {"layer._name": "none"}]


def test_an_experiment_without_trials_is_an_empty_study(tmp_path: Path) -> None:
    assert study(tmp_path).trials == []


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    several=st.lists(PARAMETERS, min_size=1, max_size=3),
    name=TEXTS,
    message=TEXTS,
    choices=st.lists(VALUES, max_size=3),
)
def test_whatever_parameters_there_are_the_study_is_read(
    several: list[dict[str, Any]], name: str, message: str, choices: list[Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    rows = [a_row(n, parameters=one, message=message) for n, one in enumerate(several, start=1)]
    ranges = {key: {"choices": choices} for key in several[0]} if choices else {}
    file = tmp_path_factory.mktemp("study") / "study.log"
    file.write_bytes(written(*rows, name=name or "x", ranges=ranges))
    found = optuna.load_study(study_name=name or "x", storage=JournalStorage(JournalFileBackend(str(file))))

    assert len(found.trials) == len(several)
    for trial in found.trials:
        assert trial.state is TrialState.COMPLETE
        assert trial.params.keys() == trial.distributions.keys()

"""What is wrong with the algorithms of an experiment file is told before the experiment is created."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api_service import ApiService, a_body, an_api_service
from tuner_service.advisors.registry import ADVISORS, create_advisor
from tuner_service.api.bodies.algorithm_faults import MOST_NAMED
from tuner_service.assessors.registry import ASSESSORS
from tuner_service.domain.algorithm_options import RegisteredAlgorithm
from tuner_service.domain.experiment import Objective
from tuner_service.domain.search_space import parse_search_space
from tuner_service.tuners.registry import SOBOL_DIMENSIONS, TUNERS

NESTED = {
    "lr": {"type": "float", "low": 0, "high": 1},
    "layer": {"_type": "choice", "_value": [{"_name": "conv", "kernel": {"type": "int", "low": 1, "high": 9}}, "none"]},
}
REGISTERED = [
    (kind, algorithm)
    for kind, registered in (("tuner", TUNERS), ("assessor", ASSESSORS), ("advisor", ADVISORS))
    for algorithm in registered.values()
]


@pytest.fixture
def api() -> ApiService:
    return an_api_service()


def refusal(api: ApiService, **changed: Any) -> list[dict[str, str]]:
    body = {name: value for name, value in a_body(**changed).items() if value is not None}
    if "advisor" in changed:
        body = {name: value for name, value in body.items() if name not in {"tuner", "assessor"}}
    answer = api.client.post("/api/v1/experiments", json=body)

    assert answer.status_code == 422, answer.text
    assert api.runner.commands == []
    return list(answer.json()["errors"])


@pytest.mark.parametrize(("kind", "algorithm"), REGISTERED, ids=[f"{kind}-{a.name}" for kind, a in REGISTERED])
def test_every_option_of_every_algorithm_refuses_nonsense_at_its_place(
    api: ApiService, kind: str, algorithm: RegisteredAlgorithm
) -> None:
    for option in algorithm.options:
        for value in (None, [], {}, [None], "", "x\ny", -1, 10**400, 1e308, -1e308, {"_name": "x"}, "\ud7ff" * 2_000):
            if option.problem(value) is None:
                continue
            (error,) = refusal(api, **{kind: {"name": algorithm.name, "args": {option.name: value}}})
            assert error["pointer"].startswith(f"/{kind}/args")
            assert len(error["detail"]) < 500
    (error, *_) = refusal(api, **{kind: {"name": algorithm.name, "args": {"no such": 1}}})
    assert error["pointer"] == f"/{kind}/args/no such"
    assert all(option.name in error["detail"] for option in algorithm.options)


@pytest.mark.parametrize(
    ("kind", "name", "args", "said"),
    [
        ("assessor", "threshold", {"lower": 5, "upper": 1}, "lower (5) must not lie above upper (1)"),
        ("assessor", "curve_fitting", {"max_step": 5}, "start_step (6, its default) must not lie above max_step (5)"),
        ("advisor", "hyperband", {"min_step": 100}, "min_step (100) must lie below max_step (81, its default)"),
        ("advisor", "hyperband", {"max_step": 1}, "min_step (1, its default) must lie below max_step (1)"),
        ("advisor", "asha_promote", {"max_step": 2, "min_step": 3}, "min_step (3) must lie below max_step (2)"),
        ("advisor", "bohb", {"min_step": 82}, "; give both"),
        ("advisor", "pbt", {"max_step": 5}, "interval (5, its default) must lie below max_step (5)"),
        ("advisor", "pb2", {"interval": 101}, "interval (101) must lie below max_step (100, its default)"),
    ],
)
def test_options_that_contradict_one_another_are_refused(
    api: ApiService, kind: str, name: str, args: dict[str, Any], said: str
) -> None:
    (error,) = refusal(api, **{kind: {"name": name, "args": args}})

    assert error["pointer"].removeprefix(f"/{kind}/args/") in args
    assert said in error["detail"]


def test_what_was_accepted_before_is_built_all_the_same() -> None:
    space = parse_search_space(NESTED)

    advisor = create_advisor("hyperband", {"min_step": 100}, space=space, objective=Objective(metric="loss"))

    assert advisor.space is space


def test_a_list_outside_the_search_space_is_refused_by_item_and_parameter(api: ApiService) -> None:
    listed = [
        {"lr": 0.5, "layer": "none"},
        {"lr": 2, "layer": "none"},
        {"lr": 0.5},
        {"lr": 0.5, "layer": "none", "x": 1},
    ]

    errors = refusal(api, search_space=NESTED, tuner={"name": "batch", "args": {"parameters": listed}})

    assert [error["pointer"].removeprefix("/tuner/args/parameters") for error in errors] == [
        "/1/lr",
        "/2/layer",
        "/3/x",
    ]
    assert "2 lies outside" in errors[0]["detail"]


def test_of_a_long_list_the_first_faults_are_named(api: ApiService) -> None:
    listed = [{"lr": 2, "layer": "none"}] * 1_000

    errors = refusal(api, search_space=NESTED, tuner={"name": "batch", "args": {"parameters": listed}})

    assert len(errors) == MOST_NAMED


def test_a_list_inside_the_search_space_is_taken(api: ApiService) -> None:
    listed = [{"lr": 0.5, "layer": "none"}, {"lr": 1, "layer": {"_name": "conv", "kernel": 3}}]

    assert api.create(a_body(search_space=NESTED, tuner={"name": "batch", "args": {"parameters": listed}}))


@pytest.mark.parametrize("name", ["pbt", "pb2"])
def test_a_parameter_that_is_to_be_explored_is_one_of_the_space(api: ApiService, name: str) -> None:
    (error,) = refusal(api, search_space=NESTED, advisor={"name": name, "args": {"explored": "lr, learning_rate,"}})

    assert error["pointer"] == "/advisor/args/explored"
    assert "names 'learning_rate'" in error["detail"]
    assert error["detail"].endswith("it has: lr, layer, layer/conv/kernel")
    body = a_body(search_space=NESTED, advisor={"name": name, "args": {"explored": " layer/conv/kernel, lr"}})
    assert api.create({key: value for key, value in body.items() if key not in {"tuner", "assessor"}})


def test_a_grid_that_nobody_could_go_through_is_refused(api: ApiService) -> None:
    space = {f"x{n}": {"type": "float", "low": 0, "high": 1} for n in range(7)} | {"constraints": ["x0 <= x1"]}

    (error,) = refusal(api, search_space=space, tuner="grid")

    assert error["pointer"] == "/tuner/name"
    assert "more than 1000000 places" in error["detail"]
    assert api.create(a_body(search_space=space, tuner={"name": "grid", "args": {"points": 7}}))


def test_a_space_of_too_many_coordinates_for_a_sobol_sequence_is_refused(api: ApiService) -> None:
    items = {"type": "permutation", "choices": list(range(100))}
    space = {f"p{n}": items for n in range(SOBOL_DIMENSIONS // 100 + 1)}

    (error,) = refusal(api, search_space=space, tuner="quasi_random")

    assert error["detail"].startswith(
        "quasi_random cannot search this space: it has 21300 coordinates, more than 21201"
    )


@pytest.mark.parametrize("name", ["cma_es", "nsga2", "nsga3", "evolution"])
def test_a_generation_of_one_trial_is_refused(api: ApiService, name: str) -> None:
    """CMA-ES cannot be computed with one, which paused the experiment after its first trial."""
    (error,) = refusal(api, tuner={"name": name, "args": {"population_size": 1}})

    assert error["pointer"] == "/tuner/args/population_size"
    assert "between 2 and 10000, not 1" in error["detail"]


@pytest.mark.parametrize(
    ("tuner", "count", "pointer"),
    [
        ("gp", 5, "/tuner"),
        ({"name": "gp"}, 5, "/tuner/name"),
        ({"name": "gp", "args": {"backend": "optuna"}}, 5, "/tuner/name"),
        ({"name": "gp", "args": {"backend": "botorch"}}, 5, None),
        ("gp", 4, None),
        ("tpe", 5, None),
    ],
)
def test_more_objectives_than_gp_can_search_for_are_refused(
    api: ApiService, tuner: Any, count: int, pointer: str | None
) -> None:
    objectives = [{"metric": f"m{place}", "goal": "minimize"} for place in range(count)]
    if pointer is not None:
        (error,) = refusal(api, tuner=tuner, objective=objectives)
        assert error["pointer"] == pointer
        assert "4 objectives at most" in error["detail"]
        return
    body = {name: value for name, value in a_body(tuner=tuner, objective=objectives).items() if value is not None}
    assert api.client.post("/api/v1/experiments?dry_run=true", json=body).status_code == 200

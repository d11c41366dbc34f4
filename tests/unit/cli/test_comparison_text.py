"""Experiments side by side."""

from __future__ import annotations

from typing import Any

import pytest

from tuner_service.cli.main import main
from tuner_service.cli.output.comparison import comparison_of, comparison_text
from tuner_service.config import package_version


def a_view(name: str, **overrides: Any) -> dict[str, Any]:
    view: dict[str, Any] = {
        "id": f"id-{name}",
        "name": name,
        "status": "completed",
        "objective": {"metric": "loss", "goal": "minimize"},
        "best": {"number": 3, "value": 0.5, "parameters": {"lr": 0.1}},
        "counts": {"succeeded": 4, "failed": 1},
        "running_s": 62.0,
        "search_space": {"lr": {"type": "float", "low": 0, "high": 1}},
        "tuner": {"name": "tpe", "args": {}},
        "budget": {"trials": 4, "parallel": 1},
        "seed": 7,
        "note": "not a setting",
    }
    return view | overrides


def best(value: Any) -> dict[str, Any]:
    return {"number": 1, "value": value, "parameters": {"lr": 0.2}}


def test_settings_that_are_the_same_are_left_out() -> None:
    views = [a_view("a"), a_view("b", tuner={"name": "gp", "args": {}}, seed=8, note="other")]

    assert [row["differs"] for row in comparison_of(views)] == [
        {"tuner.name": "tpe", "seed": 7},
        {"tuner.name": "gp", "seed": 8},
    ]


def test_a_setting_that_one_of_them_does_not_have_differs() -> None:
    one, other = comparison_of([a_view("a"), a_view("b", assessor={"name": "asha", "args": {}})])

    assert one["differs"] == {"assessor.name": None, "assessor.args": None}
    assert other["differs"] == {"assessor.name": "asha", "assessor.args": {}}


def test_what_an_algorithm_may_take_and_whose_nodes_are_used_are_settings() -> None:
    views = [
        a_view("a", algorithm_timeout=60.0, executor=None),
        a_view("b", algorithm_timeout=5.0, executor={"name": "ray"}),
    ]

    assert [row["differs"] for row in comparison_of(views)] == [
        {"algorithm_timeout": 60.0, "executor.name": None},
        {"algorithm_timeout": 5.0, "executor.name": "ray"},
    ]


def test_assets_are_compared_by_name_and_short_digest() -> None:
    trials = [{"command": ["true"], "models": {}, "datasets": {"data": {"asset": f"sha256:{n}"}}} for n in "12"]
    views = [
        a_view("a", trial=trials[0], inputs={"data": "digits@1 (sha256:1)"}),
        a_view("b", trial=trials[1], inputs={"data": ["digits@2 (sha256:2)", "more@1 (sha256:3)"]}),
    ]

    assert [row["differs"] for row in comparison_of(views)] == [
        {"inputs.data": "digits@1 (sha256:1)"},
        {"inputs.data": "digits@2 (sha256:2), more@1 (sha256:3)"},
    ]


@pytest.mark.parametrize(("goal", "expected"), [("minimize", [True, False]), ("maximize", [False, True])])
def test_the_best_of_all_is_marked(goal: str, expected: list[bool]) -> None:
    objective = {"metric": "loss", "goal": goal}
    views = [a_view("a", objective=objective, best=best(0.1)), a_view("b", objective=objective, best=best(0.9))]

    assert [row["is_best"] for row in comparison_of(views)] == expected


def test_what_searches_for_something_else_is_not_ranked() -> None:
    views = [a_view("a"), a_view("b", objective={"metric": "accuracy", "goal": "maximize"})]

    assert [row["is_best"] for row in comparison_of(views)] == [False, False]
    assert "best value" in comparison_text(comparison_of(views))


@pytest.mark.parametrize("value", [None, "NaN"])
def test_what_has_no_value_yet_is_not_ranked(value: str | None) -> None:
    empty = None if value is None else best(value)
    rows = comparison_of([a_view("a", best=empty), a_view("b"), a_view("c", best=best("Infinity"))])

    assert [row["is_best"] for row in rows] == [False, True, False]
    assert comparison_text(rows)


def test_a_column_for_each() -> None:
    rows = comparison_of([a_view("a"), a_view("b", best=best(0.25), budget={"trials": 9, "parallel": 1})])

    lines = [line.split("  ") for line in comparison_text(rows).splitlines()]
    found = {line[0] or line[1]: [cell.strip() for cell in line[1:] if cell.strip()] for line in lines}
    assert found["id"] == ["id-a", "id-b"]
    assert found["best loss"] == ["0.5", "0.25 *"]
    assert found["lr"] == ["lr", "0.1", "0.2"]
    assert found["budget.trials"] == ["budget.trials", "4", "9"]


def test_a_hostile_name_stays_on_its_line() -> None:
    text = comparison_text(comparison_of([a_view("a\x1b[31m\nb"), a_view("c")]))

    assert "\x1b" not in text
    assert len(text.splitlines()) == len(comparison_text(comparison_of([a_view("a"), a_view("c")])).splitlines())


def test_the_version_is_an_option_too(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--version"])

    assert left.value.code == 0
    assert capsys.readouterr().out == f"{package_version()}\n"

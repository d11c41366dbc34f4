"""Short campaigns of kills at random moments; ``python -m tests.acceptance.campaign`` runs long ones."""

from __future__ import annotations

from typing import Any

import pytest

from tests.acceptance.campaign import (
    ISOLATIONS,
    TARGETS,
    difference,
    digits_file,
    digits_script,
    experiment_file,
    run_free,
    run_killed,
    run_untouched,
)
from tests.postgresql import a_server

TRIALS = 8  # the assessor ends some of them


@pytest.fixture(scope="module")
def content() -> dict[str, Any]:
    return experiment_file(trials=TRIALS, deterministic=True, tuner="tpe")


@pytest.fixture(scope="module")
def expected(content: dict[str, Any]) -> list[dict[str, Any]]:
    return run_untouched(content)[0]


@pytest.mark.slow
def test_a_deterministic_search_ends_with_the_same_rows_whatever_was_killed(
    content: dict[str, Any], expected: list[dict[str, Any]]
) -> None:
    for seed, isolation in enumerate(ISOLATIONS, start=1):
        this = content | {"trial": content["trial"] | {"isolation": isolation}}
        rows, kills = run_killed(this, seed=seed, most=4)
        assert kills
        assert difference(expected, rows) == "", f"seed {seed}, killed {kills}"
    assert {"succeeded", "early_stopped"} == {row["status"] for row in expected}


@pytest.mark.slow
def test_on_a_server_that_is_killed_too_the_rows_are_those_of_a_file(
    content: dict[str, Any], expected: list[dict[str, Any]]
) -> None:
    server = a_server()
    try:
        rows, kills = run_killed(content, seed=5, most=4, server=server)
    finally:
        server.end()

    assert "database" in kills
    assert difference(expected, rows) == "", f"killed {kills}"


@pytest.mark.slow
def test_nothing_is_lost_or_doubled_and_trials_run_on_when_what_surrounds_them_is_killed() -> None:
    content = experiment_file(trials=TRIALS, deterministic=False, tuner="tpe")

    assert run_free(content, seed=3, most=4, targets=("service", "worker", "agent"))


@pytest.mark.slow
def test_nothing_that_was_acknowledged_is_lost_when_trials_and_their_parents_are_killed() -> None:
    content = experiment_file(trials=TRIALS, deterministic=False, tuner="tpe")

    assert run_free(content, seed=4, most=4, targets=TARGETS)


@pytest.mark.slow
def test_training_gives_the_same_numbers_to_the_last_bit_whatever_was_killed() -> None:
    content, script = digits_file(trials=2), digits_script()
    expected, _ = run_untouched(content, script=script)

    rows, kills = run_killed(content, seed=5, most=3, script=script)

    assert kills
    assert difference(expected, rows) == "", f"killed {kills}"

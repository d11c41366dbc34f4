"""Searches in spaces of which some parameters make trials fail: how many fail, and what is found."""

from __future__ import annotations

import pytest

from benchmarks.search.failing import ADVISORS, INSIDE_LIMIT, TUNERS, run, summary, table

SLOW = {"gp"}  # its own tests show what it learns
LEARNING = [method for method in (*TUNERS, *ADVISORS) if method not in SLOW | {"random"}]
ROOM = 0.05  # one seed is shown, not a mean


@pytest.mark.parametrize("method", LEARNING)
def test_where_the_best_lies_inside_what_works_few_trials_fail(method: str) -> None:
    task = "batch_inside_epochs" if method.startswith("advisor:") else "batch_inside"
    assert run((method, task, 0))["failed"] <= INSIDE_LIMIT + ROOM


@pytest.mark.parametrize("method", ["auto", "tpe", "cma_es"])
def test_where_the_best_lies_at_the_border_the_search_comes_closer_than_chance_and_fails_no_more(method: str) -> None:
    found, random = run((method, "batch_border", 0)), run(("random", "batch_border", 0))
    assert found["best"] < random["best"]
    assert found["failed"] <= random["failed"] + ROOM


def test_the_figures_say_which_method_is_not_as_it_should_be() -> None:
    one = {"failed": 0.2, "failed_in_all": 20.0, "best": 0.1, "processor_s": 1.0}
    other = {"failed": 0.05, "failed_in_all": 9.0, "best": 0.2, "processor_s": 1.0}
    found = {("random", "batch_inside", 0): one, ("auto", "batch_inside", 0): other}
    found |= {("random", "batch_border", 0): one, ("auto", "batch_border", 0): other}
    tasks = summary(found)
    assert tasks["batch_inside"]["methods"]["auto"]["as_it_should"] is True
    assert tasks["batch_border"]["methods"]["auto"]["as_it_should"] is False
    machine = {"processor": "p", "cores": 2, "date": "2026-01-01"}
    text = table({"machine": machine, "versions": {}, "command": "c", "tasks": tasks})
    assert "| batch_border | rules were chosen on it | auto | 5.0% (!) | 9.0 | 0.2000 | 1.0 |" in text

"""What can be said of an experiment and of a node without asking anybody."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import a_search_space, a_spec
from trials.wire.inputs import Input, InputField, InputItem
from tuner_service.dispatcher.changes import TOUCHED_LIMIT, Touched
from tuner_service.domain import counting
from tuner_service.domain.errors import InputError
from tuner_service.domain.experiment import CodeOrigin, TrialTemplate
from tuner_service.domain.resources import executor_of
from tuner_service.domain.search_space import GRID_SCAN_LIMIT, parse_search_space


@pytest.mark.parametrize(("agent_id", "executor"), [("local", "local"), ("ray-7", "ray"), ("node-7", "joined")])
def test_who_has_brought_a_node_is_told_by_its_name(agent_id: str, executor: str) -> None:
    assert executor_of(agent_id) == executor


def test_one_training_is_no_search_unless_its_script_defines_the_space() -> None:
    spec = a_spec(search_space={})
    assert (spec.is_search, a_spec(search_space=a_search_space()).is_search) == (False, True)
    assert replace(spec, trial=replace(spec.trial, define_by_run=True)).is_search


def test_the_blobs_of_a_template_are_its_code_and_how_it_differs_from_what_was_committed() -> None:
    origin = CodeOrigin(commit="c", changes_digest="d")

    assert TrialTemplate(command=("x",), code_digest="b", code_origin=origin).blobs == ("b", "d")
    assert TrialTemplate(command=("x",), code_digest="b").assets == frozenset()
    given = {"data": Input(field=InputField.DATASETS, items=(InputItem(asset="b" * 64),))}
    named = TrialTemplate(command=("x",), code_asset=InputItem(asset="a" * 64), inputs=given)
    assert named.assets == {"a" * 64, "b" * 64}


def test_only_a_grid_with_empty_places_may_be_too_large_to_go_through() -> None:
    wide = {"x": {"type": "int", "low": 1, "high": GRID_SCAN_LIMIT + 1}}
    assert parse_search_space(wide).grid_fault(10) == ""
    fault = parse_search_space(wide | {"constraints": ["x > 3"]}).grid_fault(10)

    assert "more than 1000000 places" in fault


def test_a_grid_is_not_gone_through_where_its_constraints_take_minutes() -> None:
    """Nobody is answered meanwhile, and an answer that takes longer than a minute counts as none."""
    ten = {name: {"type": "int", "low": 0, "high": 9} for name in "abcdef"}
    one = "a + b + c + d + e + f >= 9"
    assert parse_search_space(ten | {"constraints": [one]}).grid_fault(10) == ""
    fault = parse_search_space(ten | {"constraints": [one, f"{one} - 1"]}).grid_fault(10)
    assert "1000000 places" in fault
    assert "34 parameters and parts" in fault
    assert (
        parse_search_space(
            ten | {"f": {"type": "int", "low": 0, "high": 4}, "constraints": [one, f"{one} - 1"]}
        ).grid_fault(10)
        == ""
    )


def test_what_is_looked_at_in_a_place_counts_conditions_and_the_largest_branch() -> None:
    branch = {"_name": "deep", "x": {"type": "bool"}, "y": {"type": "bool", "when": "x and 3 > 2"}}
    layer = {"_type": "choice", "_value": [{"_name": "none"}, branch]}
    space = parse_search_space(
        {"depth": {"type": "int", "low": 1, "high": 9, "when": {"layer": "none"}}, "layer": layer}
    )
    assert counting.looked_at(space.parameters) == (1 + 1) + (1 + 1 + 1 + 5)


def test_paths_name_the_parameters_of_nested_spaces_behind_their_option() -> None:
    nested = {"_type": "choice", "_value": [{"_name": "none"}, {"_name": "conv", "size": {"type": "bool"}}]}

    assert parse_search_space({"lr": {"type": "bool"}, "layer": nested}).paths == ("lr", "layer", "layer/conv/size")


@pytest.mark.parametrize(
    ("known", "later", "found"),
    [
        ({1, 2}, {3}, {1, 2, 3}),
        ({1}, None, None),
        (None, {1}, None),
        (set(range(TOUCHED_LIMIT)), {TOUCHED_LIMIT}, None),
        (set(range(TOUCHED_LIMIT)), {1}, set(range(TOUCHED_LIMIT))),
    ],
)
def test_what_commits_touched_adds_up_to_a_bound(
    known: set[int] | None, later: set[int] | None, found: set[int] | None
) -> None:
    touched = Touched(trials={"a": known})
    touched.add(Touched(trials={"a": later}))

    assert touched.trials == {"a": found}


def test_a_space_without_a_parameter_is_refused() -> None:
    with pytest.raises(InputError, match="needs at least one parameter"):
        parse_search_space({"constraints": []})

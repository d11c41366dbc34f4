"""A search space that grows by what scripts ask for: by a revision, before the further parameters they wait for."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import EXPERIMENT_ID
from tests.unit.dispatcher.harness import Harness
from trials.wire.records import ParametersMissingRecord, ParametersWantedRecord
from tuner_service.dispatcher import growth
from tuner_service.dispatcher.items import Queue, SearchSpaceUpdated

ALONE = {"trials": 1, "parallel": 1}
SIZE = {"type": "float", "low": 0.0, "high": 1.0}
KIND = {"type": "categorical", "choices": ["a", "b"]}
MANY = dict.fromkeys(map(str, range(2_000)), "a")


def missing(beside: dict[str, Any] | None = None, **parameters: Any) -> ParametersMissingRecord:
    return ParametersMissingRecord(parameters=parameters, beside=beside or {}, at=0.0)


def spaces(h: Harness) -> list[dict[str, Any]]:
    return [item.search_space for item in h.pending(Queue.TUNER) if isinstance(item, SearchSpaceUpdated)]


def run(h: Harness, **overrides: Any) -> None:
    h.run(trials=1, budget=ALONE, trial={"define_by_run": True}, search_space={"lr": SIZE}, **overrides)


def test_what_a_script_misses_is_a_revision_before_the_parameters_it_asks_for(h: Harness) -> None:
    run(h)
    h.report(1, missing(size=SIZE), ParametersWantedRecord(index=1, at=0.0))

    assert spaces(h) == [{"lr": SIZE, "size": SIZE}]
    kinds = [line.kind for line in h.store.queries.journal(EXPERIMENT_ID)]
    assert [kind for kind in kinds if kind in {"search_space_changed", "suggestion_requested"}] == [
        "suggestion_requested",
        "search_space_changed",
        "suggestion_requested",
    ]
    assert h.wanted() == [(1, 1)]


def test_a_branch_that_is_asked_for_twice_makes_one_revision(h: Harness) -> None:
    run(h)
    h.report(1, missing(kind=KIND), missing({"kind": "a"}, size=SIZE), missing({"kind": "a"}, size=SIZE))
    h.report(1, missing({"kind": "b"}, size=SIZE))

    assert [space.get("size", {}).get("when") for space in spaces(h)] == [None, {"kind": "a"}, None]
    assert len(spaces(h)) == 3


def test_a_space_that_is_set_twice_in_a_row_makes_one_revision(h: Harness) -> None:
    """As a client does whose connection broke: what it sends again may come before the first is committed."""
    h.run(trials=1, budget=ALONE)
    h.change_space(lr=SIZE)
    h.change_space(lr=SIZE)
    assert spaces(h) == [{"lr": SIZE}]

    h.change_space(lr=KIND)
    h.change_space(lr=SIZE)
    assert spaces(h) == [{"lr": SIZE}, {"lr": KIND}, {"lr": SIZE}]


@pytest.mark.parametrize(("before", "after"), [([0, 1], [False, True]), ([1, 2], [1.0, 2.0])])
def test_a_space_that_differs_in_types_alone_is_another_one(h: Harness, before: list[Any], after: list[Any]) -> None:
    h.run(trials=1, budget=ALONE)
    h.change_space(lr={"type": "categorical", "choices": before})
    h.change_space(lr={"type": "categorical", "choices": after})

    assert repr([space["lr"]["choices"] for space in spaces(h)]) == repr([before, after])


def test_the_space_goes_on_growing_from_the_newest_after_a_restart(h: Harness) -> None:
    run(h)
    h.report(1, missing(kind=KIND))
    h.restart()
    h.connect(h.observed(1))
    h.report(1, missing({"kind": "a"}, size=SIZE))

    assert spaces(h)[-1] == {"lr": SIZE, "kind": KIND, "size": SIZE | {"when": {"kind": "a"}}}


def test_an_exhausted_search_goes_on_when_its_space_has_grown(h: Harness) -> None:
    h.run(trials=1, budget={"trials": 3, "parallel": 2}, trial={"define_by_run": True}, search_space={"lr": SIZE})
    h.suggest_no_more()
    assert h.experiment.exhausted
    h.report(1, missing(size=SIZE))

    assert not h.experiment.exhausted


@pytest.mark.parametrize(
    ("record", "error"),
    [
        (missing(lr=SIZE | {"high": 2.0}), "lr is asked for with another range"),
        (missing(size={"type": "float", "low": 1, "high": 0}), "/size"),
        (missing(size={"type": "flat"}), "/size"),
        (missing(constraints=["lr < 1"]), "the range of constraints is no mapping"),
        (missing(size=SIZE | {"when": {"nothing": 1}}), "size"),
        (missing(MANY, **{f"p{n}": SIZE for n in range(6)}), "6 parameters beside 2000"),
    ],
)
def test_what_the_space_cannot_become_is_noted_and_changes_nothing(
    h: Harness, record: ParametersMissingRecord, error: str
) -> None:
    run(h)
    h.report(1, record)

    assert spaces(h) == []
    (noted,) = h.journal("record_rejected")
    assert error in noted["error"]


def test_a_space_does_not_grow_beyond_what_is_read_and_stored_with_each_of_its_parameters(
    h: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growth, "GROWN_BYTES", 4 * 1024)
    run(h)
    h.report(1, *(missing(**{f"x{n}": {"type": "categorical", "choices": ["a" * 1000, n]}}) for n in range(6)))

    assert list(spaces(h)[-1]) == ["lr", "x0", "x1", "x2"]
    noted = h.journal("record_rejected")
    assert len(noted) == 3
    assert "would be larger than 4 KiB; ask for fewer parameters" in noted[0]["error"]


def test_a_space_does_not_grow_while_very_many_lines_wait_for_the_tuner(
    h: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growth, "GROWING_QUEUE_LIMIT", 2)
    run(h)
    h.report(1, *(missing(**{f"x{n}": SIZE}) for n in range(4)))

    assert list(spaces(h)[-1]) == ["lr", "x0", "x1"]
    assert "2 lines wait for the tuner" in h.journal("record_rejected")[0]["error"]


def test_an_experiment_whose_space_does_not_grow_says_how_it_would(h: Harness) -> None:
    h.run(trials=1, budget=ALONE)
    h.report(1, missing(size=SIZE))

    assert spaces(h) == []
    (noted,) = h.journal("record_rejected")
    assert "trial.define_by_run" in noted["error"]


def test_the_space_that_an_experiment_begins_with_is_its_first_revision(h: Harness) -> None:
    h.run(trials=1, search_space={"lr": SIZE})

    (first,) = h.store.queries.search_space_revisions(EXPERIMENT_ID)

    assert (first.line, first.search_space) == (1, {"lr": SIZE})

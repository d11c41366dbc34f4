"""Trials column by column: what the list of trials says, in another form."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import pytest

from tests.builders import START, a_metric, a_trial, an_experiment
from tests.memory_store import MemoryStore
from tuner_service.analyst.kept_texts import KeptTexts
from tuner_service.analyst.kept_trials import KeptTrials
from tuner_service.analyst.table import TABLE_COLUMNS, TableQuestion, column_fault, table_json
from tuner_service.dispatcher.changes import Changes, MetricRow
from tuner_service.domain.errors import InputError
from tuner_service.domain.trial import Trial, TrialStatus
from tuner_service.service.questions import EXACT_DIGITS, TABLE_WIDTH
from tuner_service.service.views import moment, plain, trial_view

NOW = START + 100
NESTED = {"lr": 0.125, "layer": {"_name": "conv", "kernel": 3}}
REPORTS = [a_metric(number=number, at=START + 88.25) for number in (1, 3)]  # the first of these trials has ended
TRIALS = [
    a_trial(number=1, value=0.1, last_step=3, last_metrics={"loss": 1.0}, started_at=START, ended_at=START + 0.0625),
    a_trial(number=2, value=math.nan, parameters={"a": math.inf, "text": 'NaN " \u2028', "nested": {"b": [1, None]}}),
    a_trial(
        number=3,
        status=TrialStatus.RUNNING,
        started_at=START + 0.5,
        running_since=START + 0.5,
        last_value=math.nan,
        retry_of=1,
        source="retry",
    ),
    a_trial(
        number=4,
        status=TrialStatus.STOPPING,
        started_at=START,
        running_s=3.00049,
        running_since=START + 50,
        attempts=2,
        value=-math.inf,
    ),
    a_trial(number=5, value=1e300, running_s=1e-9, parameters={}),
    a_trial(number=6, value=0.123456789, parameters=NESTED, final={"loss": 0.123456789}),
]


def kept(trials: list[Trial], reports: Sequence[MetricRow] = REPORTS) -> KeptTrials:
    store, experiment = MemoryStore(), an_experiment()
    store.commit(
        Changes(
            experiments={experiment.id: experiment},
            trials={(t.experiment_id, t.number): t for t in trials},
            metrics=[report for report in reports if report.number in {t.number for t in trials}],
        )
    )
    found = KeptTrials(store.queries, experiment.id)
    found.refresh(lambda: None)
    return found


def table(trials: list[Trial], *columns: str, **more: Any) -> dict[str, Any]:
    def refuse(name: str) -> None:
        pytest.fail(f"{name} is not strict JSON")

    asked = TableQuestion(**{"columns": columns, "limit": 100, "now": NOW, "digits": EXACT_DIGITS, **more})
    entries = kept(trials)
    text = b"".join(table_json(entries, KeptTexts(entries), asked, began=START))
    found: dict[str, Any] = json.loads(text, parse_constant=refuse)
    return found


def decoded(column: Any) -> list[Any]:
    return column if isinstance(column, list) else [[*column["words"], None][code] for code in column["codes"]]


def test_every_cell_is_what_the_trials_own_view_says() -> None:
    found = table(TRIALS, *TABLE_COLUMNS)["columns"]
    told = {3: START + 88.25}
    views = [trial_view(trial, now=NOW, reported_at=told.get(trial.number)) for trial in TRIALS]
    for trial, view in zip(TRIALS, views, strict=True):
        view["step"] = view["last"] and view["last"]["step"]
        view["last_value"] = plain(trial.last_value)
        view["silent_s"] = 11.75 if trial.number in told else None
        view["started_s"] = None if trial.started_at is None else round(trial.started_at - START, 3)
        view["ended_s"] = None if trial.ended_at is None else round(trial.ended_at - START, 3)
    assert {name: decoded(column) for name, column in found.items()} == {
        column: [view[column] for view in views] for column in TABLE_COLUMNS
    }
    assert found["started_at"][0] == moment(START)
    assert found["reported_at"][2] == moment(START + 88.25)


@pytest.mark.parametrize("at", [-1.0, 1e300, math.inf, math.nan])
def test_a_report_with_a_time_that_is_none_is_told_as_elsewhere(at: float) -> None:
    """An earlier version took it."""
    trials = kept([a_trial(started_at=START)], [a_metric(at=at)])
    asked = TableQuestion(columns=("reported_at", "silent_s"), limit=1, now=NOW)
    told = json.loads(b"".join(table_json(trials, KeptTexts(trials), asked, began=START)))
    assert told["columns"]["reported_at"] == [moment(at)]


def test_no_trials_are_empty_columns() -> None:
    found = table([], "number", "value", "status", "parameters.lr")
    assert found["columns"] == {
        "number": [],
        "value": [],
        "status": {"words": [], "codes": []},
        "parameters.lr": [],
    }
    assert (found["trials"], found["next"]) == (0, None)


def test_a_screen_is_told_six_digits() -> None:
    found = table(TRIALS, "value", "parameters.lr", digits=6)["columns"]
    assert found["value"] == [0.1, "NaN", None, "-Infinity", 1e300, 0.123457]
    assert found["parameters.lr"][-1] == 0.125


def test_a_parameter_is_a_column_and_one_of_words_has_codes() -> None:
    found = table(TRIALS, "parameters.layer._name", "parameters.layer.kernel", "parameters.a", "final.loss")["columns"]
    assert found["parameters.layer._name"] == {"words": ["conv"], "codes": [-1, -1, -1, -1, -1, 0]}
    assert found["parameters.layer.kernel"] == [None] * 5 + [3]
    assert found["parameters.a"][1] == "Infinity"
    assert found["final.loss"][-1] == 0.123456789


def test_all_of_a_group_are_named_by_a_star_up_to_a_bound() -> None:
    assert list(table(TRIALS, "last.*", "number")["columns"]) == ["last.loss", "number"]
    wide = a_trial(number=1, parameters={f"x{place}": 1 for place in range(TABLE_WIDTH + 1)})
    with pytest.raises(InputError, match="201 columns; at most 200"):
        table([wide], "parameters.*")
    assert list(table([wide], "parameters.*", "number", members=2)["columns"]) == [
        "parameters.x0",
        "parameters.x1",
        "number",
    ]


def test_a_column_has_one_form_in_whatever_part_of_it_is_asked_for() -> None:
    trials = [a_trial(number=1, parameters={"x": 1}), a_trial(number=2, parameters={"x": "one"})]
    assert table(trials, "parameters.x", limit=1)["columns"]["parameters.x"] == {"words": [1], "codes": [0]}


@pytest.mark.parametrize("name", ["", "nonsense", "parameters.", "values.x", ".x", "\x00"])
def test_what_is_no_column_is_told_with_what_is_one(name: str) -> None:
    assert "known: number, status" in column_fault(name)

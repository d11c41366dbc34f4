from __future__ import annotations

import itertools
import math
import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import a_trial, an_attempt, an_experiment
from tuner_service.dispatcher.changes import JournalLine
from tuner_service.dispatcher.items import EncodedJson, Queue
from tuner_service.domain.rungs import Rungs
from tuner_service.domain.trial import AttemptStatus, Trial, TrialReason, TrialStatus
from tuner_service.storage import mapping, tables

MAPPED: dict[str, tuple[mapping.FieldMap[Any], set[str]]] = {
    "experiments": (mapping.EXPERIMENTS, {"spec"}),
    "trials": (mapping.TRIALS, set(mapping.RUNGS.columns)),
    "attempts": (mapping.ATTEMPTS, {"experiment_id", "number", "attempt"}),
    "journal": (mapping.JOURNAL, {"queues"}),
    "checkpoints": (mapping.CHECKPOINTS, set()),
    "algorithm_snapshots": (mapping.SNAPSHOTS, set()),
    "search_space_revisions": (mapping.REVISIONS, set()),
    "idempotency_keys": (mapping.KEYS, set()),
}


@pytest.mark.parametrize("name", MAPPED)
def test_every_field_has_a_column_and_every_column_a_field(name: str) -> None:
    mapped, apart = MAPPED[name]

    assert mapped.columns | apart == set(tables.metadata.tables[name].columns.keys())


GROWTH: tuple[dict[str, Any], ...] = (
    {"parameters": {"lr": 0.5}},
    {"metric_names": ("loss", "acc")},
    {"last_step": 7, "last_value": math.nan, "last_metrics": {"loss": math.inf}},
    {"best_value": -0.0},
    {"message": "half a character: \ud800"},
    {"status": TrialStatus.PAUSED, "reason": TrialReason.RUNG_REACHED},
    {"rungs": Rungs(until_step=3)},
    {"last_value": None},
)


def grown(trial: Trial) -> list[Trial]:
    """``trial``, and further ones, each with some fields otherwise than the one before."""
    return list(itertools.accumulate(GROWTH, lambda before, changed: replace(before, **changed), initial=trial))


def test_what_changed_of_a_row_and_what_was_there_are_the_whole_row() -> None:
    trials = grown(a_trial())
    for before, trial in itertools.pairwise(trials):
        changed = mapping.trial_in(trial, before)
        assert mapping.trial_in(before) | changed == mapping.trial_in(trial)
        assert len(changed) <= 3
    attempts = [an_attempt(), an_attempt(status=AttemptStatus.RUNNING, message="m", acknowledged=5)]
    assert mapping.attempt_in(attempts[0]) | mapping.attempt_in(attempts[1], attempts[0]) == mapping.attempt_in(
        attempts[1]
    )


def test_of_a_row_whose_fields_are_the_same_nothing_has_changed() -> None:
    trial, attempt = a_trial(), an_attempt()

    assert mapping.trial_in(replace(trial), trial) == {}
    assert mapping.attempt_in(replace(attempt), attempt) == {}


def test_a_field_that_was_made_anew_and_is_equal_has_not_changed() -> None:
    before = a_trial(message="".join(["a ", "word"]), last_step=1_000_001, metric_names=("loss", "acc"))
    trial = replace(
        before, message="".join(["a", " word"]), last_step=int("1000001"), metric_names=(*before.metric_names,)
    )

    assert mapping.trial_in(trial, before) == {}


@pytest.mark.parametrize(
    ("field", "before", "now"),
    [("last_value", 0.0, -0.0), ("last_value", -0.0, 0.0), ("last_metrics", {"loss": 0.0}, {"loss": -0.0})],
)
def test_a_zero_of_the_other_sign_is_another_value(field: str, before: Any, now: Any) -> None:
    trial: Any = replace(a_trial(), **{field: now})

    assert mapping.trial_in(trial, replace(a_trial(), **{field: before})) == {field: mapping.trial_in(trial)[field]}


def test_the_spec_of_an_experiment_is_written_where_it_changed() -> None:
    before = an_experiment(next_line=4)
    gone_on = replace(before, next_line=5)
    changed = replace(gone_on, spec=replace(before.spec, project="another"))

    assert mapping.experiment_in(gone_on, before) == {"next_line": 5}
    assert mapping.experiment_in(changed, gone_on) == {"spec": mapping.spec_in(changed.spec)}
    assert mapping.experiment_in(before) | mapping.experiment_in(changed, before) == mapping.experiment_in(changed)


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"number": 3, "attempt": 1, "first": 2, "last": 9},
        {"number": 3, "exact": True},
        {"größe": 2**70, 'a "name"': -1},
        {"nested": {"loss": [0.5, math.nan]}, "at": -0.0, "none": None},
    ],
)
def test_a_line_is_written_as_its_fields_say(payload: dict[str, Any]) -> None:
    line = JournalLine(
        experiment_id="x", line=7, at=-0.0, kind="reports", payload=payload, queues=(Queue.TUNER, Queue.ASSESSOR)
    )

    assert mapping.line_in(line) == mapping.JOURNAL.row(line, queues=3)
    assert repr(mapping.line_out(mapping.line_in(line))) == repr(line)


def test_what_is_encoded_already_is_stored_as_it_is_beside_the_rest() -> None:
    plain = {"outcomes": [{"value": 0.5, "text": "é"}], "by": "ada", "line": 3}
    encoded = {**plain, "outcomes": EncodedJson(mapping.to_json(plain["outcomes"]))}
    line = JournalLine(experiment_id="x", line=7, at=1.0, kind="outcomes_imported", payload=plain)

    assert mapping.line_in(replace(line, payload=encoded)) == mapping.line_in(line)


@pytest.mark.parametrize("value", [0.5, -0.0, 1e300, math.nan, math.inf, 3, True, "junk", [0.5], None])
def test_metrics_are_written_as_json_writes_them_junk_of_a_damaged_row_too(value: Any) -> None:
    metrics: Any = {"loss": value, "größe": 0.25}

    assert mapping.trial_in(a_trial(last_metrics=metrics))["last_metrics"] == mapping.to_json(metrics)


def test_metric_rows_are_in_the_order_of_their_columns() -> None:
    assert tuple(tables.metrics.columns.keys()) == mapping.METRIC_COLUMNS


def through_sqlite(value: object) -> object:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE t (x)")
        connection.execute("INSERT INTO t VALUES (?)", (value,))
        return connection.execute("SELECT x FROM t").fetchone()[0]


@given(st.floats() | st.none())
def test_any_number_comes_back_to_the_last_bit(value: float | None) -> None:
    assert repr(mapping.float_out(through_sqlite(mapping.float_in(value)))) == repr(value)  # type: ignore[arg-type]  # what the driver returns


@given(st.text(alphabet=st.characters(codec=None)) | st.sampled_from(["\0", "\ud800", "\x1b", "\x1b[0m", "a\nb", ""]))
def test_any_text_comes_back_as_it_was(value: str) -> None:
    assert mapping.text_out(through_sqlite(mapping.text_in(value))) == value  # type: ignore[arg-type]  # what the driver returns


def test_ordinary_text_is_stored_readably() -> None:
    assert mapping.text_in("Größe: 3\n\tfile.py") == "Größe: 3\n\tfile.py"

"""Spool lines from a training script that may write anything."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trials.wire.limits import METRIC_NAME_LIMIT, METRICS_LIMIT, STEP_MAX
from trials.wire.records import CheckpointRecord, CooperationRecord, MetricRecord
from tuner_service.dispatcher.commands import RejectedRecord
from tuner_service.service.reports import ERROR_LIMIT, LATEST_S, in_own_time, parse_lines
from tuner_service.service.views import moment


def a_metric_line(**overrides: Any) -> str:
    return json.dumps({"kind": "metric", "step": 3, "values": {"loss": 0.5}, "at": 1.0, "final": False} | overrides)


def a_checkpoint_line(**overrides: Any) -> str:
    fields = {"kind": "checkpoint", "step": 3, "name": "step-3", "digest": "ab" * 32, "size": 5, "at": 1.0}
    return json.dumps(fields | overrides)


def only(line: str) -> Any:
    (record,) = parse_lines([line])
    return record


def test_every_line_becomes_one_record_in_order() -> None:
    records = parse_lines(
        [a_metric_line(), "no json", a_checkpoint_line(), json.dumps({"kind": "cooperates", "at": 1.0}), "{}"]
    )

    kinds = [MetricRecord, RejectedRecord, CheckpointRecord, CooperationRecord, RejectedRecord]
    assert [type(record) for record in records] == kinds


def test_an_intermediate_metric_has_its_step_and_a_final_one_has_none() -> None:
    assert only(a_metric_line()) == MetricRecord(step=3, values={"loss": 0.5}, at=1.0)
    assert only(a_metric_line(step=None, final=True)) == MetricRecord(
        step=None, values={"loss": 0.5}, at=1.0, final=True
    )


def test_integers_are_numbers_and_infinities_are_kept() -> None:
    record = only(a_metric_line(values={"a": 1, "b": math.inf, "c": -math.inf}, at=2))

    assert record == MetricRecord(step=3, values={"a": 1.0, "b": math.inf, "c": -math.inf}, at=2.0)
    assert type(record.values["a"]) is float


def test_nan_is_kept() -> None:
    assert math.isnan(only(a_metric_line(values={"a": math.nan})).values["a"])


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (a_metric_line(values={}), "an object with 1 to 1000 metrics"),
        (a_metric_line(values=[1]), "an object with 1 to 1000 metrics"),
        (a_metric_line(values={f"m{n}": 0.5 for n in range(METRICS_LIMIT + 1)}), "an object with 1 to 1000 metrics"),
        (
            a_metric_line(values={"loss": "low"}),
            "up to 2**53 is needed, not str",
        ),
        (
            a_metric_line(values={"loss": True}),
            "up to 2**53 is needed, not bool",
        ),
        (
            a_metric_line(values={"loss": None}),
            "up to 2**53 is needed, not NoneType",
        ),
        (
            a_metric_line(values={"loss": 10**400}),
            "up to 2**53 is needed, not int 1000",
        ),
        (a_metric_line(values={"n" * (METRIC_NAME_LIMIT + 1): 0.5}), "has more than 200 characters"),
        (a_metric_line(step=None), "either a step, or final"),
        (a_metric_line(final=True), "either a step, or final"),
        (a_metric_line(final=1), "either a step, or final"),
        (a_metric_line(step=1.5), "metric.step: a whole number from 0 to 2**53"),
        (a_metric_line(step=True), "metric.step: a whole number from 0 to 2**53"),
        (a_metric_line(step=STEP_MAX + 1), "metric.step: a whole number from 0 to 2**53"),
        (a_metric_line(at="now"), "seconds since the epoch"),
        (a_metric_line(at=10**400), "seconds since the epoch are needed"),
        (a_checkpoint_line(step=STEP_MAX + 1), "checkpoint.step: a whole number from 0 to 2**53"),
        (a_checkpoint_line(size=-1), "checkpoint.size: a whole number from 0"),
        (a_checkpoint_line(digest="ab"), "64 hex digits"),
        (a_checkpoint_line(name="../weights"), "a plain file name is needed"),
        (a_checkpoint_line(name=".."), "a plain file name is needed"),
        (a_checkpoint_line(name=""), "a plain file name is needed"),
        ("[" * 100_000, ""),
        ("7", ""),
        (json.dumps({"kind": "unheard of"}), ""),
    ],
)
def test_a_line_that_makes_no_sense_is_rejected_and_says_why(line: str, complaint: str) -> None:
    record = only(line)

    assert isinstance(record, RejectedRecord)
    assert complaint in record.error
    assert 0 < len(record.error) <= ERROR_LIMIT


@given(st.text(), st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists))
def test_nothing_that_a_script_writes_can_stop_the_service(text: str, value: Any) -> None:
    lines = [text, json.dumps(value), a_metric_line(values={"loss": value}), a_metric_line(step=value, at=value)]

    assert len(parse_lines(lines)) == len(lines)


def test_lines_that_only_make_sense_together_are_rejected_each() -> None:
    good = '{"kind":"metric","step":1,"values":{"loss":0.5},"at":1.0,"final":false}'

    records = parse_lines(['{"kind":"metric","step":1', f'"values":{{}}}},{good}', good, f"{good},{good}"])

    assert [type(record) for record in records] == [RejectedRecord, RejectedRecord, MetricRecord, RejectedRecord]


@pytest.mark.parametrize("at", [math.nan, math.inf, -math.inf, 1e300, -1.0])
def test_a_time_that_no_clock_tells_is_the_time_at_which_the_record_came(at: float) -> None:
    lines = [a_metric_line(at=at), "no json", a_metric_line(at=50.0)]

    for ahead_s, known in ((0.0, 50.0), (20.0, 30.0)):
        told, _, known_record = in_own_time(parse_lines(lines), ahead_s, at=99.0)
        assert isinstance(told, MetricRecord)
        assert isinstance(known_record, MetricRecord)
        assert (told.at, known_record.at) == (99.0, known)


def test_records_of_a_clock_that_goes_right_are_left_as_they_are() -> None:
    records = parse_lines([a_metric_line(at=1.0), "no json", a_metric_line(at=LATEST_S)])

    assert in_own_time(records, 0.5, at=99.0) is records


@pytest.mark.parametrize("at", [math.nan, math.inf, -math.inf, 1e300])
def test_a_time_that_is_none_and_was_stored_by_an_earlier_version_can_be_shown(at: float) -> None:
    assert moment(at) == "1970-01-01T00:00:00.000Z"

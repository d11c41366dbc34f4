"""One rule for a line of a spool: what its writer accepts all take, and what the service refuses is not written."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trials.agent.spool import is_record
from trials.wire.encoding import decode_record
from trials.wire.limits import METRIC_NAME_LIMIT, METRICS_LIMIT, REPORT_LINE_BYTES, STEP_MAX
from trials.wire.lines import JSON_LEVELS, NoRecordError, metric_line, record_line
from trials.wire.plain import ProtocolError
from trials.wire.records import encode_record
from tuner_service.dispatcher.commands import RejectedRecord
from tuner_service.service.reports import ERROR_LIMIT, parse_lines

NAMES = st.text(max_size=5) | st.sampled_from(["n" * METRIC_NAME_LIMIT, "n" * (METRIC_NAME_LIMIT + 1), "\ud800", "\0"])
NUMBERS = st.floats() | st.integers() | st.sampled_from([STEP_MAX, STEP_MAX + 1, -1, 0, 10**400])
ODD = st.none() | st.booleans() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)
ANY = NUMBERS | ODD
STEPS = st.integers(0, STEP_MAX) | ANY
MANY = st.sampled_from([METRICS_LIMIT, METRICS_LIMIT + 1]).map(lambda count: {f"m{n}": 0.5 for n in range(count)})
METRICS = st.dictionaries(NAMES, NUMBERS, max_size=3) | st.dictionaries(NAMES, ANY, max_size=3) | MANY | ODD
DIGESTS = st.sampled_from(["ab" * 32, "AB" * 32, "ab"])


def records(kind: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Each field as it should be or not, or not there."""
    return st.fixed_dictionaries({"kind": st.just(kind), "at": st.floats() | ANY}, optional=fields)


RECORDS = st.one_of(
    records("metric", step=STEPS, values=METRICS, final=st.booleans() | ODD),
    records("metric", step=st.none(), values=METRICS, final=st.just(value=True)),
    records(
        "metric", step=st.integers(0, STEP_MAX), values=st.dictionaries(NAMES, st.floats(), min_size=1, max_size=3)
    ),
    records("checkpoint", step=STEPS, name=NAMES | ODD, digest=DIGESTS | ODD, size=STEPS, value=ANY, stall_s=ANY),
    records("checkpoint_damaged", step=STEPS, digest=DIGESTS | ODD),
    records("cooperates"),
    records("stop_told"),
    records("parameters_wanted", index=STEPS),
    records(
        "parameters_missing",
        parameters=st.dictionaries(NAMES, st.just({"type": "bool"}) | ANY) | ODD,
        beside=st.dictionaries(NAMES, ANY) | ODD,
    ),
    records("notice", code=NAMES | ODD, message=NAMES | ODD),
    records("of another version"),
)


def fault_at_its_writer(record: dict[str, Any]) -> str:
    try:
        record_line(record)
    except NoRecordError as error:
        return str(error)
    return ""


@given(RECORDS)
def test_writer_agent_and_service_judge_a_line_alike(record: dict[str, Any]) -> None:
    fault = fault_at_its_writer(record)
    line = json.dumps(record, separators=(",", ":")).encode()
    (taken,) = parse_lines([line.decode()])

    assert is_record(line) == (not fault)
    assert isinstance(taken, RejectedRecord) == bool(fault)
    if isinstance(taken, RejectedRecord):
        assert taken.error == fault[:ERROR_LIMIT] or b"\\u" in line  # there it names what became of such a text
        with pytest.raises(ProtocolError):
            decode_record(line.decode())
    else:
        assert record_line(record) == line
        assert encode_record(decode_record(encode_record(taken).decode())) == encode_record(taken)


@given(
    step=st.integers(0, STEP_MAX) | st.none(),
    values=st.dictionaries(NAMES, st.floats(), max_size=3),
    at=st.floats(0, allow_infinity=False),
)
def test_a_metric_is_written_as_any_other_record(step: int | None, values: dict[str, float], at: float) -> None:
    record = {"kind": "metric", "step": step, "values": values, "at": at, "final": step is None}
    if fault := fault_at_its_writer(record):
        with pytest.raises(NoRecordError, match=re.escape(fault)):
            metric_line(step=step, values=values, at=at, final=step is None)
    else:
        assert metric_line(step=step, values=values, at=at, final=step is None) == record_line(record)


def test_of_a_line_that_is_too_long_no_record_is_made() -> None:
    line = record_line({"kind": "notice", "code": "c", "message": "m" * REPORT_LINE_BYTES, "at": 1.0})

    assert not is_record(line)
    (rejected,) = parse_lines([line.decode()])
    assert isinstance(rejected, RejectedRecord)
    assert rejected.error.startswith(f"a line of {len(line)} bytes; at most {REPORT_LINE_BYTES} are taken")


def test_a_level_too_many_is_refused_in_objects_and_in_lists() -> None:
    for make in (lambda value: {"a": value}, lambda value: [value]):
        value: Any = 0
        for _ in range(JSON_LEVELS - 2):
            value = make(value)
        within, beyond = {"a": value}, {"a": {"a": value}}
        assert record_line({"kind": "parameters_missing", "at": 1.0, "parameters": {}, "beside": within})
        with pytest.raises(NoRecordError):
            record_line({"kind": "parameters_missing", "at": 1.0, "parameters": {}, "beside": beyond})

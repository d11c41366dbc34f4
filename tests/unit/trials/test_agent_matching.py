"""What lines of output mean to a metrics pattern."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from trials.agent.supervision.matching import ANSWER_BYTES, LINE_BYTES, match_lines
from trials.reports.spool_writer import REPORT_LINE_BYTES
from trials.wire.patterns import METRICS_PATTERN_LENGTH, groups_of

LOSS = r"loss=(?P<loss>\S+)"


def matched(pattern: str, lines: bytes, *, next_step: int = 0) -> tuple[list[tuple[int, Any]], int, int]:
    """(step and values of each record, the bytes that were matched, the next step)."""
    count, step, data = match_lines(re.compile(pattern), lines, next_step=next_step)
    records = [json.loads(line) for line in data.splitlines()]
    assert all(set(r) == {"kind", "step", "values", "at", "final"} and not r["final"] for r in records)
    return [(r["step"], r["values"]) for r in records], count, step


def test_named_groups_are_metrics_and_step_is_the_step() -> None:
    lines = b"epoch 3: loss=0.5\nnothing\nepoch 4: loss=.25\n"

    assert matched(rf"epoch (?P<step>\d+): {LOSS}", lines) == ([(3, {"loss": 0.5}), (4, {"loss": 0.25})], len(lines), 5)


def test_without_a_step_each_match_is_one_step_further() -> None:
    lines = b"loss=1\nloss=2\nloss=none\nloss=3\n"

    assert matched(LOSS, lines, next_step=7)[0] == [(7, {"loss": 1.0}), (8, {"loss": 2.0}), (9, {"loss": 3.0})]


def test_an_optional_group_that_took_no_part_is_left_out() -> None:
    pattern = rf"{LOSS}( acc=(?P<acc>\S+))?"

    assert matched(pattern, b"loss=1\nloss=2 acc=3\n")[0] == [(0, {"loss": 1.0}), (1, {"loss": 2.0, "acc": 3.0})]


def test_an_empty_line_can_match_and_anchors_mean_a_line() -> None:
    assert matched(r"^(?P<x>\d*)$", b"\n1\n\n22\n")[0] == [(0, {"x": 1.0}), (1, {"x": 22.0})]


def test_bytes_that_are_no_text_do_not_end_the_line_after_them() -> None:
    assert matched(LOSS, b"\xff\xe2\x82\nloss=1\xc3\nloss=2\n")[0] == [(0, {"loss": 2.0})]


def test_of_a_long_line_only_the_beginning_is_matched() -> None:
    long = b"x" * (LINE_BYTES - 5) + b" loss=1\n"

    assert matched(r"x$|loss=(?P<loss>\d)", long + b"loss=2\n")[0] == [(0, {"loss": 2.0})]


def test_an_answer_is_bounded_and_says_how_far_it_came() -> None:
    lines = b"".join(b"%d\n" % place for place in range(4_000))
    found: list[tuple[int, Any]] = []
    step, rounds = 0, 0
    while lines:
        records, count, step = matched(r"(?P<some_longer_name>\d+)", lines, next_step=step)
        assert len(records) * 60 < ANSWER_BYTES + REPORT_LINE_BYTES
        found, lines, rounds = found + records, lines[count:], rounds + 1

    assert rounds > 1
    assert found == [(n, {"some_longer_name": float(n)}) for n in range(4_000)]


@pytest.mark.parametrize("pattern", ["(", "x{99999999999}", "(?<=a+)(?P<x>b)", "(" * 900, "(?P<x>a)" * 2])
def test_what_is_no_regular_expression_is_refused_without_compiling_it(pattern: str) -> None:
    with pytest.raises(ValueError, match="is no regular expression"):
        groups_of(pattern)


def test_a_pattern_has_a_longest_length() -> None:
    groups_of("x" * METRICS_PATTERN_LENGTH)
    with pytest.raises(ValueError, match="at most 1000"):
        groups_of("x" * (METRICS_PATTERN_LENGTH + 1))


def test_the_groups_of_a_pattern_are_known_however_long_compiling_it_takes() -> None:
    pattern = "(?i)(?P<x>.)(?<!ab)(?:c(?<=c))" + "[\x00-\U0010ffff]" * 190

    assert groups_of(pattern) == ("x",)

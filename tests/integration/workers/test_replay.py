"""Asking algorithms everything again, in a real process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tuner_service.dispatcher.items import MetricsReported, SuggestionRequested, TrialEnded
from tuner_service.domain.experiment import AlgorithmSpec, Objective
from tuner_service.domain.search_space import parse_search_space
from tuner_service.domain.seeds import suggestion_generator
from tuner_service.domain.trial import Report, TrialOutcome, TrialStatus
from tuner_service.workers.messages import Initialize
from tuner_service.workers.replay import Progress, RecordedTrial, Replay

CODE = """
import os, time
from tuner_service.assessors.base import Assessor, Keep, Stop
from tuner_service.tuners.base import NotYet, Tuner

class Drawn(Tuner):
    def suggest(self, number, rng):
        return {"x": rng.random()}

    def observe(self, outcome):
        pass

class Raises(Drawn):
    def suggest(self, number, rng):
        if number == 3:
            raise ValueError("three is too many")
        return super().suggest(number, rng)

class Hangs(Drawn):
    def suggest(self, number, rng):
        time.sleep(3600)

class Dies(Drawn):
    def suggest(self, number, rng):
        os._exit(9)

class Waits(Drawn):
    def suggest(self, number, rng):
        return NotYet()

class BelowZero(Assessor):
    def assess(self, number, reports):
        return Stop("below zero") if reports[-1].value < 0 else Keep()

    def ended(self, outcome, reports):
        pass
"""
SPACE = {"x": {"_type": "uniform", "_value": [0, 1]}}


@pytest.fixture
def command(tmp_path: Path) -> Initialize:
    code = tmp_path / "code"
    code.mkdir()
    (code / "mine.py").write_text(CODE)
    return Initialize(
        experiment_id="8f3k2",
        search_space=SPACE,
        objective=Objective(metric="loss"),
        seed=7,
        tuner=AlgorithmSpec(class_name="mine:Drawn"),
        code_folder=str(code),
    )


def history(count: int, **wrong: float) -> Iterator[Any]:
    """Requests with what ``Drawn`` suggests, each followed by its end; ``trial3=0.5`` records another value."""
    space = parse_search_space(SPACE)
    assert space.size > 0
    for number in range(1, count + 1):
        drawn = wrong.get(f"trial{number}", suggestion_generator(7, number).random())
        yield SuggestionRequested(line=2 * number, number=number, recorded={"x": drawn})
        outcome = TrialOutcome(number=number, status=TrialStatus.SUCCEEDED, parameters={"x": drawn}, value=drawn)
        yield TrialEnded(line=2 * number + 1, outcome=outcome)


def ask(command: Initialize, items: Iterator[Any], folder: Path, *, timeout_s: float = 30) -> Progress:
    with Replay(command, folder=folder, timeout_s=timeout_s, now=time.monotonic) as replay:
        *_, last = replay.tuner(items)
    return last


def test_a_tuner_that_says_the_same_again_has_no_difference(command: Initialize, tmp_path: Path) -> None:
    last = ask(command, history(3_000), tmp_path)

    assert (last.lines, last.compared, last.difference) == (6_000, 3_000, None)


def test_what_was_suggested_outside_the_space_once_is_no_difference(command: Initialize, tmp_path: Path) -> None:
    narrow = replace(command, search_space={"x": {"_type": "uniform", "_value": [0, 1e-9]}})
    found = ask(narrow, history(3), tmp_path).difference
    assert found is not None
    assert "OutsideSpaceError" in found.message
    assert ask(replace(narrow, checks_space=False), history(3), tmp_path).difference is None


def test_nothing_to_ask_is_no_difference(command: Initialize, tmp_path: Path) -> None:
    assert ask(command, iter(()), tmp_path).difference is None


def test_the_first_suggestion_that_differs_is_named(command: Initialize, tmp_path: Path) -> None:
    found = ask(command, history(10, trial4=0.5, trial6=0.5), tmp_path).difference

    assert found is not None
    assert found.line == 8
    assert 'trial 4: {"x": 0.5} was suggested, and it suggests {"x": 0.' in found.message


@pytest.mark.parametrize(
    ("name", "line", "said"),
    [
        ("Raises", 6, "three is too many"),
        ("Hangs", 2, "did not answer within"),
        ("Dies", 2, "ended with exit code 9"),
        ("Waits", 2, "it waits for another outcome now"),
    ],
)
def test_a_tuner_that_fails_differs(command: Initialize, tmp_path: Path, name: str, line: int, said: str) -> None:
    wrong = replace(command, tuner=AlgorithmSpec(class_name=f"mine:{name}"))

    found = ask(wrong, history(5), tmp_path, timeout_s=3 if name == "Hangs" else 30).difference

    assert found is not None
    assert said in found.message
    assert found.line == line


def test_a_class_that_is_not_there_differs_before_the_first_line(command: Initialize, tmp_path: Path) -> None:
    found = ask(replace(command, tuner=AlgorithmSpec(class_name="mine:Nobody")), history(5), tmp_path).difference

    assert found is not None
    assert found.line == 0
    assert "mine:Nobody" in found.message


# ── the assessor ────────────────────────────────────────────────────────────────────────────────
def reports(line: int, number: int, *values: float) -> MetricsReported:
    first = 10 * line
    return MetricsReported(
        line=line,
        number=number,
        reports=tuple(Report(step=first + place, value=value) for place, value in enumerate(values)),
        sequences=tuple(first + place for place in range(len(values))),
    )


JUDGED = [reports(1, 1, 1.0, 2.0), reports(2, 2, 1.0, -1.0, 3.0), reports(3, 1, 0.5)]


@pytest.mark.parametrize(
    ("recorded", "line", "late"),
    [
        ({2: RecordedTrial(stop=(2, 21), may_miss_stop=False)}, None, 0),
        ({2: RecordedTrial(stop=(2, 22), may_miss_stop=False)}, 2, 0),
        ({2: RecordedTrial(stop=None, may_miss_stop=False)}, 2, 0),
        ({2: RecordedTrial(stop=None, may_miss_stop=True)}, None, 1),
        (
            {
                1: RecordedTrial(stop=(3, 30), may_miss_stop=False),
                2: RecordedTrial(stop=(2, 21), may_miss_stop=False),
            },
            3,
            0,
        ),
    ],
)
def test_stops_are_compared_with_the_recorded_ones(
    command: Initialize, tmp_path: Path, recorded: dict[int, RecordedTrial], line: int | None, late: int
) -> None:
    judging = replace(command, assessor=AlgorithmSpec(class_name="mine:BelowZero"))
    nothing = RecordedTrial(stop=None, may_miss_stop=False)

    with Replay(judging, folder=tmp_path, timeout_s=30, now=time.monotonic) as replay:
        *_, last = replay.assessor(JUDGED, lambda number: recorded.get(number, nothing))

    assert (last.difference.line if last.difference else None, last.late_stops) == (line, late)


def test_a_tuner_that_raises_does_not_hide_the_assessor(command: Initialize, tmp_path: Path) -> None:
    both = replace(
        command,
        tuner=AlgorithmSpec(class_name="mine:Drawn"),
        assessor=AlgorithmSpec(class_name="mine:Nobody"),
    )

    with Replay(both, folder=tmp_path, timeout_s=30, now=time.monotonic) as replay:
        *_, tuner = replay.tuner(history(3))
        *_, assessor = replay.assessor(JUDGED, lambda _: RecordedTrial(stop=None, may_miss_stop=True))

    assert tuner.difference is None
    assert assessor.difference is not None
    assert "mine:Nobody" in assessor.difference.message

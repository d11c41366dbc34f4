from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner_service.assessors.base import Assessor, Keep, Stop, Verdict
from tuner_service.assessors.median_stop import MedianStop
from tuner_service.dispatcher.items import (
    AssessorItem,
    MetricsReported,
    NoMoreSuggestions,
    NoSuggestionYet,
    SearchSpaceUpdated,
    StopAdvised,
    Suggested,
    SuggestionRequested,
    Taken,
    TrialEnded,
)
from tuner_service.domain.experiment import Objective
from tuner_service.domain.search_space import parse_search_space
from tuner_service.domain.trial import Parameters, Report, TrialOutcome, TrialStatus
from tuner_service.tuners.base import Exhausted, NotYet, Suggestion, Tuner
from tuner_service.workers.folds.folding import AssessorFold, ReportHistory, TunerFold, plain_parameters
from tuner_service.workers.inside import OutsideSpaceError

OBJECTIVE = Objective(metric="loss")


class ScriptedTuner(Tuner):
    """Suggests what it was given, and remembers what it was told."""

    def __init__(self, *suggestions: Any) -> None:
        super().__init__(parse_search_space({"x": {"type": "bool"}}), OBJECTIVE)
        self.suggestions = list(suggestions)
        self.story: list[Any] = []

    def suggest(self, number: int, rng: random.Random) -> Suggestion:
        suggestion: Suggestion = self.suggestions[number - 1]
        return suggestion

    def pending(self, number: int, parameters: Parameters) -> None:
        self.story.append((number, parameters))

    def observe(self, outcome: TrialOutcome) -> None:
        self.story.append(outcome.number)


class LearningAssessor(Assessor):
    """Stops at a value above the mean of all it was ever asked about; learns while assessing."""

    def __init__(self) -> None:
        super().__init__(OBJECTIVE)
        self.seen: list[float] = []
        self.ends: list[int] = []

    def assess(self, trial: int, reports: Sequence[Report]) -> Verdict:
        worst = sum(self.seen) / len(self.seen) if len(self.seen) > 3 else math.inf
        self.seen.append(reports[-1].value)
        return Stop(f"above {worst}") if reports[-1].value > worst + 0.3 else Keep()

    def ended(self, outcome: TrialOutcome, reports: Sequence[Report]) -> None:
        self.ends.append(outcome.number)

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen, "ends": self.ends}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen, self.ends = list(state["seen"]), list(state["ends"])


class ForgetfulAssessor(Assessor):
    """Keeps no snapshots."""

    def assess(self, trial: int, reports: Sequence[Report]) -> Verdict:
        return Keep()

    def ended(self, outcome: TrialOutcome, reports: Sequence[Report]) -> None: ...


def metrics(line: int, number: int, *pairs: tuple[int, float]) -> MetricsReported:
    reports = tuple(Report(step=step, value=value) for step, value in pairs)
    return MetricsReported(line=line, number=number, reports=reports, sequences=tuple(100 + step for step, _ in pairs))


def end(line: int, number: int, status: TrialStatus = TrialStatus.SUCCEEDED) -> TrialEnded:
    return TrialEnded(line=line, outcome=TrialOutcome(number=number, status=status, parameters={}, value=0.5))


# ── the tuner's queue ───────────────────────────────────────────────────────────────────────────
def test_a_suggestion_is_answered_and_becomes_pending() -> None:
    tuner = ScriptedTuner({"x": True})
    assert TunerFold(tuner, seed=1).take(SuggestionRequested(line=5, number=1)) == Suggested(
        line=5, parameters={"x": True}
    )
    assert tuner.story == [(1, {"x": True})]


def test_a_recorded_suggestion_stands_and_the_tuner_is_not_asked() -> None:
    tuner = ScriptedTuner()
    taken = TunerFold(tuner, seed=1).take(SuggestionRequested(line=5, number=1, recorded={"x": False}))
    assert taken == Taken(line=5)
    assert tuner.story == [(1, {"x": False})]


def test_not_yet_and_exhausted_have_answers_of_their_own() -> None:
    fold = TunerFold(ScriptedTuner(NotYet(), Exhausted()), seed=1)
    assert fold.take(SuggestionRequested(line=1, number=1)) == NoSuggestionYet(line=1)
    assert fold.take(SuggestionRequested(line=2, number=2)) == NoMoreSuggestions(line=2)


def test_numpy_values_become_plain_ones() -> None:
    plain = plain_parameters(
        {"a": np.float64(0.5), "b": np.int64(3), "c": np.array([1, 2]), "d": (1, None), "e": np.bool_(True), "f": {}}
    )
    assert plain == {"a": 0.5, "b": 3, "c": [1, 2], "d": [1, None], "e": True, "f": {}}
    assert [type(value) for value in plain.values()] == [float, int, list, list, bool, dict]


@pytest.mark.parametrize(
    "bad", [None, 3, [("x", 1)], {"x": math.nan}, {"x": object()}, {"x": {1: 2}}, {"x": {1, 2}}, {"x": b"1"}]
)
def test_what_is_no_parameters_is_the_tuners_fault(bad: Any) -> None:
    with pytest.raises(TypeError):
        TunerFold(ScriptedTuner(bad), seed=1).take(SuggestionRequested(line=1, number=1))


NARROW = parse_search_space(
    {
        "lr": {"_type": "uniform", "_value": [0.001, 0.1]},
        "layers": {"type": "int", "low": 1, "high": 4},
        "kind": {"_type": "choice", "_value": ["a", "b"]},
        "depth": {"type": "int", "low": 1, "high": 3, "when": {"kind": "b"}},
    }
)
INSIDE = {"lr": 0.01, "layers": 2, "kind": "a"}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"lr": 2.0}, r"lr 2\.0 lies outside"),
        ({"lr": "0.01"}, r'lr "0\.01" lies outside'),
        ({"lr": True}, "lr true lies outside"),
        ({"lr": 0.1 * (1 + 1e-6)}, "lr 0.1000001"),
        ({"layers": 2.0}, r"layers 2\.0 lies outside"),
        ({"kind": "c"}, 'kind "c" lies outside'),
        ({"kind": ["a"]}, r'kind \["a"\] lies outside'),
        ({"kind": "b"}, "depth is missing"),
        ({"depth": 1}, "depth is not there with the other values"),
        ({"epochs": 3}, "epochs is no parameter"),
        ({"lr": 5.0, "layers": 9}, "lr .*layers "),
    ],
)
def test_a_suggestion_outside_the_space_is_the_tuners_fault_that_names_the_parameter(
    changed: dict[str, Any], words: str
) -> None:
    fold = TunerFold(ScriptedTuner(INSIDE | changed), seed=1, space=NARROW)
    with pytest.raises(OutsideSpaceError, match=words):
        fold.take(SuggestionRequested(line=1, number=1))


def test_a_missing_parameter_is_named() -> None:
    with pytest.raises(OutsideSpaceError, match="lr is missing; layers is missing; kind is missing"):
        TunerFold(ScriptedTuner({}), seed=1, space=NARROW).take(SuggestionRequested(line=1, number=1))


@pytest.mark.parametrize("lr", [0.001 * (1 - 1e-15), 0.1 * (1 + 1e-15), 0.001, 0.1])
def test_a_bound_missed_by_a_rounding_error_is_met_and_the_suggestion_stands_as_it_is(lr: float) -> None:
    answer = TunerFold(ScriptedTuner(INSIDE | {"lr": lr}), seed=1, space=NARROW).take(
        SuggestionRequested(line=1, number=1)
    )
    assert answer == Suggested(line=1, parameters=INSIDE | {"lr": lr})


def test_a_tuner_that_says_so_may_leave_the_space() -> None:
    class Wandering(ScriptedTuner):
        may_leave_space = True

    answer = TunerFold(Wandering({"lr": 7, "more": 1}), seed=1, space=NARROW).take(
        SuggestionRequested(line=1, number=1)
    )
    assert answer == Suggested(line=1, parameters={"lr": 7, "more": 1})


def test_the_newest_space_is_the_one_that_counts_also_after_a_snapshot() -> None:
    wider = NARROW.raw | {"lr": {"_type": "uniform", "_value": [0.001, 10]}}

    class Kept(ScriptedTuner):
        def state_dict(self) -> dict[str, Any]:
            return {}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            pass

    first = TunerFold(Kept(INSIDE | {"lr": 5.0}), seed=1, space=NARROW)
    first.take(SearchSpaceUpdated(line=1, search_space=wider))
    loaded = TunerFold(Kept(INSIDE | {"lr": 5.0}), seed=1, space=NARROW)
    loaded.load_state_dict(first.state_dict() or {})
    for fold in (first, loaded):
        assert isinstance(fold.take(SuggestionRequested(line=2, number=1)), Suggested)


def test_what_was_recorded_outside_the_space_stands() -> None:
    fold = TunerFold(ScriptedTuner(), seed=1, space=NARROW)
    assert fold.take(SuggestionRequested(line=1, number=1, recorded={"lr": 99})) == Taken(line=1)


def test_parameters_nested_without_end_are_the_tuners_fault() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(TypeError, match="nested"):
        plain_parameters({"x": endless})


def test_a_tuner_that_changes_what_it_was_given_does_not_change_the_answer() -> None:
    tuner = ScriptedTuner({"x": [1]})
    answer = TunerFold(tuner, seed=1).take(SuggestionRequested(line=1, number=1))
    tuner.story[0][1]["x"].append(2)
    assert answer == Suggested(line=1, parameters={"x": [1]})


def test_an_algorithm_without_state_has_no_snapshot() -> None:
    assert TunerFold(ScriptedTuner(), seed=1).state_dict() is None
    assert AssessorFold(ForgetfulAssessor(OBJECTIVE)).state_dict() is None


# ── the assessor's queue ────────────────────────────────────────────────────────────────────────
def a_taught_fold() -> AssessorFold:
    fold = AssessorFold(MedianStop(OBJECTIVE, min_trials=1))
    fold.take(metrics(1, 1, (1, 1.0), (2, 1.0), (3, 1.0)))
    fold.take(end(2, 1))
    return fold


def test_a_stop_names_the_report_that_decided_it_and_leaves_out_later_ones() -> None:
    fold = a_taught_fold()
    answer = fold.take(metrics(3, 2, (1, 0.5), (2, 0.6), (3, 0.7)))
    assert answer == Taken(line=3)
    stop = fold.take(metrics(4, 3, (1, 1.0), (2, 0.9)))
    assert stop == Taken(line=4)
    stop = fold.take(metrics(5, 4, (1, 2.0), (2, 0.1)))
    assert isinstance(stop, StopAdvised)
    assert (stop.line, stop.sequence) == (5, 101)
    assert fold.take(metrics(6, 4, (3, 9.0))) == Taken(line=6)


def test_an_assessor_that_answers_something_else_is_at_fault() -> None:
    class Odd(ForgetfulAssessor):
        def assess(self, trial: int, reports: Sequence[Report]) -> Verdict:
            return True  # type: ignore[return-value]  # what a user might do

    with pytest.raises(TypeError, match="Keep"):
        AssessorFold(Odd(OBJECTIVE)).take(metrics(1, 1, (1, 1.0)))


def test_a_history_shows_its_own_length_only() -> None:
    reports = [Report(step=step, value=float(step)) for step in range(5)]
    history = ReportHistory(reports, 3)
    assert (len(history), history[-1].step, [r.step for r in history], [r.step for r in history[1:]]) == (
        3, 2, [0, 1, 2], [1, 2],
    )  # fmt: skip
    with pytest.raises(IndexError):
        history[3]


# ── stories: whole queues of the assessor ───────────────────────────────────────────────────────
@st.composite
def stories(draw: st.DrawFn) -> list[list[tuple[str, Any]]]:
    """Per trial its lines without numbers: reports in batches, then its end."""
    value = st.floats(0, 2) | st.sampled_from([math.nan, math.inf])
    trials = []
    for _ in range(draw(st.integers(2, 5))):
        values = draw(st.lists(value, max_size=8))
        trials.append([("report", (step, value)) for step, value in enumerate(values, 1)] + [("end", None)])
    return trials


def interleaved(trials: list[list[tuple[str, Any]]], order: random.Random, parallel: int = 2) -> list[AssessorItem]:
    """Any order of reports in which trials are decided in turn, ``parallel`` at a time, and end in turn."""
    lines: list[AssessorItem] = []
    waiting = {number: list(trial) for number, trial in enumerate(trials, 1)}
    decided, told = 0, 0
    while told < len(trials):
        while decided < min(told + parallel, len(trials)):
            decided += 1
            lines.append(SuggestionRequested(line=len(lines) + 1, number=decided))
        open_trials = [n for n in range(told + 1, decided + 1) if waiting[n][0][0] == "report"]
        if open_trials and (len(waiting[told + 1]) > 1 or order.random() < 0.5):
            number = order.choice(open_trials)
            count = order.randint(1, 3)
            pairs = [waiting[number].pop(0)[1] for _ in range(count) if waiting[number][0][0] == "report"]
            lines.append(metrics(len(lines) + 1, number, *pairs))
        elif len(waiting[told + 1]) == 1:
            told += 1
            lines.append(end(len(lines) + 1, told))
    return lines


def stops(fold: AssessorFold, lines: list[AssessorItem]) -> dict[int, tuple[int, str]]:
    found = {}
    for line in lines:
        answer = fold.take(line)
        assert answer.line == line.line
        if isinstance(answer, StopAdvised):
            assert isinstance(line, MetricsReported)
            assert line.number not in found
            found[line.number] = (answer.sequence, answer.message)
    return found


def an_assessor(kind: str) -> Assessor:
    return LearningAssessor() if kind == "learning" else MedianStop(OBJECTIVE, min_trials=1)


kinds = st.sampled_from(["learning", "median"])


@settings(max_examples=150, deadline=None)
@given(stories(), kinds, st.integers(), st.integers())
def test_deterministic_verdicts_do_not_depend_on_how_reports_fall_between_one_another(
    trials: list[list[tuple[str, Any]]], kind: str, first: int, second: int
) -> None:
    found = [
        stops(AssessorFold(an_assessor(kind), deterministic=True), interleaved(trials, random.Random(seed)))
        for seed in (first, second)
    ]
    assert found[0] == found[1]


@settings(max_examples=150, deadline=None)
@given(stories(), kinds, st.integers(), st.booleans(), st.data())
def test_a_snapshot_at_any_line_and_the_later_lines_give_the_same_answers(
    trials: list[list[tuple[str, Any]]], kind: str, seed: int, deterministic: bool, data: st.DataObject
) -> None:
    lines = interleaved(trials, random.Random(seed), parallel=3)
    at = data.draw(st.integers(0, len(lines)))
    live = AssessorFold(an_assessor(kind), deterministic=deterministic)
    for line in lines[:at]:
        live.take(line)
    loaded = AssessorFold(an_assessor(kind), deterministic=deterministic)
    loaded.load_state_dict(json.loads(json.dumps(live.state_dict())))
    assert [loaded.take(line) for line in lines[at:]] == [live.take(line) for line in lines[at:]]
    assert json.dumps(loaded.state_dict()) == json.dumps(live.state_dict())


@settings(max_examples=100, deadline=None)
@given(stories(), kinds, st.integers(), st.booleans())
def test_the_size_of_batches_makes_no_difference(
    trials: list[list[tuple[str, Any]]], kind: str, seed: int, deterministic: bool
) -> None:
    lines = interleaved(trials, random.Random(seed))
    single: list[AssessorItem] = []
    for line in lines:
        if isinstance(line, MetricsReported):
            single += [metrics(len(single), line.number, (report.step, report.value)) for report in line.reports]
        else:
            single.append(line)
    batched = stops(AssessorFold(an_assessor(kind), deterministic=deterministic), lines)
    assert {n: s for n, (s, _) in batched.items()} == {
        n: s for n, (s, _) in stops(AssessorFold(an_assessor(kind), deterministic=deterministic), single).items()
    }


def test_the_base_learns_of_a_trial_only_when_it_ends() -> None:
    base = LearningAssessor()
    fold = AssessorFold(base, deterministic=True)
    fold.take(SuggestionRequested(line=1, number=1))
    fold.take(metrics(2, 1, (1, 0.5), (2, 0.4)))
    assert base.seen == []
    fold.take(end(3, 1))
    assert (base.seen, base.ends) == ([0.5, 0.4], [1])


@pytest.mark.parametrize("value", ["\ud800", {"\ud800": 1}, [2**63], "a\0b", math.inf], ids=ascii)
def test_a_suggestion_that_no_trial_could_be_given_is_the_tuners_fault(value: Any) -> None:
    with pytest.raises(TypeError, match="parameters/x"):
        plain_parameters({"x": value})


def test_what_is_recorded_is_not_refused_again() -> None:
    tuner = ScriptedTuner()
    TunerFold(tuner, seed=1).take(SuggestionRequested(line=1, number=1, recorded={"x": 2**70}))
    assert tuner.story == [(1, {"x": 2**70})]

"""What every tuner promises; run for each registered one."""

from __future__ import annotations

import gc
import json
import math
import random
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest

from tuner_service.dispatcher.items import (
    CustomTrialAdded,
    NoMoreSuggestions,
    ResultsImported,
    SearchSpaceUpdated,
    Suggested,
    SuggestionRequested,
    TrialEnded,
    TunerItem,
)
from tuner_service.domain.errors import SearchSpaceNotSupportedError
from tuner_service.domain.experiment import AlgorithmSpec, Goal, Objective
from tuner_service.domain.search_space import SearchSpace, parameters_key, parse_search_space
from tuner_service.domain.trial import Parameters, TrialOutcome, TrialStatus
from tuner_service.tuners.base import Exhausted, Tuner
from tuner_service.tuners.registry import TUNERS, create_tuner
from tuner_service.workers.building import build_tuner_fold
from tuner_service.workers.folds.folding import TunerFold
from tuner_service.workers.messages import Initialize

SPACES: dict[str, dict[str, Any]] = {
    "flat": {
        "lr": {"_type": "loguniform", "_value": [1e-4, 1]},
        "momentum": {"_type": "quniform", "_value": [0.05, 0.95, 0.1]},
        "batch": {"type": "int", "low": 16, "high": 256, "log": True},
        "layers": {"type": "ordinal", "choices": [1, 2, 4]},
        "optimizer": {"_type": "choice", "_value": ["sgd", "adam", None]},
        "noise": {"_type": "normal", "_value": [0, 1]},
        "scale": {"_type": "qlognormal", "_value": [0, 1, 0.5]},
        "width": {"_type": "qloguniform", "_value": [8, 512, 8]},
        "dropout": {"type": "float", "low": 0, "high": 0.5, "step": 0.1},
        "fixed": {"type": "const", "value": [1, 2]},
    },
    "conditional": {
        "model": {
            "_type": "choice",
            "_value": [
                {"_name": "tree", "depth": {"_type": "randint", "_value": [1, 9]}},
                {
                    "_name": "net",
                    "lr": {"_type": "loguniform", "_value": [1e-4, 1]},
                    "kind": {
                        "_type": "choice",
                        "_value": ["plain", {"_name": "wide", "by": {"type": "float", "low": 1, "high": 4}}],
                    },
                },
            ],
        },
        "seed": {"_type": "uniform", "_value": [0, 1]},
    },
    "constrained": {
        "optimizer": {"type": "categorical", "choices": ["sgd", "adam"]},
        "momentum": {"type": "float", "low": 0, "high": 1, "step": 0.25, "when": {"optimizer": "sgd"}},
        "batch": {"type": "int", "low": 1, "high": 64, "log": True},
        "accumulate": {"type": "int", "low": 1, "high": 8},
        "order": {"type": "permutation", "choices": ["crop", "flip", "blur"]},
        "features": {"type": "subset", "choices": ["a", "b", "c", "d"], "least": 1, "most": 3},
        "constraints": ["batch * accumulate <= 256", "len(features) < 3 or optimizer == 'sgd'"],
    },
}
PLAIN = {name: {"type": "float", "low": 0, "high": 1} for name in "xy"}
SMALL = {"a": {"_type": "choice", "_value": ["x", "y", "z"]}, "b": {"_type": "randint", "_value": [0, 4]}}
WIDER = {"a": {"_type": "choice", "_value": ["x", "y", "z", "w"]}, "b": {"_type": "randint", "_value": [0, 2]}}
SEED = 11
TRIALS = 30  # of a search that several tests look at
SEARCHED: dict[str, tuple[list[TunerItem], list[Any]]] = {}
SNAPSHOT_LINES = (0, 7, 16, 50)
SNAPSHOTS: dict[str, dict[int, str]] = {}  # of the searches, as JSON, by the line after which each was taken
GROWN_BYTES = 500_000  # by a suggestion, at most
FOLDED: dict[str, Thousand] = {}
LISTED = 60  # parameters that the batch tuner is given
Build = Callable[..., Tuner]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A tuner with options that let its model begin early; ``share`` of the usual trials where each one is slow."""

    name: str
    args: dict[str, Any] = field(default_factory=dict)
    share: float = 1.0
    spaces: tuple[str, ...] = tuple(SPACES)

    def of(self, trials: int) -> int:
        return max(8, round(trials * self.share))


CASES = {
    "tpe": Case(name="tpe"),
    "tpe without a start": Case(name="tpe", args={"n_startup_trials": 0}),
    "tpe one by one": Case(name="tpe", args={"multivariate": False}, share=0.4),
    "gp": Case(name="gp", args={"n_startup_trials": 4}, share=0.3, spaces=("conditional",)),
    "auto": Case(name="auto", share=0.5, spaces=("conditional",)),
    "cma_es": Case(name="cma_es", args={"population_size": 4}),
    "nsga2": Case(name="nsga2", args={"population_size": 4}),
    "nsga3": Case(name="nsga3", args={"population_size": 4}),
    "evolution": Case(name="evolution", args={"population_size": 6, "sample_size": 3}),
}
CASES |= {name: Case(name=name) for name in TUNERS if name not in {case.name for case in CASES.values()}}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "space" in metafunc.fixturenames:
        every = [(label, case, name) for label, case in CASES.items() for name in case.spaces]
        names = [f"{label}-{name}" for label, _, name in every]
        metafunc.parametrize(("case", "space"), [(case, SPACES[name]) for _, case, name in every], ids=names)
    elif "case" in metafunc.fixturenames:
        metafunc.parametrize("case", list(CASES.values()), ids=list(CASES))


@pytest.fixture
def build(case: Case) -> Build:
    def make(space: dict[str, Any], objective: Objective | None = None) -> Tuner:
        parsed = parse_search_space(space)
        args = {"parameters": listed(parsed)} if case.name == "batch" else case.args
        return create_tuner(case.name, args, space=parsed, objective=objective or Objective(metric="loss"))

    return make


def listed(space: SearchSpace) -> list[Parameters]:
    if space.size <= LISTED:
        points = [space.grid_point(index, 1) for index in range(space.grid_size(1))]
        return [point for point in points if point is not None]
    return [space.sample(random.Random(number)) for number in range(LISTED)]


def value_of(parameters: Parameters, number: int) -> float | None:
    """Any outcome that a trial may have: a value, none, NaN, infinity."""
    match number % 7:
        case 3:
            return None
        case 5:
            return random.Random(number).choice([math.nan, math.inf, -math.inf])
        case _:
            return random.Random(parameters_key(parameters)).random()


def ended(line: int, number: int, parameters: Parameters) -> TrialEnded:
    value = value_of(parameters, number)
    statuses = [TrialStatus.SUCCEEDED, TrialStatus.EARLY_STOPPED, TrialStatus.CANCELED, TrialStatus.SUCCEEDED]
    status = TrialStatus.FAILED if value is None and number % 2 else statuses[number % 4]
    further = (None if number % 11 == 4 else float(number % 5),)  # seen only where there are several objectives
    outcome = TrialOutcome(
        number=number,
        status=status,
        parameters=parameters,
        value=value,
        step=number % 20,
        further_values=further,
        own_failure=status is TrialStatus.FAILED and number % 3 != 1,
    )
    return TrialEnded(line=line, outcome=outcome)


def search(
    fold: TunerFold, *, trials: int, parallel: int = 3, snapshots: dict[int, str] | None = None
) -> list[TunerItem]:
    """The lines of a whole search, its requests with what was answered to them; ``snapshots`` takes those of it."""
    lines: list[TunerItem] = []
    running: list[tuple[int, Parameters]] = []
    shuffle = random.Random(5)

    def note(*new: TunerItem) -> None:
        lines.extend(new)
        if snapshots is not None and len(lines) in SNAPSHOT_LINES:
            snapshots[len(lines)] = json.dumps(fold.state_dict(), allow_nan=False)

    note()
    for number in range(1, trials + 1):
        request = SuggestionRequested(line=len(lines) + 1, number=number)
        answer = fold.take(request)
        if isinstance(answer, NoMoreSuggestions):
            break
        assert isinstance(answer, Suggested)
        note(SuggestionRequested(line=request.line, number=number, recorded=answer.parameters))
        running.append((number, answer.parameters))
        while len(running) >= parallel:
            finished, parameters = running.pop(shuffle.randrange(len(running)))
            end = ended(len(lines) + 1, finished, parameters)
            fold.take(end)
            note(end)
    return lines


def requests(lines: list[TunerItem]) -> list[SuggestionRequested]:
    return [line for line in lines if isinstance(line, SuggestionRequested)]


def recorded(lines: list[TunerItem]) -> list[Parameters]:
    return [line.recorded for line in requests(lines) if line.recorded is not None]


def next_answers(fold: TunerFold, number: int, count: int = 2) -> list[Any]:
    return [fold.take(SuggestionRequested(line=10_000 + i, number=number + i)) for i in range(count)]


@pytest.fixture
def searched(case: Case, build: Build, space: dict[str, Any]) -> tuple[list[TunerItem], list[Any]]:
    """The lines of a whole search, and the answers that follow it: made once for all tests that look at them."""
    key = search_key(case, space)
    if key not in SEARCHED:
        fold = TunerFold(build(space), seed=SEED)
        snapshots = SNAPSHOTS[key] = {}
        SEARCHED[key] = search(fold, trials=case.of(TRIALS), snapshots=snapshots), next_answers(fold, TRIALS + 1)
    return SEARCHED[key]


def search_key(case: Case, space: dict[str, Any]) -> str:
    return json.dumps([case.name, case.args, space])


def test_suggestions_lie_inside_the_space(case: Case, space: dict[str, Any], searched: Any) -> None:
    lines, _ = searched
    inside = parse_search_space(space)
    assert all(inside.contains(parameters) for parameters in recorded(lines))
    assert len(recorded(lines)) == case.of(TRIALS)


def test_the_same_seed_and_history_give_the_same_search(build: Build, space: dict[str, Any], searched: Any) -> None:
    """Recorded suggestions are those that a rebuilt tuner would make again, each of them."""
    lines, _ = searched
    again = TunerFold(build(space), seed=SEED)
    for line in lines:
        if isinstance(line, SuggestionRequested):
            answer = again.take(SuggestionRequested(line=line.line, number=line.number))
            assert isinstance(answer, Suggested)
            assert json.dumps(answer.parameters) == json.dumps(line.recorded)
        else:
            again.take(line)


def test_a_suggestion_does_not_change_the_tuner(build: Build, space: dict[str, Any], searched: Any) -> None:
    lines, _ = searched
    tuner = build(space)
    fold = TunerFold(tuner, seed=SEED)
    for line in lines:
        fold.take(line)
    asked = [tuner.suggest(TRIALS + 1, random.Random(3)) for _ in range(2)]
    assert asked[0] == asked[1]


def test_a_tuner_rebuilt_from_the_lines_goes_on_as_the_first(
    build: Build, space: dict[str, Any], searched: Any
) -> None:
    lines, answers = searched
    rebuilt = TunerFold(build(space), seed=SEED)
    for line in lines:
        rebuilt.take(line)
    assert next_answers(rebuilt, TRIALS + 1) == answers


@pytest.mark.parametrize("at", SNAPSHOT_LINES)
def test_a_snapshot_and_the_later_lines_give_the_same_tuner(
    case: Case, build: Build, space: dict[str, Any], searched: Any, at: int
) -> None:
    """A snapshot of the tuner as it was asked: it may hold more than what its lines alone have made of it."""
    lines, answers = searched
    taken = SNAPSHOTS[search_key(case, space)]
    at = max(line for line in taken if line <= at)  # some searches are shorter
    loaded = TunerFold(build(space), seed=SEED)
    loaded.load_state_dict(json.loads(taken[at]))
    for line in lines[at:]:
        loaded.take(line)
    assert next_answers(loaded, TRIALS + 1) == answers


@pytest.mark.parametrize("status", [TrialStatus.EARLY_STOPPED, TrialStatus.FAILED, TrialStatus.SUCCEEDED])
def test_a_search_goes_on_where_no_trial_has_ended_well(build: Build, status: TrialStatus) -> None:
    space = parse_search_space(PLAIN)
    tuner = build(PLAIN)
    for number in range(1, 13):
        parameters = space.sample(random.Random(number))
        tuner.pending(number, parameters)
        value = {TrialStatus.EARLY_STOPPED: parameters["x"], TrialStatus.SUCCEEDED: math.nan}.get(status)
        own = status is TrialStatus.FAILED
        tuner.observe(
            TrialOutcome(number=number, status=status, parameters=parameters, value=value, step=number, own_failure=own)
        )
    suggestion = tuner.suggest(13, random.Random(1))
    assert isinstance(suggestion, dict)
    assert space.contains(suggestion)


def test_parallel_suggestions_differ(build: Build, space: dict[str, Any], searched: Any) -> None:
    fold = TunerFold(build(space), seed=SEED)
    for line in searched[0][:30]:
        fold.take(line)
    keys = [parameters_key(answer.parameters) for answer in next_answers(fold, 16, count=8)]
    assert len(set(keys)) == 8


def test_no_point_of_a_finite_space_comes_twice_while_there_are_others(build: Build) -> None:
    fold = TunerFold(build(SMALL), seed=SEED)
    seen = {parameters_key(parameters) for parameters in recorded(search(fold, trials=12))}
    assert len(seen) == parse_search_space(SMALL).size == 12


def test_custom_and_imported_parameters_are_not_proposed_again(build: Build) -> None:
    fold = TunerFold(build(SMALL), seed=SEED)
    known = [{"a": "x", "b": 0}, {"a": "y", "b": 2}, {"a": "z", "b": 3}]
    fold.take(CustomTrialAdded(line=1, number=1, parameters=known[0]))
    outcomes = tuple(
        TrialOutcome(number=0, status=TrialStatus.SUCCEEDED, parameters=p, value=0.5, source="imported")
        for p in known[1:]
    )
    fold.take(ResultsImported(line=2, outcomes=outcomes))
    answers = [fold.take(SuggestionRequested(line=3 + i, number=2 + i)) for i in range(9)]
    keys = {parameters_key(answer.parameters) for answer in answers if isinstance(answer, Suggested)}
    assert len(keys) == 9
    assert not keys & set(map(parameters_key, known))


def test_parameters_outside_the_space_are_tolerated_in_the_history(build: Build) -> None:
    fold = TunerFold(build(SMALL), seed=SEED)
    strange = {"a": "elsewhere", "c": [1]}
    fold.take(CustomTrialAdded(line=1, number=1, parameters=strange))
    fold.take(ended(2, 1, strange))
    assert isinstance(fold.take(SuggestionRequested(line=3, number=2)), Suggested)


def test_after_a_change_suggestions_lie_inside_the_new_space_also_after_a_rebuild(build: Build) -> None:
    def changed(fold: TunerFold) -> TunerFold:
        for line in [*lines, SearchSpaceUpdated(line=99, search_space=WIDER)]:
            fold.take(line)
        return fold

    lines = search(TunerFold(build(SMALL), seed=SEED), trials=4)
    live, rebuilt, loaded = (TunerFold(build(SMALL), seed=SEED) for _ in range(3))
    changed(live)
    loaded.load_state_dict(json.loads(json.dumps(live.state_dict())))
    answers = next_answers(live, 5, count=3)
    inside: SearchSpace = parse_search_space(WIDER)
    assert all(isinstance(answer, Suggested) and inside.contains(answer.parameters) for answer in answers)
    assert next_answers(changed(rebuilt), 5, count=3) == answers
    assert next_answers(loaded, 5, count=3) == answers


def test_a_filled_space_ends_the_search_or_is_searched_again(build: Build) -> None:
    fold = TunerFold(build(SMALL), seed=SEED)
    search(fold, trials=12)
    again = fold.take(SuggestionRequested(line=500, number=13))
    assert isinstance(again, Suggested | NoMoreSuggestions)
    if isinstance(again, NoMoreSuggestions):
        assert isinstance(build(SMALL).suggest(1, random.Random(0)), dict)
        assert fold.take(SuggestionRequested(line=501, number=13)) == NoMoreSuggestions(line=501)
    assert not isinstance(build(SMALL).suggest(1, random.Random(0)), Exhausted)


def test_a_thousand_trials_are_folded_and_asked_for_quickly(case: Case, build: Build, space: dict[str, Any]) -> None:
    thousand = folded(case, build, space)
    started = time.process_time()
    next_answers(thousand.fold, 1001, count=1 if case.share < 1 else 3)
    assert thousand.took_s + time.process_time() - started < 30


def test_memory_grows_with_the_history_and_with_nothing_else(case: Case, build: Build) -> None:
    thousand = folded(case, build, SPACES["flat"])
    assert thousand.state_bytes < 1_000 * 500
    assert thousand.grown_bytes < GROWN_BYTES


@dataclass(frozen=True, kw_only=True)
class Thousand:
    """A thousand trials, folded once for all tests of them; what one asks for, it is not the first to ask for."""

    fold: TunerFold
    took_s: float
    state_bytes: int = 0  # of one in the flat space
    grown_bytes: int = 0  # by suggestions, likewise


def folded(case: Case, build: Build, space: dict[str, Any]) -> Thousand:
    key = search_key(case, space)
    if key not in FOLDED:
        tuner, lines = build(space), thousand_lines(json.dumps(space))
        fold = TunerFold(tuner, seed=SEED)
        started = time.process_time()
        for line in lines:
            fold.take(line)
        took_s = time.process_time() - started
        is_flat = space == SPACES["flat"]
        state_bytes, grown = (len(json.dumps(fold.state_dict())), grown_bytes(case, tuner)) if is_flat else (0, 0)
        FOLDED[key] = Thousand(fold=fold, took_s=took_s, state_bytes=state_bytes, grown_bytes=grown)
    return FOLDED[key]


def grown_bytes(case: Case, tuner: Tuner) -> int:
    tuner.suggest(1001, random.Random(0))
    asked = 1 if case.share < 1 else 2
    tracemalloc.start()
    try:
        for number in range(asked):
            tuner.suggest(1001, random.Random(number))
        if tracemalloc.get_traced_memory()[0] >= GROWN_BYTES:
            gc.collect()  # of all libraries, which takes a while
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@cache
def thousand_lines(space: str) -> list[TunerItem]:
    rng = random.Random(1)
    inside = parse_search_space(json.loads(space))
    lines: list[TunerItem] = []
    for number in range(1, 1001):
        parameters = inside.sample(rng)
        lines.append(SuggestionRequested(line=2 * number - 1, number=number, recorded=parameters))
        lines.append(ended(2 * number, number, parameters))
    return lines


# ── several objectives ──────────────────────────────────────────────────────────────────────────
TWO = Objective(metric="loss", further=(Objective(metric="speed", goal=Goal.MAXIMIZE),))


def test_the_registry_and_the_class_say_the_same_of_several_objectives(case: Case, build: Build) -> None:
    assert build(SMALL).several_objectives == TUNERS[case.name].several_objectives


def test_several_objectives_are_searched_or_refused_at_the_start(case: Case, space: dict[str, Any]) -> None:
    parsed = parse_search_space(space)
    args = {"parameters": listed(parsed)} if case.name == "batch" else case.args
    command = Initialize(
        experiment_id="x", search_space=space, objective=TWO, seed=SEED, tuner=AlgorithmSpec(name=case.name, args=args)
    )
    if not TUNERS[case.name].several_objectives:
        with pytest.raises(SearchSpaceNotSupportedError, match="objective"):
            build_tuner_fold(command)
        return
    trials = case.of(16)
    searches = [search(build_tuner_fold(command), trials=trials) for _ in range(2)]
    assert recorded(searches[0]) == recorded(searches[1])
    assert len(recorded(searches[0])) == trials
    assert all(parsed.contains(parameters) for parameters in recorded(searches[0]))

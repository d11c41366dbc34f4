"""Several suggestions at a time, further ones of a trial, and trials that people add: the folds' side of them."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tuner_service.assessors.median_stop import MedianStop
from tuner_service.dispatcher.items import (
    Answer,
    CustomTrialAdded,
    MetricsReported,
    Queue,
    StopAdvised,
    Suggested,
    SuggestionRequested,
    Taken,
    TrialEnded,
)
from tuner_service.domain.experiment import Objective
from tuner_service.domain.search_space import parse_search_space
from tuner_service.domain.seeds import suggestion_generator
from tuner_service.domain.trial import Parameters, Report, TrialOutcome, TrialStatus
from tuner_service.tuners.base import Suggestion, Tuner
from tuner_service.tuners.random_search import RandomTuner
from tuner_service.workers.folds.folding import AssessorFold, TunerFold
from tuner_service.workers.messages import Told, command_from_wire, command_to_wire

OBJECTIVE = Objective(metric="loss")
LINE = parse_search_space({"x": {"_type": "uniform", "_value": [0, 1]}})
BITS = parse_search_space({"a": {"type": "bool"}, "b": {"type": "bool"}})
TOGETHER_S = 10.0


class MeetingTuner(Tuner):
    """Answers only when ``parties`` calls are there at a time."""

    suggests_in_parallel = True

    def __init__(self, parties: int) -> None:
        super().__init__(LINE, OBJECTIVE)
        self._barrier = threading.Barrier(parties, timeout=TOGETHER_S)
        self.told: list[int] = []

    def suggest(self, number: int, rng: random.Random) -> Suggestion:
        self._barrier.wait()
        if number == 3:
            raise ValueError("three is too much")
        return {"x": rng.random()}

    def pending(self, number: int, parameters: Parameters) -> None:
        self.told.append(number)

    def observe(self, outcome: TrialOutcome) -> None:
        self._barrier.wait()
        if outcome.number == 3:
            raise ValueError("three is too much")


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as executor:
        yield executor


def requests(*numbers: int) -> list[SuggestionRequested]:
    return [SuggestionRequested(line=number, number=number) for number in numbers]


def test_suggestions_are_computed_at_the_same_time_and_told_in_line_order(pool: ThreadPoolExecutor) -> None:
    tuner = MeetingTuner(2)
    fold = TunerFold(tuner, seed=1)
    asked = requests(1, 2)
    fold.suggest_ahead(asked, pool)

    answers = [fold.take(item) for item in asked]

    drawn = [{"x": suggestion_generator(1, number).random()} for number in (1, 2)]
    assert answers == [Suggested(line=number, parameters=drawn[number - 1]) for number in (1, 2)]
    assert tuner.told == [1, 2]


def test_one_that_raises_raises_at_its_own_line(pool: ThreadPoolExecutor) -> None:
    fold = TunerFold(MeetingTuner(2), seed=1)
    asked = requests(2, 3)
    fold.suggest_ahead(asked, pool)
    assert isinstance(fold.take(asked[0]), Suggested)
    with pytest.raises(ValueError, match="three"):
        fold.take(asked[1])


def test_ends_of_trials_are_told_at_the_same_time_and_taken_in_line_order(pool: ThreadPoolExecutor) -> None:
    fold = TunerFold(MeetingTuner(2), seed=1)
    told = [ended(1, 1), ended(2, 2)]
    fold.observe_ahead(told, pool)
    assert [fold.take(item) for item in told] == [Taken(line=1), Taken(line=2)]

    failing = [ended(3, 2), ended(4, 3)]
    fold.observe_ahead(failing, pool)
    assert fold.take(failing[0]) == Taken(line=3)
    with pytest.raises(ValueError, match="three"):
        fold.take(failing[1])


@pytest.mark.parametrize("seed", range(20))
def test_random_draws_of_one_moment_do_not_repeat_one_another(pool: ThreadPoolExecutor, seed: int) -> None:
    fold = TunerFold(RandomTuner(BITS, OBJECTIVE), seed=seed)
    asked = requests(1, 2, 3, 4)
    fold.suggest_ahead(asked, pool)
    given: list[Answer] = [fold.take(item) for item in asked]
    assert len({str(answer.parameters) for answer in given if isinstance(answer, Suggested)}) == 4


def test_a_further_suggestion_has_a_generator_of_its_own() -> None:
    fold = TunerFold(RandomTuner(LINE, OBJECTIVE), seed=3)
    answers = [fold.take(SuggestionRequested(line=n, number=1, index=n - 1)) for n in (1, 2, 3)]
    values = [answer.parameters["x"] for answer in answers if isinstance(answer, Suggested)]
    assert values == [LINE.sample(suggestion_generator(3, 1, index))["x"] for index in range(3)]
    assert len(set(values)) == 3
    assert suggestion_generator(3, 1).random() == suggestion_generator(3, 1, 0).random()


def test_the_index_of_a_request_survives_the_journey() -> None:
    for index in (0, 2):
        item = SuggestionRequested(line=4, number=1, index=index, recorded={"x": 0.5})
        told = Told(queue=Queue.TUNER, item=item)
        assert command_from_wire(command_to_wire(told)) == told


# ── the assessor of a deterministic experiment ──────────────────────────────────────────────────
def report(line: int, number: int, value: float, step: int = 0) -> MetricsReported:
    return MetricsReported(line=line, number=number, reports=(Report(step=step, value=value),), sequences=(step + 1,))


def ended(line: int, number: int) -> TrialEnded:
    return TrialEnded(
        line=line, outcome=TrialOutcome(number=number, status=TrialStatus.SUCCEEDED, parameters={}, value=0.1)
    )


@pytest.mark.parametrize("added_first", [True, False])
def test_an_added_trial_is_judged_by_what_was_told_before_it_was_added(added_first: bool) -> None:
    fold = AssessorFold(MedianStop(OBJECTIVE, min_trials=1), deterministic=True)
    added = CustomTrialAdded(line=2, number=2, parameters={})
    before: list[Any] = [added] if added_first else []
    after: list[Any] = [] if added_first else [added]
    told = [SuggestionRequested(line=1, number=1), *before, report(3, 1, 0.1), ended(4, 1), *after]
    assert all(isinstance(fold.take(item), Taken) for item in told)

    verdict = fold.take(report(5, 2, 0.9))

    assert isinstance(verdict, Taken if added_first else StopAdvised)


def test_further_parameters_do_not_begin_a_trial_anew() -> None:
    fold = AssessorFold(MedianStop(OBJECTIVE, min_trials=1), deterministic=True)
    told = [
        SuggestionRequested(line=1, number=1),
        SuggestionRequested(line=2, number=2),
        report(3, 1, 0.1),
        ended(4, 1),
    ]
    for item in told:
        fold.take(item)
    fold.take(SuggestionRequested(line=5, number=2, index=1))
    assert isinstance(fold.take(report(6, 2, 0.9)), Taken)

"""``workers: N``: several suggestions asked for at a time."""

from __future__ import annotations

from tests.unit.dispatcher.harness import CRASHED, Harness
from tuner_service.dispatcher.items import NoMoreSuggestions, NoSuggestionYet, Queue, Suggested
from tuner_service.domain.experiment import ExperimentReason


def test_as_many_suggestions_are_asked_for_as_there_are_workers_and_room(h: Harness) -> None:
    h.begin(workers=3, budget={"parallel": 5})
    assert h.asked_for() == [1, 2, 3]
    h.suggest()
    assert h.asked_for() == [2, 3, 4]
    for _ in range(3):
        h.suggest()
    assert h.asked_for() == [5]
    h.suggest()
    assert h.asked_for() == []


def test_no_more_are_asked_for_than_the_budget_allows(h: Harness) -> None:
    h.begin(workers=4, budget={"trials": 2, "parallel": 4})
    assert h.asked_for() == [1, 2]


def test_answers_in_one_batch_make_their_trials(h: Harness) -> None:
    h.begin(workers=2)
    answers = [Suggested(line=r.line, parameters={"lr": r.number / 10}) for r in h.xs.requests]
    h.answer(Queue.TUNER, *answers)
    assert [h.trial(number).parameters for number in (1, 2)] == [{"lr": 0.1}, {"lr": 0.2}]


def test_a_number_asked_for_in_vain_is_given_out_first(h: Harness) -> None:
    h.begin(workers=3, budget={"trials": 5, "parallel": 3})
    first, second, third = h.xs.requests
    h.answer(
        Queue.TUNER,
        Suggested(line=first.line, parameters={}),
        NoSuggestionYet(line=second.line),
        Suggested(line=third.line, parameters={}),
    )
    assert h.experiment.free_numbers == (2,)
    assert h.asked_for() == []

    h.started(3)
    h.exit(3, CRASHED)
    assert h.asked_for() == [2, 4]
    h.suggest_nothing_yet()
    h.add_trial()
    assert h.trial(2).source == "custom"
    assert h.experiment.free_numbers == ()


def test_free_numbers_survive_a_restart_and_use_none_of_the_budget(h: Harness) -> None:
    h.begin(workers=2, budget={"trials": 2, "parallel": 2})
    first, second = h.xs.requests
    h.answer(Queue.TUNER, NoSuggestionYet(line=first.line), Suggested(line=second.line, parameters={}))
    h.restart()
    h.connect()
    h.started(2)
    h.succeed(2)
    assert h.asked_for() == [1]
    h.ready()
    h.suggest()
    h.started(1)
    h.succeed(1)
    assert h.experiment.reason is ExperimentReason.BUDGET_REACHED


def test_an_exhausted_space_ends_the_experiment_when_every_request_is_answered(h: Harness) -> None:
    h.begin(workers=2)
    first, second = h.xs.requests
    h.answer(Queue.TUNER, NoMoreSuggestions(line=first.line))
    assert h.asked_for() == [2]
    h.answer(Queue.TUNER, NoMoreSuggestions(line=second.line))
    assert h.experiment.reason is ExperimentReason.SPACE_EXHAUSTED
    assert h.experiment.free_numbers == (1, 2)

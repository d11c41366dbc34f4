"""What a person is told of: once, whatever was missed in between."""

from __future__ import annotations

from dataclasses import replace

from tests.builders import an_experiment
from tuner_service.domain.experiment import Experiment, ExperimentReason, ExperimentStatus
from tuner_service.service.notices import TEXT_LIMIT, Event, Mark, mark_of, notices_of, text_of

RUNNING = ExperimentStatus.RUNNING


def an_experiment_that(status: ExperimentStatus = RUNNING, failed: int = 0, **fields: object) -> Experiment:
    return replace(an_experiment(), status=status, counts={"failed": failed}, **fields)  # type: ignore[arg-type]


def told(*experiments: Experiment, mark: Mark | None = None) -> list[Event]:
    """By somebody who sees these one after the other."""
    mark, events = mark or Mark(), []
    for experiment in experiments:
        found, mark = notices_of(mark, experiment)
        events += [notice.event for notice in found]
    return events


def test_an_end_is_told_once_and_another_end_again() -> None:
    first = an_experiment_that(ExperimentStatus.COMPLETED, ended_at=5.0)
    second = an_experiment_that(ExperimentStatus.FAILED, ended_at=9.0)

    assert told(first, first, an_experiment_that(), second) == [Event.END, Event.END]
    assert told(first, second) == [Event.END, Event.END]


def test_a_pause_by_a_person_is_not_told_and_one_by_the_service_is_each_time() -> None:
    trouble = an_experiment_that(ExperimentStatus.PAUSED, reason=ExperimentReason.ALGORITHM_FAILED)
    person = an_experiment_that(ExperimentStatus.PAUSED, reason=ExperimentReason.REQUESTED)

    assert told(person, an_experiment_that(), trouble, trouble, an_experiment_that(), trouble) == [Event.PAUSE] * 2


def test_failures_are_told_at_the_first_and_whenever_there_are_twice_as_many() -> None:
    seen = [an_experiment_that(failed=count) for count in range(20)]

    assert len(told(*seen)) == 5  # 1, 2, 4, 8, 16


def test_what_was_missed_is_told_later_and_what_counts_as_told_is_not() -> None:
    ended = an_experiment_that(ExperimentStatus.FAILED, failed=3, ended_at=5.0)

    assert told(ended) == [Event.FAILURES, Event.END]
    assert told(ended, mark=mark_of(ended)) == []
    paused = an_experiment_that(ExperimentStatus.PAUSED, reason=ExperimentReason.WORKER_DIES)
    assert told(paused, mark=mark_of(paused)) == []


def test_the_text_says_what_happened_is_bounded_and_steers_no_terminal() -> None:
    text = text_of(
        Event.END,
        an_experiment_that(
            ExperimentStatus.FAILED,
            failed=2,
            reason=ExperimentReason.TOO_MANY_FAILURES,
            message="\x1b[2J" + "x" * 9_000,
        ),
    )

    assert text.splitlines()[0].endswith("is failed (too_many_failures)")
    assert "\x1b" not in text
    assert len(text) <= TEXT_LIMIT + 1
    assert text_of(Event.FAILURES, an_experiment_that(failed=1)).startswith("1 trial of experiment")


def test_an_experiment_names_commands_of_its_own() -> None:
    ended = an_experiment_that(ExperimentStatus.COMPLETED, ended_at=5.0)
    ended = replace(ended, spec=replace(ended.spec, on_end=("mail",)))
    found, _ = notices_of(Mark(), ended)

    assert [(notice.event, notice.names) for notice in found] == [(Event.END, ("mail",))]

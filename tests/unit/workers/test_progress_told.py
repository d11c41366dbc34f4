"""A worker says now and then that it comes on: each call of an algorithm has its time, and not all of them together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.workers.test_choices_told import Sent, a_thread, request, told
from tests.unit.workers.test_folding import ForgetfulAssessor, LearningAssessor, end, metrics
from tuner_service.advisors.base import Advisor
from tuner_service.assessors.base import Keep
from tuner_service.dispatcher.commands import WorkerProgressed
from tuner_service.dispatcher.items import Queue
from tuner_service.domain.experiment import AlgorithmSpec, Objective
from tuner_service.domain.search_space import parse_search_space
from tuner_service.workers import worker as module
from tuner_service.workers.folds.advisor import AdvisorFold
from tuner_service.workers.folds.folding import AssessorFold
from tuner_service.workers.link import WorkerLink
from tuner_service.workers.messages import Folded

OBJECTIVE = Objective(metric="loss")


class Judging(Advisor):
    """Of each report it says that the trial is to go on."""

    judges = learns_while_assessing = True

    def suggest(self, number: int, rng: Any) -> Any: ...

    def rested(self, trial: int, reports: Any) -> None: ...

    def ended(self, outcome: Any, reports: Any) -> None: ...

    def assess(self, trial: int, reports: Any) -> Keep:
        return Keep()


def counted(fold: Any) -> list[int]:
    calls: list[int] = []
    fold.on_report = lambda: calls.append(len(calls))
    return calls


def test_every_report_that_is_assessed_is_progress() -> None:
    fold = AssessorFold(ForgetfulAssessor(OBJECTIVE))
    calls = counted(fold)
    fold.take(metrics(1, 1, (1, 0.5), (2, 0.4), (3, 0.3)))

    assert len(calls) == 3


def test_and_every_one_that_is_assessed_once_more_when_its_trial_has_ended() -> None:
    fold = AssessorFold(LearningAssessor(), deterministic=True)
    fold.take(metrics(1, 1, (1, 0.5), (2, 0.4)))
    calls = counted(fold)
    fold.take(end(2, 1))

    assert len(calls) == 2


def test_so_it_is_with_an_advisor() -> None:
    advisor = Judging(parse_search_space({"x": {"type": "bool"}}), OBJECTIVE)
    fold = AdvisorFold(advisor, seed=1, deterministic=True)
    fold.take(metrics(1, 1, (1, 0.5)))
    fold._decide_anew(1)
    calls = counted(fold)
    fold.take(metrics(2, 1, (2, 0.5), (3, 0.4)))
    assert len(calls) == 2
    fold.take(end(3, 1))
    assert len(calls) == 5


class Clock:
    now = 100.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> type[Clock]:
    monkeypatch.setattr(module.time, "monotonic", lambda: Clock.now)
    return Clock


def test_reports_of_a_long_item_are_told_once_a_second_at_most(clock: type[Clock]) -> None:
    sent = Sent()
    thread, _ = a_thread(sent, tuner=AlgorithmSpec(name="random"))
    for _ in range(10):
        clock.now += 0.3
        thread._tell_progress()

    assert sent.messages == [Folded(queue=Queue.TUNER, count=0)] * 2


def test_history_that_is_folded_slowly_is_told_though_more_of_it_waits(clock: type[Clock]) -> None:
    sent = Sent()
    thread, fold = a_thread(sent, tuner=AlgorithmSpec(name="random"))
    for line in range(1, 5):
        thread.commands.put(None)  # type: ignore[arg-type]  # more waits
        clock.now += 0.6
        told(thread, fold, request(line, recorded={"x": 0.5}))

    assert sent.messages == [Folded(queue=Queue.TUNER, count=2)] * 2


def test_the_service_hears_of_progress_once_a_second_at_most(tmp_path: Path) -> None:
    events: list[Any] = []
    link = WorkerLink(
        experiment_id="e1",
        generation=1,
        log_path=tmp_path / "e1.log",
        now=lambda: Clock.now,
        on_event=events.append,
    )
    for moment in (10.0, 10.4, 10.9, 11.0, 3.0):  # a clock may be set back
        Clock.now = moment
        link._hear(Folded(queue=Queue.ASSESSOR, count=0))

    assert [event.at for event in events] == [10.0, 11.0, 3.0]
    assert events[0] == WorkerProgressed(at=10.0, experiment_id="e1", generation=1, queue=Queue.ASSESSOR)

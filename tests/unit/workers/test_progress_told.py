"""A worker says now and then that it comes on: each call of an algorithm has its time, and not all of them together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.builders import a_spec
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
from tuner_service.workers.messages import Folded, initialize

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
    fold._fork_for(fold._decide_anew(1))
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


def a_link(folder: Path, on_event: Callable[[Any], None], **options: Any) -> WorkerLink:
    names: dict[str, Any] = {"experiment_id": "e1", "generation": 1, "log_path": folder / "e1.log"}
    return WorkerLink(**names, now=lambda: Clock.now, on_event=on_event, **options)


def test_the_service_hears_of_progress_twice_a_second_at_most(tmp_path: Path) -> None:
    events: list[Any] = []
    link = a_link(tmp_path, events.append)
    for moment in (10.0, 10.2, 10.4, 10.5, 3.0):  # a clock may be set back
        Clock.now = moment
        link._hear(Folded(queue=Queue.ASSESSOR, count=0))

    assert [event.at for event in events] == [10.0, 10.5, 3.0]
    assert events[0] == WorkerProgressed(at=10.0, experiment_id="e1", generation=1, queue=Queue.ASSESSOR)


@pytest.mark.parametrize(("timeout_s", "every_s"), [(600.0, 1.0), (4.0, 1.0), (1.0, 0.25), (1e-6, 0.05)])
def test_what_has_to_answer_soon_tells_its_progress_as_often_as_that_needs(
    clock: type[Clock], timeout_s: float, every_s: float
) -> None:
    sent = Sent()
    spec = replace(a_spec(), algorithm_timeout_s=timeout_s)
    command = initialize("e1", spec, code_folder=None)
    assert command.progress_every_s == every_s

    thread, _ = a_thread(sent, tuner=AlgorithmSpec(name="random"), progress_every_s=every_s)
    for _ in range(4):
        clock.now += 1.01 * every_s
        thread._tell_progress()
    assert len(sent.messages) == 4


def test_a_word_that_a_worker_says_in_time_is_heard_though_its_clock_is_another_one(tmp_path: Path) -> None:
    def no_process(_: Path) -> NoReturn:
        raise OSError("the link has been told what it is for by then")

    events: list[Any] = []
    link = a_link(tmp_path, events.append, spawn=no_process)
    with pytest.raises(OSError, match="the link"):
        link.start(
            initialize("e1", replace(a_spec(), algorithm_timeout_s=1.0), code_folder=None), snapshots={}, history={}
        )
    for moment in (10.0, 10.249, 10.499):  # each a quarter of a second after the one before, by the worker's clock
        Clock.now = moment
        link._hear(Folded(queue=Queue.ASSESSOR, count=0))

    assert [event.at for event in events] == [10.0, 10.249, 10.499]

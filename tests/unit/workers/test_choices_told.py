"""What ``auto`` does as it goes, and why, comes to people: from the algorithm to the view of its experiment."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tuner_service.dispatcher.items import Queue, SuggestionRequested, TrialEnded
from tuner_service.domain.experiment import AlgorithmSpec, Objective
from tuner_service.domain.trial import Decision, DecisionKind, TrialOutcome, TrialStatus
from tuner_service.workers.building import build_advisor_fold, build_tuner_fold
from tuner_service.workers.link import WorkerLink
from tuner_service.workers.messages import Choosing, HistoryEnd, Initialize, Told
from tuner_service.workers.pool import WorkerPool
from tuner_service.workers.worker import Fold, QueueThread

SPACE = {"x": {"type": "float", "low": 0, "high": 1}}
AUTO = AlgorithmSpec(name="auto")


class Sent:
    def __init__(self) -> None:
        self.messages: list[Any] = []

    def send(self, *messages: Any) -> None:
        self.messages += messages

    @property
    def choices(self) -> list[str]:
        return [message.text for message in self.messages if isinstance(message, Choosing)]


def a_thread(sent: Sent, **fields: Any) -> tuple[QueueThread, Fold]:
    command = Initialize(
        experiment_id="e1", search_space=SPACE, objective=Objective(metric="loss"), seed=7, **({"tuner": AUTO} | fields)
    )
    fold = build_tuner_fold(command) if command.advisor is None else build_advisor_fold(command, command.advisor)
    thread = QueueThread(
        Queue.TUNER,
        sent,
        build=lambda: fold,
        on_ready=lambda _: None,
        command=command,  # type: ignore[arg-type]
    )
    return thread, fold


def told(thread: QueueThread, fold: Fold, *items: Any) -> None:
    for item in items:
        thread._perform(Told(queue=Queue.TUNER, item=item), fold)


def request(line: int, **recorded: Any) -> SuggestionRequested:
    return SuggestionRequested(line=line, number=line, **recorded)


def end(line: int, number: int) -> TrialEnded:
    outcome = TrialOutcome(number=number, status=TrialStatus.SUCCEEDED, parameters={"x": 0.5}, value=1.0)
    return TrialEnded(line=line, outcome=outcome)


def test_the_tuner_auto_says_what_it_does_whenever_that_changes() -> None:
    sent = Sent()
    thread, fold = a_thread(sent)
    told(thread, fold, request(1, recorded={"x": 0.5}))  # of the history: nobody looks
    assert sent.choices == []

    thread._perform(HistoryEnd(queue=Queue.TUNER), fold)
    told(thread, fold, request(2), request(3), end(4, 1), request(5))

    assert sent.choices == [
        "random: the first 5 results come from random draws (0 so far)",
        "random: the first 5 results come from random draws (1 so far)",
    ]


def test_the_advisor_auto_says_so_too() -> None:
    sent = Sent()
    thread, fold = a_thread(sent, tuner=AlgorithmSpec(), advisor=AUTO)
    decision = Decision(kind=DecisionKind.START, number=1, parameters={"x": 0.5})
    told(thread, fold, request(1, decision=decision))
    thread._perform(HistoryEnd(queue=Queue.TUNER), fold)
    told(thread, fold, request(2))

    assert sent.choices == ["random: the first 10 trials are drawn at random (0 have reported)"]


def test_no_other_algorithm_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = Sent()
    thread, fold = a_thread(sent, tuner=AlgorithmSpec(name="random"))
    monkeypatch.setattr(type(fold), "choice", property(lambda _: 1 / 0))
    thread._perform(HistoryEnd(queue=Queue.TUNER), fold)
    told(thread, fold, request(1))

    assert sent.choices == []


def test_what_cannot_be_told_costs_no_suggestion(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    sent = Sent()
    thread, fold = a_thread(sent)
    monkeypatch.setattr(type(fold), "choice", property(lambda _: 1 / 0))
    thread._perform(HistoryEnd(queue=Queue.TUNER), fold)
    told(thread, fold, request(1), request(2))
    thread._flush()

    assert [answer.line for message in sent.messages for answer in message.answers] == [1, 2]
    assert capfd.readouterr().err.count("what auto does cannot be told: ZeroDivisionError") == 1


def test_the_service_knows_the_newest_of_each_experiment(tmp_path: Path) -> None:
    link = WorkerLink(
        experiment_id="e1", generation=1, log_path=tmp_path / "e1.log", now=time.monotonic, on_event=lambda _: None
    )
    pool = WorkerPool(
        store=None,
        code=None,
        folder=tmp_path,
        now=time.monotonic,
        on_event=lambda _: None,
        forks=None,  # type: ignore[arg-type]
    )
    pool._links["e1"] = (1, link)
    assert pool.choice("e1") == pool.choice("other") == ""

    link._hear(Choosing(text="tpe: too many results for a Gaussian process"))

    assert pool.choice("e1") == "tpe: too many results for a Gaussian process"


def suggested(*, looks: bool, **fields: Any) -> list[Any]:
    """What is proposed in twenty trials, of which each third fails by its own doing."""
    _, fold = a_thread(Sent(), **fields)
    found: list[Any] = []
    for number in range(1, 21):
        answer: Any = fold.take(SuggestionRequested(line=2 * number - 1, number=number))  # type: ignore[arg-type]
        found.append(answer.decision.parameters if fields else answer.parameters)
        if looks:
            assert fold.choice
        failed = number % 3 == 0
        outcome = TrialOutcome(
            number=number,
            status=TrialStatus.FAILED if failed else TrialStatus.SUCCEEDED,
            parameters=found[-1],
            value=None if failed else (found[-1]["x"] - 0.3) ** 2,
            own_failure=failed,
        )
        fold.take(TrialEnded(line=2 * number, outcome=outcome))
    return found


@pytest.mark.parametrize("fields", [{}, {"tuner": AlgorithmSpec(), "advisor": AUTO}], ids=["tuner", "advisor"])
def test_who_is_told_changes_no_search(fields: dict[str, Any]) -> None:
    assert suggested(looks=True, **fields) == suggested(looks=False, **fields)

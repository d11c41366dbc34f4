"""The generators that a process shares: a tuner that seeds them is disturbed by no assessor beside it."""

from __future__ import annotations

import importlib
import random
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import MagicMock

import pytest

from tests.waiting import wait_until
from tuner_service.assessors.base import Assessor, Keep, Verdict
from tuner_service.dispatcher.items import MetricsReported, Queue
from tuner_service.domain.experiment import AlgorithmSpec, Objective
from tuner_service.domain.search_space import parse_search_space
from tuner_service.domain.trial import Report, TrialOutcome
from tuner_service.global_generators import alone
from tuner_service.workers.folds.folding import AssessorFold
from tuner_service.workers.messages import HistoryEnd, Initialize, Told
from tuner_service.workers.nni.classes import drawing
from tuner_service.workers.worker import QueueThread

RAW = {"x": {"type": "float", "low": 0, "high": 1}}
OBJECTIVE = Objective(metric="loss")
OF_BOTORCH = (
    "botorch.acquisition.logei",
    "botorch.acquisition.multi_objective.logei",
    "botorch.acquisition.objective",
    "botorch.fit",
    "botorch.models",
    "botorch.models.model_list_gp_regression",
    "botorch.models.transforms",
    "botorch.optim.optimize",
    "botorch.sampling.normal",
    "botorch.utils.multi_objective.scalarization",
    "botorch.utils.sampling",
    "gpytorch.mlls",
)
THE_MODEL = "tuner_service.tuners.botorch_model"


def waits_for_its_turn() -> bool:
    return alone._came - alone._served == 2


@pytest.fixture
def botorch_model(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Our module over BoTorch, which need not be installed: what it calls of it is replaced."""
    for name in (*OF_BOTORCH, THE_MODEL):
        monkeypatch.setitem(sys.modules, name, MagicMock())
    del sys.modules[THE_MODEL]
    return importlib.import_module(THE_MODEL)


def test_an_assessor_of_nnis_draws_nothing_between_the_draws_of_botorch(
    botorch_model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    def proposed(between: Callable[[], None]) -> Any:
        def maximum(*_: Any) -> Any:
            between()
            return torch.rand(1)

        monkeypatch.setattr(botorch_model, "_maximum", maximum)
        return botorch_model.propose(parse_search_space(RAW), OBJECTIVE, [], [], seed=5)

    def judge() -> None:
        with drawing("assess", 1):
            torch.rand(3)

    beside = threading.Thread(target=judge)

    def judge_beside() -> None:
        beside.start()
        wait_until(lambda: not beside.is_alive() or waits_for_its_turn())

    disturbed = proposed(judge_beside)
    beside.join()

    assert disturbed == proposed(lambda: None)


class Drawing(Assessor):
    """Draws where it should not."""

    def __init__(self, objective: Objective) -> None:
        super().__init__(objective)
        random.seed(1)

    def assess(self, trial: int, reports: Sequence[Report]) -> Verdict:
        random.random()
        return Keep()

    def ended(self, outcome: TrialOutcome, reports: Sequence[Report]) -> None:
        pass


class Sent:
    def __init__(self) -> None:
        self.messages: list[Any] = []

    def send(self, *messages: Any) -> None:
        self.messages += messages


def test_an_assessor_of_a_user_is_built_and_asked_while_nobody_else_draws() -> None:
    command = Initialize(
        experiment_id="e1",
        search_space=RAW,
        objective=OBJECTIVE,
        seed=7,
        tuner=AlgorithmSpec(name="random"),
        assessor=AlgorithmSpec(class_name="mine:Drawing"),
    )
    sent, ready = Sent(), threading.Event()
    thread = QueueThread(
        Queue.ASSESSOR,
        sent,  # type: ignore[arg-type]
        build=lambda: AssessorFold(Drawing(OBJECTIVE)),
        on_ready=lambda _: ready.set(),
        command=command,
    )
    report = MetricsReported(line=1, number=1, reports=(Report(step=1, value=0.5),), sequences=(1,))

    def draws(disturbed: Callable[[], object]) -> tuple[float, float]:
        random.seed(5)
        first = random.random()
        wait_until(lambda: waits_for_its_turn() or disturbed())
        return first, random.random()

    expected = random.Random(5)
    drawn = expected.random(), expected.random()
    with alone:
        thread.start()
        thread.commands.put(HistoryEnd(queue=Queue.ASSESSOR))
        assert draws(ready.is_set) == drawn
    assert ready.wait(60)
    with alone:
        thread.commands.put(Told(queue=Queue.ASSESSOR, item=report))
        assert draws(lambda: sent.messages) == drawn
    wait_until(lambda: sent.messages)


def test_whoever_holds_the_generators_may_take_them_again() -> None:
    with alone, alone:
        pass
    taken = threading.Thread(target=lambda: alone.__enter__() or alone.__exit__())
    taken.start()
    taken.join(60)
    assert not taken.is_alive()

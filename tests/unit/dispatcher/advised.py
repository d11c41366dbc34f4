"""The harness for an experiment with an advisor, whose answers the test gives."""

from __future__ import annotations

from typing import Any

from tests.unit.dispatcher.harness import EXITED, Harness, a_checkpoint_record, an_intermediate
from tuner_service.dispatcher.items import (
    Answer,
    Decided,
    MetricsReported,
    PauseAdvised,
    Queue,
    SuggestionRequested,
    Taken,
)
from tuner_service.domain.experiment import AlgorithmSpec
from tuner_service.domain.trial import Decision, DecisionKind

ADVISOR = AlgorithmSpec(name="asha_promote")


class Advised(Harness):
    """An experiment with an advisor, whose answers the test gives."""

    def begin(self, **overrides: Any) -> Advised:
        fields: dict[str, Any] = {"budget": {"trials": 3, "parallel": 1}} | overrides
        self.create(advisor=ADVISOR, **fields)
        self.ready()
        self.connect()
        return self

    def tell(self, make: Any) -> None:
        """Answer what stands before the request, and the request by ``make(item)``."""
        answers: list[Answer] = []
        for item in self.pending(Queue.TUNER):
            if isinstance(item, SuggestionRequested):
                self.answer(Queue.TUNER, *answers, make(item))
                return
            answers.append(Taken(line=item.line))
        raise AssertionError("nothing is asked for")

    def decide(self, kind: DecisionKind = DecisionKind.START, **fields: Any) -> None:
        def make(item: SuggestionRequested) -> Answer:
            given = {"number": item.number, "parameters": {"lr": 0.1}} | fields
            return Decided(line=item.line, decision=Decision(kind=kind, **given))

        self.tell(make)

    def promote(self, number: int, until_step: int | None = None, **fields: Any) -> None:
        self.decide(DecisionKind.PROMOTE, number=number, parameters=None, until_step=until_step, **fields)

    def judge(self, make: Any) -> None:
        """Answer everything up to the first reports, and these by ``make(item)``."""
        answers: list[Answer] = []
        for item in self.pending(Queue.TUNER):
            if isinstance(item, MetricsReported):
                self.answer(Queue.TUNER, *answers, make(item))
                return
            answers.append(Taken(line=item.line))
        raise AssertionError("there are no reports")

    def pause_at(self, report: int = -1) -> None:
        self.judge(lambda item: PauseAdvised(line=item.line, sequence=item.sequences[report], message="enough"))

    def come_to_rest(self, number: int, step: int, *, saved: bool = True) -> None:
        """From its launch to its rest."""
        self.started(number)
        records = [an_intermediate(step, 0.5)] + ([a_checkpoint_record(step)] if saved else [])
        self.report(number, *records)
        self.exit(number, EXITED)
        self.take(Queue.TUNER)

    def told_to_rest(self) -> list[tuple[int, int]]:
        return [(payload["number"], payload["step"]) for payload in self.journal("trial_rested")]

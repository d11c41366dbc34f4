"""Results from elsewhere, put before the tuner."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trials.wire.plain import to_plain
from tuner_service.dispatcher.items import ResultsImported
from tuner_service.dispatcher.limits import IMPORTED_LINE_CHARACTERS, IMPORTED_OUTCOMES_LIMIT
from tuner_service.dispatcher.routing import LineKind
from tuner_service.dispatcher.state import ExperimentState
from tuner_service.dispatcher.step import Step
from tuner_service.domain.trial import TrialOutcome


def put(step: Step, xs: ExperimentState, outcomes: Sequence[TrialOutcome]) -> None:
    """In their order, on as many lines as they need: a line is told an algorithm worker in one frame."""
    for part in _parts(outcomes):
        line = step.journal(xs, LineKind.OUTCOMES_IMPORTED, {"outcomes": to_plain(part)})
        step.enqueue(xs, LineKind.OUTCOMES_IMPORTED, ResultsImported(line=line, outcomes=part))


def _parts(outcomes: Sequence[TrialOutcome]) -> Iterator[tuple[TrialOutcome, ...]]:
    part: list[TrialOutcome] = []
    characters = 0
    for outcome in outcomes:
        size = len(repr(outcome.parameters))
        if part and (len(part) == IMPORTED_OUTCOMES_LIMIT or characters + size > IMPORTED_LINE_CHARACTERS):
            yield tuple(part)
            part, characters = [], 0
        part.append(outcome)
        characters += size
    yield tuple(part)

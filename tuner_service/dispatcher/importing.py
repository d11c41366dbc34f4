"""Results from elsewhere, put before the tuner."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from trials.wire.plain import to_plain
from tuner_service.dispatcher.items import ResultsImported
from tuner_service.dispatcher.limits import IMPORTED_LINE_BYTES, IMPORTED_OUTCOMES_LIMIT
from tuner_service.dispatcher.routing import LineKind
from tuner_service.dispatcher.state import ExperimentState
from tuner_service.dispatcher.step import Step
from tuner_service.domain.trial import TrialOutcome


def put(step: Step, xs: ExperimentState, outcomes: Sequence[TrialOutcome]) -> None:
    """In their order, on as many lines as they need: a line is told an algorithm worker in one frame."""
    for part in parts_of(outcomes):
        line = step.journal(xs, LineKind.OUTCOMES_IMPORTED, {"outcomes": to_plain(part)})
        step.enqueue(xs, LineKind.OUTCOMES_IMPORTED, ResultsImported(line=line, outcomes=part))


def parts_of(outcomes: Sequence[TrialOutcome]) -> Iterator[tuple[TrialOutcome, ...]]:
    """What stands on one line each."""
    part: list[TrialOutcome] = []
    bytes_ = 0
    for outcome in outcomes:
        # A frame is ASCII: a character beyond that takes six or twelve bytes.
        size = len(json.dumps(to_plain(outcome, brief=True), separators=(",", ":")))
        if part and (len(part) == IMPORTED_OUTCOMES_LIMIT or bytes_ + size > IMPORTED_LINE_BYTES):
            yield tuple(part)
            part, bytes_ = [], 0
        part.append(outcome)
        bytes_ += size
    yield tuple(part)

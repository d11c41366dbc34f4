"""Results from elsewhere, put before the tuner.

There may be 100,000 of them. What they are in the journal is encoded before they are a command, by the thread that has
read them: while the one thread that takes commands encodes, no other experiment goes on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from trials.wire.plain import to_plain
from tuner_service.dispatcher.items import EncodedJson, ImportedLine, ResultsImported
from tuner_service.dispatcher.limits import IMPORTED_LINE_BYTES, IMPORTED_OUTCOMES_LIMIT
from tuner_service.dispatcher.routing import LineKind
from tuner_service.dispatcher.state import ExperimentState
from tuner_service.dispatcher.step import Step
from tuner_service.domain.trial import TrialOutcome

_encode = json.JSONEncoder(separators=(",", ":")).encode  # ASCII only, as rows and frames are


def put(step: Step, xs: ExperimentState, lines: Sequence[ImportedLine]) -> None:
    for imported in lines:
        line = step.journal(xs, LineKind.OUTCOMES_IMPORTED, {"outcomes": imported.encoded})
        step.enqueue(xs, LineKind.OUTCOMES_IMPORTED, ResultsImported(line=line, outcomes=imported.outcomes))


def lines_of(outcomes: Iterable[TrialOutcome]) -> Iterator[ImportedLine]:
    """In their order, on as many lines as they need, and none for no results. Called where it holds up nobody.

    A line is told an algorithm worker in one frame. Each result is encoded by itself, because the encoder lets no other
    thread run meanwhile.
    """
    part: list[TrialOutcome] = []
    texts: list[str] = []
    bytes_ = 0
    for outcome in outcomes:
        text = _encode(to_plain(outcome))
        if part and (len(part) == IMPORTED_OUTCOMES_LIMIT or bytes_ + len(text) > IMPORTED_LINE_BYTES):
            yield _line_of(part, texts)
            part, texts, bytes_ = [], [], 0
        part.append(outcome)
        texts.append(text)
        bytes_ += len(text)
    if part:
        yield _line_of(part, texts)


def _line_of(outcomes: list[TrialOutcome], texts: list[str]) -> ImportedLine:
    return ImportedLine(outcomes=tuple(outcomes), encoded=EncodedJson(f"[{','.join(texts)}]"))

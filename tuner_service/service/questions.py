"""What the analyst is asked, and what it says: the words between the service and the process that computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from tuner_service.domain.experiment import ExperimentId

CURVES_LIMIT = 1_000  # trials whose curves are shown in one answer
CURVES_SHOWN = 100  # of them where nobody says how many
CURVE_POINTS = 200  # of one learning curve
TABLE_ROWS = 100_000  # most trials of one answer
TABLE_CELLS = 2_000_000  # and most cells: some twenty megabytes
TABLE_WIDTH = 200  # most columns
AXES_SHOWN = 20  # of a picture of parallel coordinates
TRIALS_LIMIT = 500_000  # of an experiment that is analysed
SPANS_LIMIT = 20_000  # attempts of one timeline
EXACT_DIGITS = 17  # tell every double from every other

Check = Callable[[], None]


class Kind(StrEnum):
    BEST = "best"
    PARETO = "pareto"
    SLICES = "slices"
    FAILURES = "failures"
    IMPORTANCE = "importance"
    CURVES = "curves"
    TABLE = "table"
    TIMELINE = "timeline"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """``options`` are plain JSON. ``compressed``: whoever asks takes gzip."""

    kind: Kind
    experiment_id: ExperimentId
    options: Mapping[str, Any] = field(default_factory=dict)
    compressed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """``body`` is in gzip where ``compressed``; ``tag`` is that of its content, in either form."""

    body: bytes
    tag: str
    compressed: bool = False
    media_type: str = "application/json"


class NotWantedError(Exception):
    """No client waits for the answer any more."""


class Analyst(Protocol):
    """Computes what grows with a history, away from whoever decides."""

    def prepare(self) -> None:
        """Somebody is about to ask: be ready then, which may take half a second. Returns at once; any thread."""

    def ask(self, question: Question, check: Check) -> Reply:
        """Blocks; any thread. ``check`` is called now and then, and what it raises ends the computing.

        InputError, NotFoundError, LimitExceededError as the question deserves; UnavailableError: try again later.
        """

"""What stands in the two queues, and what comes back.

An item is a journal line as an algorithm sees it. An answer names the line it answers; applying it and moving
the cursor is one transaction, so each answer counts once.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tuner_service.domain.trial import Decision, Parameters, Report, TrialOutcome


class Queue(StrEnum):
    TUNER = "tuner"
    ASSESSOR = "assessor"


class EncodedJson(str):
    """A value in the payload of a journal line that is JSON already: what is stored has it as it stands here."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedLine:
    """Results from elsewhere that will stand on one line of the journal, and how the row of that line has them."""

    outcomes: tuple[TrialOutcome, ...]
    encoded: EncodedJson


# ── items ───────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True, kw_only=True)
class SuggestionRequested:
    """Tuner: propose parameters for trial ``number``. Assessor (deterministic only): the trial is decided here.

    ``index`` above 0: further parameters, for a trial that runs. ``recorded`` is set when a rebuilt worker is told what
    was answered: the tuner is not asked again. An advisor is asked which trial runs next: a new one, ``number`` then,
    or one that rests; ``number`` 0: only one that rests. ``decision`` is what it answered, for a rebuilt worker.
    """

    line: int
    number: int
    recorded: Parameters | None = None
    index: int = 0
    decision: Decision | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsReported:
    """Assessor: new intermediate values of the objective of one trial, in order, none seen before.

    ``sequences`` are the spool sequences of ``reports``, one each; ``values`` all metrics of each report where the
    experiment is deterministic, in which a trial may be cut off there; the worker is not sent them.

    ``unread`` above 0: for so many reports, which stand in their rows alone. They are read when the line is delivered.
    """

    line: int
    number: int
    reports: tuple[Report, ...]
    sequences: tuple[int, ...]
    values: tuple[dict[str, float], ...] = ()
    unread: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRested:
    """Advisor: the trial has come to where it was to run, at the report of ``step``, and waits to be promoted."""

    line: int
    number: int
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialEnded:
    """Both: how a trial ended. Told exactly once."""

    line: int
    outcome: TrialOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultsImported:
    """Tuner: results from elsewhere, as (parameters, value) outcomes without a trial number (0)."""

    line: int
    outcomes: tuple[TrialOutcome, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomTrialAdded:
    """Tuner: trial ``number`` runs with parameters a person chose. The assessor, deterministic: it is decided."""

    line: int
    number: int
    parameters: Parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSpaceUpdated:
    """Tuner: from here on, propose inside this space."""

    line: int
    search_space: dict[str, Any]


TunerItem = SuggestionRequested | TrialEnded | ResultsImported | CustomTrialAdded | SearchSpaceUpdated
AssessorItem = SuggestionRequested | CustomTrialAdded | MetricsReported | TrialEnded
AdvisorItem = TunerItem | MetricsReported | TrialRested
QueueItem = AdvisorItem


# ── answers ─────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True, kw_only=True)
class Suggested:
    """The parameters for the trial that line ``line`` asked for."""

    line: int
    parameters: Parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """An advisor: which trial runs next. The number is that of the line, or of a trial that rests."""

    line: int
    decision: Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class NoSuggestionYet:
    """Nothing to propose before another outcome is known."""

    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NoMoreSuggestions:
    """The space is exhausted."""

    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StopAdvised:
    """The assessor stops the trial of line ``line`` at the report with ``sequence``; ``message`` says why."""

    line: int
    sequence: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseAdvised:
    """An advisor lets the trial of line ``line`` rest at the report with ``sequence``; ``message`` says why."""

    line: int
    sequence: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """The line was folded; nothing follows from it."""

    line: int


Answer = Suggested | Decided | NoSuggestionYet | NoMoreSuggestions | StopAdvised | PauseAdvised | Taken


class AlgorithmFault(StrEnum):
    """What the service does next is decided by this."""

    NOT_SUPPORTED = "not_supported"  # the experiment fails
    TEMPORARY = "temporary"  # asked again, bounded
    RAISED = "raised"  # the experiment is paused, the traceback kept

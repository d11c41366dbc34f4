"""Journal lines as queue items: the one place that knows what a routed line's payload holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trials.wire.plain import from_plain
from tuner_service.dispatcher.changes import JournalLine
from tuner_service.dispatcher.items import (
    CustomTrialAdded,
    MetricsReported,
    QueueItem,
    ResultsImported,
    SearchSpaceUpdated,
    SuggestionRequested,
    TrialEnded,
    TrialRested,
)
from tuner_service.domain.errors import StorageError
from tuner_service.domain.trial import Decision, Parameters, Report, TrialOutcome

# (sequence, step, value of the objective, all values): the last only for the dispatcher, algorithms do not see them
SeenReport = tuple[int, int, float, dict[str, float] | None]


def item_of(
    line: JournalLine, *, recorded: Parameters | Decision | None, seen: Sequence[SeenReport] | None
) -> QueueItem:
    """What an algorithm sees of ``line``.

    ``recorded``: what the trial this line asked for was given, or what an advisor decided. ``seen``: the line's reports
    that algorithms see, by sequence; None where they stay unread.
    """
    payload = line.payload
    match line.kind:
        case "suggestion_requested":  # {"number"}, and {"index"} where it is not 0
            request = SuggestionRequested(line=line.line, number=payload["number"], index=payload.get("index", 0))
            if isinstance(recorded, Decision):
                return replace(request, decision=recorded)
            return replace(request, recorded=recorded)
        case "reports":  # {"number", "attempt", "first", "last"}: the spool sequences it holds
            if seen is None:
                span = reports_on(line)
                return MetricsReported(line=line.line, number=payload["number"], reports=(), sequences=(), unread=span)
            return MetricsReported(
                line=line.line,
                number=payload["number"],
                reports=tuple(Report(step=step, value=value) for _, step, value, _ in seen),
                sequences=tuple(sequence for sequence, _, _, _ in seen),
                values=tuple(values for _, _, _, values in seen if values is not None),
            )
        case "trial_rested":  # {"number", "step"}
            return TrialRested(line=line.line, number=payload["number"], step=payload["step"])
        case "trial_ended":  # {"outcome"}
            return TrialEnded(line=line.line, outcome=_outcome(payload["outcome"]))
        case "outcomes_imported":  # {"outcomes"}
            return ResultsImported(line=line.line, outcomes=tuple(map(_outcome, payload["outcomes"])))
        case "trial_added":  # {"number", "parameters", "retry_of"}
            return CustomTrialAdded(line=line.line, number=payload["number"], parameters=payload["parameters"])
        case "search_space_changed":  # {"search_space"}
            return SearchSpaceUpdated(line=line.line, search_space=payload["search_space"])
        case _:
            raise StorageError(
                f"line {line.line} of experiment {line.experiment_id} is routed to a queue and has the unknown kind "
                f"{line.kind!r}; the database was written by a newer version: install that one"
            )


def reports_on(line: JournalLine) -> int:
    """How many reports stand there at most: 0 on every line of another kind."""
    return line.payload["last"] - line.payload["first"] + 1 if line.kind == "reports" else 0


def _outcome(plain: object) -> TrialOutcome:
    outcome: TrialOutcome = from_plain(TrialOutcome, plain, where="outcome")
    return outcome

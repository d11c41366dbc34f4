"""Which journal lines stand in which queue.

Suggestions, outcomes, imported results, added trials and changes of the search space go to the tuner; intermediate
metrics to the assessor; the end of a trial to both. In a deterministic experiment the assessor is also told when a
trial is decided (suggested or added), because a trial is judged by what had been shown at that line. An advisor has one
queue that takes everything. Every other line is a record for people and stands in no queue.
"""

from __future__ import annotations

from enum import StrEnum

from tuner_service.dispatcher.items import Queue
from tuner_service.domain.experiment import ExperimentSpec


class LineKind(StrEnum):
    SUGGESTION_REQUESTED = "suggestion_requested"
    REPORTS = "reports"
    TRIAL_RESTED = "trial_rested"
    TRIAL_ENDED = "trial_ended"
    TRIAL_ADDED = "trial_added"
    OUTCOMES_IMPORTED = "outcomes_imported"
    SEARCH_SPACE_CHANGED = "search_space_changed"
    EXPERIMENT_MOVED = "experiment_moved"
    EXPERIMENT_CHANGED = "experiment_changed"
    STOP_ADVISED = "stop_advised"
    PAUSE_ADVISED = "pause_advised"
    TRIAL_PROMOTED = "trial_promoted"
    TRIAL_FORKED = "trial_forked"
    TRIAL_PREEMPTED = "trial_preempted"
    TRIAL_STOP_REQUESTED = "trial_stop_requested"
    ATTEMPT_LAUNCHED = "attempt_launched"
    ATTEMPT_ENDED = "attempt_ended"
    RECORD_REJECTED = "record_rejected"
    NOTICED = "noticed"
    OUTPUT_COLLECTED = "output_collected"
    ALGORITHM_FAULTED = "algorithm_faulted"
    ARCHIVE_MOVED = "archive_moved"
    LINE_SKIPPED = "line_skipped"
    WORKER_REPLACED = "worker_replaced"


_ADVISED = frozenset(
    {
        LineKind.SUGGESTION_REQUESTED,
        LineKind.REPORTS,
        LineKind.TRIAL_RESTED,
        LineKind.TRIAL_ENDED,
        LineKind.TRIAL_ADDED,
        LineKind.OUTCOMES_IMPORTED,
        LineKind.SEARCH_SPACE_CHANGED,
    }
)


def queues_for(kind: LineKind, spec: ExperimentSpec, *, judged: bool = True) -> tuple[Queue, ...]:
    """The queues of a line; ``judged`` False for reports that hold nothing an algorithm has not seen."""
    if spec.advisor is not None:
        return (Queue.TUNER,) if kind in _ADVISED and (judged or kind is not LineKind.REPORTS) else ()
    assessor = (Queue.ASSESSOR,) if spec.assessor is not None else ()
    match kind:
        case LineKind.SUGGESTION_REQUESTED | LineKind.TRIAL_ADDED:
            return (Queue.TUNER, *(assessor if spec.deterministic else ()))
        case LineKind.REPORTS:
            return assessor if judged else ()
        case LineKind.TRIAL_ENDED:
            return (Queue.TUNER, *assessor)
        case LineKind.OUTCOMES_IMPORTED | LineKind.SEARCH_SPACE_CHANGED:
            return (Queue.TUNER,)
        case _:
            return ()

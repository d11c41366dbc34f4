"""Inside a training script: parameters, reports, checkpoints, and whether to stop.

``with trials.init() as trial:`` is all a script needs; alone, without any service, it works the same.
The names are imported when they are first used, because the supervisor of every trial imports this package, too.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trials.checkpoints.restoring import CheckpointMissingError
    from trials.checkpoints.saving import CheckpointNotSavedError
    from trials.checkpoints.shards import ShardedCheckpointError
    from trials.learner import Learner
    from trials.nni.calls import (
        get_current_parameter,
        get_experiment_id,
        get_next_parameter,
        get_sequence_id,
        get_trial_id,
        report_final_result,
        report_intermediate_result,
    )
    from trials.reports.spool_writer import ReportTooLargeError
    from trials.session import Trial, init

__all__ = [
    "CheckpointMissingError",
    "CheckpointNotSavedError",
    "Learner",
    "ReportTooLargeError",
    "ShardedCheckpointError",
    "Trial",
    "get_current_parameter",
    "get_experiment_id",
    "get_next_parameter",
    "get_sequence_id",
    "get_trial_id",
    "init",
    "report_final_result",
    "report_intermediate_result",
]

_HOMES = {
    "CheckpointMissingError": "checkpoints.restoring",
    "CheckpointNotSavedError": "checkpoints.saving",
    "Learner": "learner",
    "ReportTooLargeError": "reports.spool_writer",
    "ShardedCheckpointError": "checkpoints.shards",
    "Trial": "session",
    "init": "session",
}


def __getattr__(name: str) -> Any:
    if name in {"data", "learner", "tasks"}:  # packages, whose import takes longer than this one's
        return import_module(f"trials.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'trials' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(f"trials.{_HOMES.get(name, 'nni.calls')}"), name)

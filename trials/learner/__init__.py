"""A training loop with hooks, for those who want one: ``Learner(trial, step=…, batches=…, state=…).run(steps=…)``."""

from __future__ import annotations

from trials.learner.builtin_hooks import (
    LogThroughput,
    Report,
    ReportFinal,
    Restore,
    SaveCheckpoint,
    StopWhenAsked,
    default_hooks,
)
from trials.learner.hooks import Hook, HookError, When
from trials.learner.learner import Learner
from trials.learner.priorities import PriorityReader, PriorityWriter, report_priorities
from trials.learner.publishing import LoadWeights, PublishWeights
from trials.learner.weights import Published, WeightsReader, publish_weights

__all__ = [
    "Hook",
    "HookError",
    "Learner",
    "LoadWeights",
    "LogThroughput",
    "PriorityReader",
    "PriorityWriter",
    "PublishWeights",
    "Published",
    "Report",
    "ReportFinal",
    "Restore",
    "SaveCheckpoint",
    "StopWhenAsked",
    "WeightsReader",
    "When",
    "default_hooks",
    "publish_weights",
    "report_priorities",
]

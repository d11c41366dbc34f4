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
from trials.learner.coordination.coordinator import Chooser, Coordinator, DemandForgottenError, LearnerLostError
from trials.learner.coordination.journal import JournalError
from trials.learner.coordination.link import LearnerRefusedError
from trials.learner.coordination.messages import Demand, Ended, LearnInfo
from trials.learner.coordination.port import CoordinatorGoneError, LearnerPort, NameTakenError
from trials.learner.hooks import Hook, HookError, When
from trials.learner.learner import Learner
from trials.learner.priorities import PriorityReader, PriorityWriter, report_priorities
from trials.learner.publishing import LoadWeights, PublishWeights
from trials.learner.training_loop import LoopStopped
from trials.learner.weights import Published, WeightsReader, publish_weights

__all__ = [
    "Chooser",
    "Coordinator",
    "CoordinatorGoneError",
    "Demand",
    "DemandForgottenError",
    "Ended",
    "Hook",
    "HookError",
    "JournalError",
    "LearnInfo",
    "Learner",
    "LearnerLostError",
    "LearnerPort",
    "LearnerRefusedError",
    "LoadWeights",
    "LogThroughput",
    "LoopStopped",
    "NameTakenError",
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

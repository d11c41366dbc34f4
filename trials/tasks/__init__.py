"""Trials of several processes: tasks on nodes, in groups that start together and end together."""

from __future__ import annotations

from trials.tasks.cluster import Cluster, Node, WorkspaceType
from trials.tasks.instance import Instance, current_instance, set_output
from trials.tasks.ray_session import RaySession
from trials.tasks.running import NodeStartError, TaskFailedError
from trials.tasks.session import GroupSession, LocalSession, NotGuardedError
from trials.tasks.task_group import (
    GroupUsedError,
    OutputMissingError,
    SetupSteps,
    Task,
    TaskGroup,
    TaskOutput,
    distributed,
    final_output,
)
from trials.tasks.trial_session import TrialSession

__all__ = [
    "Cluster",
    "GroupSession",
    "GroupUsedError",
    "Instance",
    "LocalSession",
    "Node",
    "NodeStartError",
    "NotGuardedError",
    "OutputMissingError",
    "RaySession",
    "SetupSteps",
    "Task",
    "TaskFailedError",
    "TaskGroup",
    "TaskOutput",
    "TrialSession",
    "WorkspaceType",
    "current_instance",
    "distributed",
    "final_output",
    "set_output",
]

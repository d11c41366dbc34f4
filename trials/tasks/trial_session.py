"""Groups over the nodes of a trial: the same program on one node and on many."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trials.arguments import seconds
from trials.tasks.meeting import SILENCE_S, Place
from trials.tasks.nodes import LocalNodes
from trials.tasks.port import Nodes
from trials.tasks.progress import GRACE_S
from trials.tasks.running import NodeStartError, TaskFailedError, set_outputs
from trials.tasks.session import START_TIMEOUT_S, GroupSession, variables
from trials.tasks.shares import Machine
from trials.tasks.task_group import OutputMissingError, TaskGroup
from trials.tasks.trial_nodes import TrialNodes, host


class TrialSession(GroupSession):
    """Runs groups over the nodes of the trial that this program is.

    In a trial with ``nodes: 2`` the program runs on both, and on both it makes the same groups and calls ``run``, which
    returns on both with the same outputs, or raises the same. The nodes of a group are spread evenly over those of the
    trial, each on one that can give what it asks for; ``labels`` are what the machine of this program is. Where there
    is one node only, or no trial at all, all of them are on this machine, as of a LocalSession.

    A node of the trial that is not heard of for ``silence_s`` is lost, and the group with it, on both sides.
    GLOBAL workspaces are in ``folder`` of the machine that a node is on. A stop of the trial is told to all tasks, and
    ``run`` waits for those that save before they leave.
    """

    kind = "session of a trial"

    def __init__(  # noqa: PLR0913  # each is optional and named
        self,
        folder: str | os.PathLike[str] | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        grace_s: float = GRACE_S,
        labels: Mapping[str, str] | None = None,
        start_timeout_s: float = START_TIMEOUT_S,
        silence_s: float = SILENCE_S,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        """``environ``: where the variables of the trial stand."""
        super().__init__(folder, grace_s=grace_s, start_timeout_s=start_timeout_s)
        self._environment = variables(environment)
        self._labels = dict(labels or {})
        self._place = Place.of(environ, silence_s=seconds(silence_s, what="silence_s", may_be_zero=False))

    def nodes(self, group: TaskGroup, *, workspace: Path | None) -> Nodes:  # noqa: ARG002  all groups alike
        if self._place.nodes == 1:
            return LocalNodes(self._folder, environment=self._environment, labels=self._labels, workspace=workspace)
        return TrialNodes(
            self._place,
            self._folder,
            environment=self._environment,
            machine=Machine.here(self._labels, name="node 0 of the trial"),
            timeout_s=self._start_timeout_s,
        )

    def run_checked(self, group: TaskGroup, *, timeout_s: float | None) -> None:
        with _waiting_for_tasks():
            if self._place.node == 0:
                super().run_checked(group, timeout_s=timeout_s)
                return
            machine = Machine.here(self._labels, name=f"node {self._place.node} of the trial")
            group.require_unused()
            result = host(self._place, self._folder, machine=machine, timeout_s=self._start_timeout_s)
            if "outputs" not in result:
                raise _as_it_was(result["failure"])
            group.use()
            set_outputs(group, result["outputs"])


def _as_it_was(failure: Mapping[str, Any]) -> Exception:
    """The error of the first node, as the other nodes raise it."""
    text = str(failure["text"])
    match failure["error"]:
        case TaskFailedError.__name__:
            return TaskFailedError(failure["what"], failure["node"], failure["why"], code=failure["code"])
        case ValueError.__name__:
            return ValueError(text)
        case TimeoutError.__name__:
            return TimeoutError(text)
        case OutputMissingError.__name__:
            return OutputMissingError(text)
    return NodeStartError(text)


@contextmanager
def _waiting_for_tasks() -> Iterator[None]:
    """Whoever ends a trial tells all its processes; this one waits for those that save before they leave."""
    is_ours = (
        threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    )
    if is_ours:
        signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        yield
    finally:
        if is_ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

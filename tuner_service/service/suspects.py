"""Whose commands make steps fail: what one experiment does must cost no other one anything.

A step that fails drops the memory of all experiments, and whoever was not answered says the same again: without this
module a value that cannot be saved, or a fault of the dispatcher, would stop every search again and again. After a
failure steps take one command each, so that the next failure has one cause. An experiment whose agents or worker have
caused ``ENOUGH`` of them is set aside, as one with damaged rows is; what a person or a node says is refused for a
while.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from tuner_service.dispatcher.commands import AgentDisconnected, Command, ExperimentCreated, Request, TimePassed
from tuner_service.domain.experiment import ExperimentId

ENOUGH = 2  # failures with the same cause: one may be the database's, or the machine's
CAREFUL_S = 30.0  # after a failure, in which steps take one command each
REFUSED_S = 60.0  # for a cause that is no experiment; then it may try again
REMEMBERED_S = 600.0  # for a failure that no other one follows
CAUSES_LIMIT = 1_000  # that are remembered, the newest ones
WHY_SHOWN = 400  # characters
WHAT_TO_DO = (
    "it is left as it is, and its trials run on; the log of the service says where it failed. Start the service "
    "again, or another version of it, to try again, or remove the experiment with `tuner rm`"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cause:
    """``experiment_id``: where it is one that would cause it again by itself. ``kind`` and ``of``: what is refused."""

    experiment_id: ExperimentId = ""
    kind: str = ""
    of: str = ""


_TIME = _Cause(kind=TimePassed.__name__)


@dataclass(slots=True)
class _Failures:
    count: int = 0
    at: float = 0.0
    why: str = ""


@dataclass(kw_only=True)
class Suspects:
    """``aside``: experiments to set aside, and why. The runner's thread alone."""

    aside: dict[ExperimentId, str] = field(default_factory=dict)
    _failures: dict[_Cause, _Failures] = field(default_factory=dict)
    _careful_since: float | None = None

    def is_careful(self, now: float) -> bool:
        """Whether a step is to take one command, or none and let time pass."""
        return self._careful_since is not None and 0.0 <= now - self._careful_since < CAREFUL_S

    def looks_at_each(self) -> bool:
        """Whether time cannot pass, with no command to blame: then each experiment is to be tried by itself."""
        found = self._failures.get(_TIME)
        return found is not None and found.count >= ENOUGH

    def refusal(self, command: Command, now: float) -> str:
        """Why ``command`` is not to be tried; else ""."""
        cause = _cause_of(command)
        if cause.experiment_id or cause == _TIME or isinstance(command, AgentDisconnected):  # said once, and true
            return ""
        found = self._failures.get(cause)
        if found is None or found.count < ENOUGH or not 0.0 <= now - found.at < REFUSED_S:
            return ""
        return f"this has failed {found.count} times and stopped all others with it ({found.why}); see the log"

    def blame(self, command: Command | None, exc: Exception, now: float, *, at_work: ExperimentId = "") -> None:
        """A step has failed, for a reason that is not the database's: at ``command``; None: at one of several.

        ``at_work``: the experiment that was at work then, where that is known: what somebody else has done may only
        have let its trials start.
        """
        self._careful_since = now
        if command is None or isinstance(exc, MemoryError):  # which hits whoever comes next
            return
        cause = _cause_of(command, at_work)
        found = self._failures.pop(cause, _Failures())
        if not 0.0 <= now - found.at < REMEMBERED_S:
            found = _Failures()
        why = f"{type(exc).__name__}: {exc}"[:WHY_SHOWN]
        self._failures[cause] = _Failures(count=found.count + 1, at=now, why=why)
        while len(self._failures) > CAUSES_LIMIT:
            del self._failures[next(iter(self._failures))]
        if cause.experiment_id and found.count + 1 >= ENOUGH:
            self.set_aside(cause.experiment_id, why)

    def set_aside(self, experiment_id: ExperimentId, why: str) -> None:
        self.aside[experiment_id] = f"the service failed at what it did, and would again: {why}; {WHAT_TO_DO}"
        self._failures.pop(_TIME, None)

    def keep(self, there: Collection[ExperimentId]) -> None:
        """Forget experiments that are gone."""
        for gone in self.aside.keys() - there:
            del self.aside[gone]


def _cause_of(command: Command, at_work: ExperimentId = "") -> _Cause:
    experiment_id = getattr(command, "experiment_id", "") or getattr(getattr(command, "key", None), "experiment_id", "")
    if at_work not in {"", experiment_id}:
        return _Cause(experiment_id=at_work)
    if experiment_id and not isinstance(command, Request):
        return _Cause(experiment_id=experiment_id)
    if isinstance(command, ExperimentCreated):  # tried again, it has another id
        return _Cause(kind=type(command).__name__, of=command.spec.name)
    of = experiment_id or getattr(command, "agent_id", "")
    return _Cause(kind=type(command).__name__, of=of)

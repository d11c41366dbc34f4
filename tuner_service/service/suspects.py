"""Whose commands make steps fail: what one experiment does must cost no other one anything.

A step that fails drops the memory of all experiments, and whoever was not answered says the same again: without this
module a value that cannot be saved, or a fault of the dispatcher, would stop every search again and again. After a
failure steps take one command each, so that the next failure has one cause. An experiment whose agents or worker have
caused ``ENOUGH`` of them is set aside, as one with damaged rows is; what a person or a node says is refused for a
while. Whoever lets the same kind of request fail under ever other names is refused that kind after ``MANY``.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from tuner_service.dispatcher.commands import AgentDisconnected, Command, ExperimentCreated, Request, TimePassed
from tuner_service.domain.experiment import ExperimentId

ENOUGH = 2  # failures with the same cause: one may be the database's, or the machine's
MANY = 6  # of one kind of request of one token, whatever it was about
CAREFUL_S = 30.0  # after a failure, in which steps take one command each
REFUSED_S = 60.0  # for a cause that is no experiment; then it may try again
REFUSED_MOST_S = 300.0  # of a token: twice as long after each further failure, up to this
REMEMBERED_S = 600.0  # for a failure that no other one follows
CAUSES_LIMIT = 1_000  # that are remembered, the newest ones
WHY_SHOWN = 400  # characters
WHAT_TO_DO = (
    "it is left as it is, and its trials run on; the log of the service says where it failed. Start the service "
    "again, or another version of it, to try again, or remove the experiment with `tuner rm`"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cause:
    """``experiment_id``: where it is one that would cause it again by itself. ``kind`` and ``of``: what is refused.

    ``by``: to whom, whatever it is about.
    """

    experiment_id: ExperimentId = ""
    kind: str = ""
    of: str = ""
    by: str = ""


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
        if found is not None and found.count >= ENOUGH and 0.0 <= now - found.at < REFUSED_S:
            return f"this has failed {found.count} times and stopped all others with it ({found.why}); see the log"
        sender = _sender_of(command)
        found = None if sender is None else self._failures.get(sender)
        if found is not None and found.count >= MANY and 0.0 <= now - found.at < _refused_s(found.count):
            return (
                f"requests like this of the same token have failed {found.count} times and stopped all others with "
                f"them ({found.why}); see the log, and try again in some minutes"
            )
        return ""

    def blame(self, command: Command | None, exc: Exception, now: float, *, at_work: ExperimentId = "") -> None:
        """A step has failed, for a reason that is not the database's: at ``command``; None: at one of several.

        ``at_work``: the experiment that was at work then, where that is known: what somebody else has done may only
        have let its trials start.
        """
        self._careful_since = now
        if command is None or isinstance(exc, MemoryError):  # which hits whoever comes next
            return
        cause = _cause_of(command, at_work)
        why = f"{type(exc).__name__}: {exc}"[:WHY_SHOWN]
        count = self._counted(cause, why, now)
        if cause.experiment_id and count >= ENOUGH:
            self.set_aside(cause.experiment_id, why)
        elif not cause.experiment_id and (sender := _sender_of(command)) is not None:
            self._counted(sender, why, now)

    def _counted(self, cause: _Cause, why: str, now: float) -> int:
        """How many failures it has caused, with the one at hand."""
        found = self._failures.pop(cause, _Failures())
        if not 0.0 <= now - found.at < REMEMBERED_S:
            found = _Failures()
        self._failures[cause] = _Failures(count=found.count + 1, at=now, why=why)
        while len(self._failures) > CAUSES_LIMIT:
            del self._failures[next(iter(self._failures))]
        return found.count + 1

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


def _sender_of(command: Command) -> _Cause | None:
    """Whose request of what kind it is; None where no token asked for it."""
    by = getattr(command, "by", "")
    return _Cause(kind=type(command).__name__, by=by) if by else None


def _refused_s(count: int) -> float:
    return min(REFUSED_S * 2.0 ** min(count - MANY, 10), REFUSED_MOST_S)

"""Every status change there is.

Experiments, trials (their status, and where they stand at their rungs) and attempts move only along these arrows, and
only through ``check``. A status that is not a
key's value is unreachable from it; a final status has no arrow out, but for an ended experiment, which may be resumed.
docs/trial-lifecycle.md shows the same tables, and a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from tuner_service.domain.errors import InvalidTransitionError
from tuner_service.domain.experiment import ExperimentStatus as E
from tuner_service.domain.rungs import RungPhase as R
from tuner_service.domain.trial import AttemptStatus as A
from tuner_service.domain.trial import TrialStatus as T

S = TypeVar("S", bound=StrEnum)

EXPERIMENT_TRANSITIONS: Mapping[E, frozenset[E]] = {
    E.CREATED: frozenset({E.RUNNING}),
    E.RUNNING: frozenset({E.PAUSED, E.STOPPING, E.COMPLETED}),
    E.PAUSED: frozenset({E.RUNNING, E.STOPPING}),
    E.STOPPING: frozenset({E.STOPPED, E.COMPLETED, E.FAILED}),
    E.STOPPED: frozenset({E.RUNNING}),
    E.COMPLETED: frozenset({E.RUNNING}),
    E.FAILED: frozenset({E.RUNNING}),
}

TRIAL_TRANSITIONS: Mapping[T, frozenset[T]] = {
    # waiting for its first attempt, or for another one
    T.WAITING: frozenset({T.RUNNING, T.PAUSED, T.EARLY_STOPPED, T.CANCELED}),
    T.RUNNING: frozenset({T.WAITING, T.STOPPING, T.PAUSED, T.SUCCEEDED, T.FAILED, T.EARLY_STOPPED, T.CANCELED}),
    T.PAUSED: frozenset({T.WAITING, T.EARLY_STOPPED, T.CANCELED}),
    # asked to stop: it may still end by itself first
    T.STOPPING: frozenset({T.WAITING, T.PAUSED, T.SUCCEEDED, T.FAILED, T.EARLY_STOPPED, T.CANCELED}),
    T.SUCCEEDED: frozenset(),
    T.FAILED: frozenset(),
    T.EARLY_STOPPED: frozenset(),
    T.CANCELED: frozenset(),
}

ATTEMPT_TRANSITIONS: Mapping[A, frozenset[A]] = {
    A.STARTING: frozenset({A.RUNNING, A.EXITED, A.LOST}),
    A.RUNNING: frozenset({A.EXITED, A.LOST}),
    A.EXITED: frozenset(),
    A.LOST: frozenset(),
}


RUNG_TRANSITIONS: Mapping[R, frozenset[R]] = {
    # on its way to where its advisor lets it run, or past every rung
    R.CLIMBING: frozenset({R.REACHED}),
    # there: on its way down to rest, or to its end. The advisor may let it rest at an earlier report, and one that
    # lost its checkpoint comes there once more
    R.REACHED: frozenset({R.REACHED, R.RESTING, R.CLIMBING}),
    # its advisor knows: it is promoted, or has ended
    R.RESTING: frozenset({R.CLIMBING, R.REACHED}),
}


def check(table: Mapping[S, frozenset[S]], what: str, status: S, requested: S) -> None:
    """InvalidTransitionError unless the table has an arrow from ``status`` to ``requested``."""
    if requested not in table[status]:
        raise InvalidTransitionError(what, status.value, requested.value)


def check_unmoved(kind: str, name: object, status: StrEnum, written: StrEnum) -> None:
    """InvalidTransitionError where a row that is written moves beside the tables; ``name`` is written out only then."""
    if written is not status:
        raise InvalidTransitionError(f"{kind} {name}", status.value, written.value)

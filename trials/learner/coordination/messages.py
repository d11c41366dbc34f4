"""What a coordinator asks of a learner, and what the learner says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

from trials.wire.plain import ProtocolError, from_plain

VERSION = 1
WAIT_LIMIT_S = 30.0  # of one request; whoever wants to wait longer asks again
ErrorKind = Literal[
    "unknown_task",
    "malformed",
    "busy",
    "not_started",
    "other_task",
    "other_info",
    "no_such_demand",
    "wrong_data",
    "failed",
]
ERROR_KINDS: tuple[str, ...] = get_args(ErrorKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """Who the learner is, and what it has."""

    task: ClassVar[str] = "resource"


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Begin the task, or go on with it; ``info`` is the task's own."""

    task: ClassVar[str] = "start"
    task_id: str
    info: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class GetData:
    """What it wants, and what it has learnt after iteration ``after``: answered when there is news, at the latest
    after ``wait_s``. What came up to ``after`` need not be kept any more."""

    task: ClassVar[str] = "get_data"
    task_id: str
    after: int
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Learn:
    """The data of the demand of that iteration; None: there is no more."""

    task: ClassVar[str] = "learn"
    task_id: str
    cur_learner_iter: int
    data: list[Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Close:
    """End the task after the iteration that runs."""

    task: ClassVar[str] = "close"
    task_id: str


Request = Resource | Start | GetData | Learn | Close
TASKS: dict[str, type[Any]] = {kind.task: kind for kind in (Resource, Start, GetData, Learn, Close)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """The learner wants a batch. ``cur_learner_iter``: iterations that are done when it is trained on, and the name of
    the demand: a learner that was killed asks for the same once more."""

    batch_size: int
    cur_learner_iter: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnInfo:
    """Of iteration ``number``, counted from 1: its metrics, and the priorities of samples as the coordinator calls
    them."""

    number: int
    metrics: dict[str, float]
    samples: list[Any]
    priorities: list[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """``finished``: it came to its end; else it was closed."""

    finished: bool
    step: int


class RefusedError(Exception):
    """A request is answered with this; nothing has changed."""

    def __init__(self, kind: ErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def read_request(message: Mapping[str, Any]) -> Request:
    """RefusedError names a task that there is none of, or the field that is wrong."""
    name = message.get("task")
    kind = TASKS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise RefusedError("unknown_task", f"no task {str(name)[:64]!r}; a learner knows {', '.join(TASKS)}")
    try:
        request: Request = from_plain(kind, {k: v for k, v in message.items() if k != "task"}, where=kind.task)
    except ProtocolError as error:
        raise RefusedError("malformed", str(error)[:500]) from error
    return request

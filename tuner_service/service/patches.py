"""The events that streams carry: pure functions from what commits changed to the bytes of server-sent events.

The format is documented in docs/rest-api.md, where clients are written against it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from tuner_service.dispatcher.changes import Touched
from tuner_service.domain.experiment import Experiment, ExperimentId
from tuner_service.domain.running_time import running_time_s
from tuner_service.domain.trial import Parameters, Trial
from tuner_service.service.views import View, experiment_view, moment, plain

ALL = ""  # the topic of what all experiments are; every other topic is an experiment's id
EXPERIMENTS_LIMIT = 500  # in one patch
RETRY_MS = 1_000  # after which a browser whose stream broke off connects again
TRIAL_COLUMNS = (
    "number", "status", "reason", "value", "step", "last_value", "attempts", "started_at", "ended_at", "running_s",
    "parameters",
)  # fmt: skip


class GapReason(StrEnum):
    """Why what a reader has cannot be brought up to date by a patch."""

    UNKNOWN = "unknown"  # its Last-Event-ID is none of this database
    TOO_OLD = "too_old"  # the commits after it are not kept any more
    TOO_MANY = "too_many"  # more changed than a patch may hold
    REMOVED = "removed"  # the experiment is gone
    SLOW = "slow"  # it did not read what it was sent


class TrialRow(NamedTuple):
    """A trial as it is; ``known`` are the parameters that every reader of the stream has."""

    trial: Trial
    known: Parameters | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """What changed, each thing as it is after the commit ``sequence``."""

    sequence: int
    experiments: Sequence[Experiment] = ()
    trials: Mapping[ExperimentId, Sequence[TrialRow]] = field(default_factory=dict)
    reported: Mapping[ExperimentId, Mapping[int, float]] = field(default_factory=dict)  # when the last time, by trial
    touched: Touched = field(default_factory=Touched)  # of it what has no rows here


def patch_event(patch: Patch, *, lineage: str, now: float) -> bytes:
    view: dict[str, Any] = {"sequence": patch.sequence}
    touched = patch.touched
    if patch.experiments:
        view["experiments"] = [_entry(experiment, now=now) for experiment in patch.experiments]
    if touched.checkpoints:
        view["checkpoints"] = {name: sorted(numbers) for name, numbers in touched.checkpoints.items()}
    if touched.search_spaces:
        view["search_spaces"] = sorted(touched.search_spaces)
    if touched.removed:
        view["removed"] = sorted(touched.removed)
    if touched.quota_groups:
        view["quota_groups"] = True
    if patch.trials:
        view["trials"] = {name: _columns(rows, now) for name, rows in patch.trials.items()}
    if patch.reported:
        view["reported"] = {name: _moments(told) for name, told in patch.reported.items()}
    return _event("patch", _json(view), id_=event_id(patch.sequence, lineage))


def of_topic(touched: Touched, topic: ExperimentId) -> Touched:
    """What a stream of one experiment is told of it, beside rows."""
    numbers = touched.checkpoints.get(topic)
    return Touched(checkpoints={topic: numbers} if numbers else {}, search_spaces=touched.search_spaces & {topic})


def begin_event(sequence: int, lineage: str) -> bytes:
    return b"retry: %d\n" % RETRY_MS + _numbered("begin", sequence, lineage, {})


def gap_event(sequence: int, lineage: str, reason: GapReason) -> bytes:
    return _numbered("gap", sequence, lineage, {"reason": reason.value})


def heartbeat_event(sequence: int, lineage: str) -> bytes:
    return _numbered("heartbeat", sequence, lineage, {})


def cluster_event() -> bytes:
    """Agents and their devices are in no database: it has no id."""
    return _event("cluster", "{}")


def event_id(sequence: int, lineage: str) -> str:
    return f"{sequence}-{lineage}"


def sequence_in(event_id: str, lineage: str) -> int | None:
    """None where it is no id of an event of the database ``lineage``."""
    sequence, _, its_lineage = event_id.partition("-")
    is_number = sequence.isascii() and sequence.isdecimal() and len(sequence) <= len(str(2**63))
    return int(sequence) if is_number and its_lineage == lineage else None


def _entry(experiment: Experiment, *, now: float) -> View:
    view = experiment_view(experiment, now=now, best=None)
    if view["best"] is not None:
        del view["best"]["parameters"]  # they stand in the row of that trial
    return view | {"line": experiment.next_line - 1}


def _columns(rows: Sequence[TrialRow], now: float) -> dict[str, list[Any]]:
    cells = zip(*(_cells(row.trial, row.known, now) for row in rows), strict=True)
    return {name: list(column) for name, column in zip(TRIAL_COLUMNS, cells, strict=True)}


def _moments(told: Mapping[int, float]) -> dict[str, list[Any]]:
    numbers = sorted(told)
    return {"number": numbers, "reported_at": [moment(told[number]) for number in numbers]}


def _cells(trial: Trial, known: Parameters | None, now: float) -> tuple[Any, ...]:
    """In the order of TRIAL_COLUMNS."""
    parameters = trial.result_parameters
    return (
        trial.number, trial.status.value, trial.reason.value, plain(trial.value), trial.last_step,
        plain(trial.last_value), trial.attempts, moment(trial.started_at), moment(trial.ended_at),
        round(running_time_s(trial.running_s, trial.running_since, now), 3),
        None if parameters is known else plain(parameters),
    )  # fmt: skip


def _numbered(name: str, sequence: int, lineage: str, fields: dict[str, Any]) -> bytes:
    return _event(name, _json({"sequence": sequence, **fields}), id_=event_id(sequence, lineage))


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _event(name: str, data: str, *, id_: str = "") -> bytes:
    """``data`` is JSON, which has no line breaks; half characters of earlier versions' rows become question marks."""
    head = f"id: {id_}\n" if id_ else ""
    return f"{head}event: {name}\ndata: {data}\n\n".encode(errors="replace")

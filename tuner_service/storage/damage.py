"""Experiments whose rows cannot be read: what of them is shown, and why. Nothing of them is written.

One damaged row must not keep the others from going on: whatever cannot be read is looked for one experiment at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, select

from tuner_service.dispatcher.loaded import LoadedExperiment
from tuner_service.domain.errors import InputError, StorageError
from tuner_service.domain.experiment import (
    AlgorithmSpec,
    Budget,
    Experiment,
    ExperimentReason,
    ExperimentSpec,
    ExperimentStatus,
    Objective,
    TrialTemplate,
)
from tuner_service.domain.trial import Attempt
from tuner_service.storage import mapping, reading, tables

DAMAGED = (*mapping.UNREADABLE, InputError, StorageError)
UNKNOWN = "(cannot be read)"
WHAT_TO_DO = (
    "it is left as it is, and its trials run on; stop the service, restore the database from a backup or repair the "
    "row (`tuner doctor` names every such row) and start it again; or remove the experiment with `tuner rm`"
)


def load_each(connection: Connection) -> tuple[LoadedExperiment, ...]:
    """Every experiment by itself, oldest first; of those that cannot be read what can, with the reason."""
    e = tables.experiments
    ids = connection.execute(select(e.c.id).order_by(e.c.created_at, e.c.id)).scalars().all()
    return tuple(_load_one(connection, experiment_id) for experiment_id in ids)


def _load_one(connection: Connection, experiment_id: str) -> LoadedExperiment:
    try:
        (loaded,) = reading.load(connection, experiment_id)
    except DAMAGED as exc:
        e = tables.experiments
        row = connection.execute(select(e).where(e.c.id == experiment_id)).mappings().one()
        why = _sentence(exc)
        its = tables.attempts.c.experiment_id == experiment_id
        return LoadedExperiment(
            experiment=stand_in(row, why), attempts=tuple(live_attempts(connection, its)), damage=why
        )
    return loaded


def unable(loaded: LoadedExperiment, exc: Exception) -> LoadedExperiment:
    """One whose rows can be read, and make no sense."""
    why = f"its rows do not fit together: {type(exc).__name__}: {exc}"[: 2 * mapping.DAMAGE_SHOWN] + f"; {WHAT_TO_DO}"
    return LoadedExperiment(experiment=set_aside(loaded.experiment, why), attempts=loaded.attempts, damage=why)


def at_fault(loaded: LoadedExperiment, why: str) -> LoadedExperiment:
    """One whose rows are whole, and with which the service fails."""
    experiment = set_aside(loaded.experiment, why, ExperimentReason.SERVICE_FAULT)
    return LoadedExperiment(experiment=experiment, attempts=loaded.attempts, damage=why)


def _sentence(exc: Exception) -> str:
    what = (
        str(exc).removesuffix("; run `tuner doctor`")
        if isinstance(exc, StorageError)
        else f"{type(exc).__name__}: {exc}"
    )
    return f"its rows are damaged: {what[: mapping.DAMAGE_SHOWN * 2]}; {WHAT_TO_DO}"


def experiments_as_far_as_read(
    rows: Iterable[Mapping[Any, Any]], cursors: Iterable[Mapping[Any, Any]]
) -> list[Experiment]:
    """Each of ``rows``, with a stand-in for those that cannot be read."""
    known, found = list(cursors), []
    for row in rows:
        try:
            own = [cursor for cursor in known if cursor["experiment_id"] == row["id"]]
            found += reading.with_cursors([row], own)
        except DAMAGED as exc:
            found.append(stand_in(row, _sentence(exc)))
    return found


def stand_in(row: Mapping[Any, Any], why: str) -> Experiment:
    """What can be read of it, paused, or ended where that can be read."""
    fields = mapping.EXPERIMENTS.readable(row) | {"id": str(row["id"])}
    fields.setdefault("status", ExperimentStatus.PAUSED)
    spec = _UNREAD
    with suppress(*DAMAGED):
        spec = mapping.spec_out(row["spec"])
    return set_aside(Experiment(spec=spec, **fields), why)


def set_aside(experiment: Experiment, why: str, reason: ExperimentReason = ExperimentReason.ROWS_DAMAGED) -> Experiment:
    """One that has ended stays what it was, with ``why`` beside it; any other is shown as paused."""
    return replace(
        experiment,
        status=experiment.status if experiment.status.has_ended else ExperimentStatus.PAUSED,
        reason=reason,
        message=why,
        running_since=None,
    )


def live_attempts(connection: Connection, *only: ColumnElement[bool]) -> Iterator[Attempt]:
    """Those that can be read, of every experiment, for which ``only`` holds."""
    a = tables.attempts
    query = select(a).where(a.c.status.in_(reading.LIVE), *only).order_by(a.c.experiment_id, a.c.number, a.c.attempt)
    for row in connection.execute(query).mappings():
        with suppress(*DAMAGED):
            yield mapping.attempt_out(row)


_UNREAD = ExperimentSpec(
    name=UNKNOWN,
    seed=0,
    objective=Objective(metric=UNKNOWN),
    search_space={},
    tuner=AlgorithmSpec(name="random"),
    budget=Budget(),
    trial=TrialTemplate(command=()),
)

"""Reads for people, each one consistent snapshot of committed rows."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from types import TracebackType
from typing import Any, Protocol

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    Engine,
    Select,
    and_,
    bindparam,
    case,
    func,
    literal_column,
    or_,
    select,
    tuple_,
)

from tuner_service.dispatcher.changes import JournalLine, SearchSpaceRevision, StoredIdempotencyKey, Touched
from tuner_service.dispatcher.items import MetricsReported, Queue, QueueItem
from tuner_service.domain.errors import StorageError
from tuner_service.domain.experiment import Experiment, ExperimentId, ExperimentReason
from tuner_service.domain.resources import QuotaGroup
from tuner_service.domain.trial import EVALUATOR, Attempt, Checkpoint, Trial
from tuner_service.ports import ENTRIES_AT_ONCE, AttemptSpan, CurvePoint, TrialEntry, TrialMetric
from tuner_service.storage import commits, damage, mapping, reading, tables
from tuner_service.storage.faults import translated
from tuner_service.storage.prepared import Prepared

_e, _q, _t, _a, _m, _r = (
    tables.experiments, tables.queue_cursors, tables.trials, tables.attempts, tables.metrics,
    tables.search_space_revisions,
)  # fmt: skip
_ID: BindParameter[Any] = bindparam("id")
_NUMBER: BindParameter[Any] = bindparam("number")
_AFTER: BindParameter[Any] = bindparam("after")
_LIMIT: BindParameter[Any] = bindparam("limit")
_EXPERIMENTS = Prepared(select(_e).order_by(_e.c.created_at.desc(), _e.c.id.desc()))
_EXPERIMENT = Prepared(select(_e).where(_e.c.id == _ID))
_ALL_CURSORS = Prepared(select(_q))
_CURSORS = Prepared(select(_q).where(_q.c.experiment_id == _ID))
_TRIAL = Prepared(select(_t).where(_t.c.experiment_id == _ID, _t.c.number == _NUMBER))
_TRIALS = Prepared(
    select(_t).where(_t.c.experiment_id == _ID, _t.c.number > _AFTER).order_by(_t.c.number).limit(_LIMIT)
)
# Of a row of trials: the end of its part of the key of metrics, which is one look, however much it has reported.
_NEWEST_REPORT = (
    select(_m.c.at)
    .where(_m.c.experiment_id == _t.c.experiment_id, _m.c.number == _t.c.number)
    .order_by(_m.c.attempt.desc(), _m.c.sequence.desc())
    .limit(1)
    .scalar_subquery()
)
_REPORTED_AT = case((and_(_t.c.started_at.is_not(None), _t.c.ended_at.is_(None)), _NEWEST_REPORT)).label("reported_at")
_CALLED_OTHERWISE = {"step": _t.c.last_step, "reported_at": _REPORTED_AT}
_ENTRY = tuple(_CALLED_OTHERWISE[name] if name in _CALLED_OTHERWISE else _t.c[name] for name in TrialEntry._fields)
_ENTRY_MADE = partial(tuple.__new__, TrialEntry)  # as _make, without a frame of Python for each of a hundred thousand
_ENTRIES = Prepared(
    select(*_ENTRY).where(_t.c.experiment_id == _ID, _t.c.number > _AFTER).order_by(_t.c.number).limit(_LIMIT)
)
_NUMBERS: tuple[BindParameter[Any], ...] = tuple(bindparam(f"number{place}") for place in range(ENTRIES_AT_ONCE))
_ENTRIES_OF = Prepared(select(*_ENTRY).where(_t.c.experiment_id == _ID, _t.c.number.in_(_NUMBERS)))
_REPORTED_AT_OF = Prepared(
    select(_t.c.number, _REPORTED_AT).where(_t.c.experiment_id == _ID, _t.c.number.in_(_NUMBERS))
)
_CURVE = Prepared(
    select(*(_m.c["objective" if name == "value" else name] for name in CurvePoint._fields))
    .where(
        _m.c.experiment_id == _ID,
        _m.c.number == _NUMBER,
        tuple_(_m.c.attempt, _m.c.sequence) > tuple_(bindparam("attempt"), bindparam("sequence")),
        _m.c.first,
        _m.c.step.is_not(None),
        _m.c.objective.is_not(None),
    )
    .order_by(_m.c.attempt, _m.c.sequence)
    .limit(_LIMIT)
)
_SPANS = Prepared(
    select(*(_a.c[name] for name in AttemptSpan._fields))
    .where(_a.c.experiment_id == _ID, _a.c.started_at.is_not(None))
    .order_by(_a.c.number.desc(), _a.c.attempt.desc())
    .limit(_LIMIT)
)
_ATTEMPTS = Prepared(select(_a).where(_a.c.experiment_id == _ID).order_by(_a.c.number, _a.c.attempt))
_ATTEMPTS_OF_TRIAL = Prepared(
    select(_a).where(_a.c.experiment_id == _ID, _a.c.number == _NUMBER).order_by(_a.c.number, _a.c.attempt)
)
# Literally as the index has it, or it is not used.
_ASKED_ATTEMPT = Prepared(
    select(_a).where(
        _a.c.experiment_id == _ID, _a.c.nonce == bindparam("token"), _a.c.agent_id == literal_column(f"'{EVALUATOR}'")
    )
)
# In no order: for the sake of one, SQLite would look at every attempt of the experiment.
_IS_LIVE = and_(_a.c.experiment_id == _ID, _a.c.status.in_([bindparam(s, s) for s in reading.LIVE]))
_LIVE_ATTEMPTS = Prepared(select(_a).where(_IS_LIVE))
_LIVE_TRIALS = Prepared(
    select(_t, _REPORTED_AT).where(_t.c.experiment_id == _ID, _t.c.number.in_(select(_a.c.number).where(_IS_LIVE)))
)
_METRICS = Prepared(
    select(_m)
    .where(
        _m.c.experiment_id == _ID,
        _m.c.number == _NUMBER,
        tuple_(_m.c.attempt, _m.c.sequence) > tuple_(bindparam("attempt"), bindparam("sequence")),
    )
    .order_by(_m.c.attempt, _m.c.sequence)
    .limit(_LIMIT)
)
_NEWEST_SPACE = Prepared(select(_r).where(_r.c.experiment_id == _ID).order_by(_r.c.line.desc()).limit(1))


def _page_of(query: Select[Any], experiment_id: ExperimentId, *, statuses: Sequence[str], after: int) -> Select[Any]:
    t = tables.trials
    query = query.where(t.c.experiment_id == experiment_id, t.c.number > after)
    if statuses:
        query = query.where(t.c.status.in_([str(s) for s in statuses]))
    return query.order_by(t.c.number)


class Watch(Protocol):
    """Whether something was committed, by whichever connection of whichever process."""

    def version(self) -> int | None:
        """As ``ports.Queries``; any thread."""

    @property
    def waits(self) -> bool:
        """Whether ``version`` waits for the answer of a server."""

    def close(self) -> None:
        """Safe to repeat."""


class SqlQueries:
    """Implements ``ports.Queries`` on an engine that only reads. Close it, or use it in a ``with``."""

    def __init__(self, engine: Engine, watch: Watch) -> None:
        self._engine, self._watch = engine, watch
        # By whoever loads them: experiments whose rows are damaged, or with which the service fails; and why.
        self.set_aside: dict[ExperimentId, tuple[str, ExperimentReason]] = {}
        self._inside = threading.local()

    def __enter__(self) -> SqlQueries:
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Give the connections back. Safe to repeat."""
        self._watch.close()
        self._engine.dispose()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One read transaction; inside another one of this thread, that one."""
        around: Connection | None = getattr(self._inside, "connection", None)
        if around is not None:
            yield around
            return
        with translated(), self._engine.begin() as connection:
            self._inside.connection = connection
            try:
                yield connection
            finally:
                self._inside.connection = None

    def snapshot(self) -> AbstractContextManager[object]:
        return self.reading()

    def sequence(self) -> int:
        with self.reading() as connection:
            return commits.newest_of(connection)

    def touched_after(self, sequence: int) -> Touched | None:
        with self.reading() as connection:
            return commits.touched_after(connection, sequence)

    def version(self) -> int | None:
        return self._watch.version()

    @property
    def version_waits(self) -> bool:
        return self._watch.waits

    def experiments(self) -> Sequence[Experiment]:
        with self.reading() as connection:
            return self._experiments(_EXPERIMENTS.rows(connection), _ALL_CURSORS.rows(connection))

    def experiment(self, experiment_id: ExperimentId) -> Experiment | None:
        name = mapping.text_in(experiment_id)  # of whoever asks
        with self.reading() as connection:
            rows = _EXPERIMENT.rows(connection, id=name)
            found = self._experiments(rows, _CURSORS.rows(connection, id=name) if rows else [])
        return found[0] if found else None

    def _experiments(self, rows: Sequence[mapping.Row], cursors: Sequence[mapping.Row]) -> list[Experiment]:
        try:
            found = reading.with_cursors(rows, cursors)
        except damage.DAMAGED:
            found = damage.experiments_as_far_as_read(rows, cursors)
        if not self.set_aside:
            return found
        return [damage.set_aside(one, *why) if (why := self.set_aside.get(one.id)) else one for one in found]

    def trials(
        self, experiment_id: ExperimentId, *, after: int = 0, limit: int = 1000, statuses: Sequence[str] = ()
    ) -> Sequence[Trial]:
        with self.reading() as connection:
            if statuses:
                query = _page_of(select(tables.trials), experiment_id, statuses=statuses, after=after).limit(limit)
                rows = [dict(row) for row in connection.execute(query).mappings()]
            else:
                rows = _TRIALS.rows(connection, id=experiment_id, after=after, limit=limit)
        return [mapping.trial_out(row) for row in rows]

    def trial_entries(
        self, experiment_id: ExperimentId, *, after: int = 0, limit: int = 1000, statuses: Sequence[str] = ()
    ) -> Sequence[TrialEntry]:
        with self.reading() as connection:
            if statuses:
                query = _page_of(select(*_ENTRY), experiment_id, statuses=statuses, after=after).limit(limit)
                found = [TrialEntry(*row) for row in connection.execute(query)]
            else:
                rows = _ENTRIES.tuples(connection, id=experiment_id, after=after, limit=limit)
                found = list(map(_ENTRY_MADE, rows))
            return _entries_out(connection, experiment_id, found)

    def entries_of(self, experiment_id: ExperimentId, numbers: Sequence[int]) -> Sequence[TrialEntry]:
        if not numbers:
            return []
        with self.reading() as connection:
            rows = _ENTRIES_OF.tuples(connection, id=experiment_id, **_places(numbers))
            found = [TrialEntry._make(row) for row in rows]
            return sorted(_entries_out(connection, experiment_id, found))

    def curve_points(
        self, experiment_id: ExperimentId, number: int, *, after: tuple[int, int] = (0, 0), limit: int = 10_000
    ) -> Sequence[CurvePoint]:
        place = {"id": experiment_id, "number": number, "attempt": after[0], "sequence": after[1]}
        with self.reading() as connection:
            rows = _CURVE.tuples(connection, **place, limit=limit)
        # A NaN is stored as text.
        return [CurvePoint(row[0], row[1], row[2], float(row[3])) for row in rows]

    def attempt_spans(self, experiment_id: ExperimentId, *, limit: int) -> Sequence[AttemptSpan]:
        with self.reading() as connection:
            return [AttemptSpan._make(row) for row in _SPANS.tuples(connection, id=experiment_id, limit=limit)]

    def trial(self, experiment_id: ExperimentId, number: int) -> Trial | None:
        with self.reading() as connection:
            rows = _TRIAL.rows(connection, id=mapping.text_in(experiment_id), number=number)
        return mapping.trial_out(rows[0]) if rows else None

    def trials_of(self, experiment_id: ExperimentId, numbers: Collection[int]) -> Sequence[Trial]:
        query = select(_t).where(_t.c.experiment_id == experiment_id, _t.c.number.in_(numbers)).order_by(_t.c.number)
        with self.reading() as connection:
            return [mapping.trial_out(row) for row in connection.execute(query).mappings()]

    def best_trials(self, experiment_ids: Collection[ExperimentId]) -> Mapping[ExperimentId, Trial]:
        is_best = and_(_t.c.experiment_id == _e.c.id, _t.c.number == _e.c.best_number)
        query = select(_t).join(_e, is_best).where(_e.c.id.in_(experiment_ids))
        with self.reading() as connection:
            found = [mapping.trial_out(row) for row in connection.execute(query).mappings()]
        return {trial.experiment_id: trial for trial in found}

    def attempts(self, experiment_id: ExperimentId, number: int | None = None) -> Sequence[Attempt]:
        with self.reading() as connection:
            if number is None:
                rows = _ATTEMPTS.rows(connection, id=experiment_id)
            else:
                rows = _ATTEMPTS_OF_TRIAL.rows(connection, id=experiment_id, number=number)
        return [mapping.attempt_out(row) for row in rows]

    def live_attempts(self, experiment_id: ExperimentId) -> Sequence[Attempt]:
        with self.reading() as connection:
            rows = _LIVE_ATTEMPTS.rows(connection, id=experiment_id)
        return sorted(map(mapping.attempt_out, rows), key=lambda a: (a.key.number, a.key.attempt))

    def live_trials(self, experiment_id: ExperimentId) -> Sequence[tuple[Trial, float | None]]:
        with self.reading() as connection:
            rows = _LIVE_TRIALS.rows(connection, id=experiment_id)
        found = [(mapping.trial_out(row), mapping.float_out(row["reported_at"])) for row in rows]
        return sorted(found, key=lambda one: one[0].number)

    def asked_attempt(self, experiment_id: ExperimentId, token: str) -> Attempt | None:
        with self.reading() as connection:
            rows = _ASKED_ATTEMPT.rows(connection, id=experiment_id, token=mapping.text_in(token))
        return mapping.attempt_out(rows[0]) if rows else None

    def metrics(
        self, experiment_id: ExperimentId, number: int, *, after: tuple[int, int] = (0, 0), limit: int = 10_000
    ) -> Sequence[TrialMetric]:
        attempt, sequence = after
        place = {"id": experiment_id, "number": number, "attempt": attempt, "sequence": sequence}
        with self.reading() as connection:
            rows = _METRICS.rows(connection, **place, limit=limit)
        return [mapping.metric_out(row) for row in rows]

    def reported_at(self, experiment_id: ExperimentId, numbers: Sequence[int]) -> Mapping[int, float]:
        found: list[tuple[int, float | None]] = []
        if not numbers:
            return {}
        with self.reading() as connection:
            for first in range(0, len(numbers), ENTRIES_AT_ONCE):
                some = _places(numbers[first : first + ENTRIES_AT_ONCE])
                found += _REPORTED_AT_OF.tuples(connection, id=experiment_id, **some)
        return {number: float(at) for number, at in found if at is not None}

    def checkpoints(self, experiment_id: ExperimentId, number: int) -> Sequence[Checkpoint]:
        c = tables.checkpoints
        query = (
            select(c)
            .where(c.c.experiment_id == experiment_id, c.c.number == number)
            .order_by(c.c.attempt.desc(), c.c.sequence.desc())
        )
        with self.reading() as connection:
            rows = connection.execute(query).mappings().all()
        return [mapping.CHECKPOINTS.value(row) for row in rows]

    def journal(self, experiment_id: ExperimentId, *, after: int = 0, limit: int = 1000) -> Sequence[JournalLine]:
        j = tables.journal
        query = select(j).where(j.c.experiment_id == experiment_id, j.c.line > after).order_by(j.c.line).limit(limit)
        with self.reading() as connection:
            rows = connection.execute(query).mappings().all()
        return [mapping.line_out(row) for row in rows]

    def quota_groups(self) -> Sequence[QuotaGroup]:
        g = tables.quota_groups
        with self.reading() as connection:
            rows = connection.execute(select(g).order_by(g.c.name)).mappings().all()
        return [mapping.QUOTA_GROUPS.value(row) for row in rows]

    def all_live_attempts(self) -> Sequence[Attempt]:
        with self.reading() as connection:
            return list(damage.live_attempts(connection))

    def live_attempts_of(self, agent_id: str) -> Sequence[Attempt]:
        with self.reading() as connection:
            found = damage.live_attempts(connection, _is_held_by(agent_id))
            return [attempt for attempt in found if attempt.is_held_by(agent_id)]

    def idempotency_key(self, key: str) -> StoredIdempotencyKey | None:
        k = tables.idempotency_keys
        with self.reading() as connection:
            row = connection.execute(select(k).where(k.c.key == mapping.text_in(key))).mappings().first()
        return None if row is None else mapping.KEYS.value(row)

    def is_for_agent(self, digest: str, agent_id: str) -> bool:
        r, c = tables.code_revisions, tables.checkpoints
        live = select(_a.c.experiment_id).where(_a.c.status.in_(reading.LIVE), _is_held_by(agent_id))
        name = mapping.text_in(digest)
        with self.reading() as connection:
            return any(
                connection.scalar(select(t.c.digest).where(t.c.digest == name, t.c.experiment_id.in_(live)).limit(1))
                for t in (r, c)
            )

    def blob(self, digest: str) -> bytes | None:
        b, places, c = tables.blobs, tables.blob_chunks, tables.chunks
        with self.reading() as connection:
            size = connection.scalar(select(b.c.size).where(b.c.digest == digest))
            if size is None:
                return None
            query = select(c.c.data).join(places, places.c.chunk == c.c.digest).where(places.c.digest == digest)
            chunks = connection.scalars(query.order_by(places.c.position))
            data = b"".join(chunks)
        if len(data) != size:
            raise StorageError(f"blob {digest} has {len(data)} of its {size} bytes; run `tuner doctor` on the database")
        return data

    def search_space(self, experiment_id: ExperimentId) -> dict[str, object] | None:
        with self.reading() as connection:
            rows = _NEWEST_SPACE.rows(connection, id=experiment_id)
        if rows:
            return mapping.REVISIONS.value(rows[0]).search_space
        experiment = self.experiment(experiment_id)
        return None if experiment is None else experiment.spec.search_space

    def newest_revision(self, experiment_id: ExperimentId) -> tuple[int, SearchSpaceRevision] | None:
        r = tables.search_space_revisions
        of_experiment = r.c.experiment_id == experiment_id
        counted = r.alias()
        of_counted = counted.c.experiment_id == experiment_id
        number = select(func.count()).select_from(counted).where(of_counted).scalar_subquery().label("number")
        query = select(r, number).where(of_experiment).order_by(r.c.line.desc()).limit(1)
        with self.reading() as connection:
            row = connection.execute(query).mappings().first()
        return None if row is None else (row["number"], mapping.REVISIONS.value(row))

    def search_space_revisions(
        self, experiment_id: ExperimentId, *, after: int = 0, limit: int = 1000
    ) -> Sequence[SearchSpaceRevision]:
        r = tables.search_space_revisions
        query = select(r).where(r.c.experiment_id == experiment_id).order_by(r.c.line).offset(after).limit(limit)
        with self.reading() as connection:
            return [mapping.REVISIONS.value(row) for row in connection.execute(query).mappings()]

    def all_metrics(
        self, experiment_id: ExperimentId, *, after: tuple[int, int, int] = (0, 0, 0), limit: int = 10_000
    ) -> Sequence[tuple[int, TrialMetric]]:
        m = tables.metrics
        place = (m.c.number, m.c.attempt, m.c.sequence)
        query = (
            select(m)
            .where(m.c.experiment_id == experiment_id, tuple_(*place) > tuple_(*after))
            .order_by(*place)
            .limit(limit)
        )
        with self.reading() as connection:
            rows = connection.execute(query).mappings().all()
        return [(row["number"], mapping.metric_out(row)) for row in rows]

    def history(self, experiment_id: ExperimentId, queue: Queue, *, after: int, upto: int) -> Iterator[QueueItem]:
        """As ``ports.Store`` promises it. Read page by page: no transaction stays open between items."""
        while after < upto:
            with self.reading() as connection:
                items, after = reading.history_page(connection, experiment_id, queue, after=after, upto=upto)
            yield from items

    def reports_on(self, experiment_id: ExperimentId, line: int) -> MetricsReported:
        """As ``ports.Store`` promises it."""
        with self.reading() as connection:
            return reading.reports_of_line(connection, experiment_id, line)

    def checkpoint_digests(self) -> frozenset[str]:
        """Of every checkpoint of every experiment, wherever its bytes lie."""
        with self.reading() as connection:
            return frozenset(connection.scalars(select(tables.checkpoints.c.digest).distinct()))


def _entries_out(connection: Connection, experiment_id: ExperimentId, found: list[TrialEntry]) -> list[TrialEntry]:
    """``found`` (by number) as ``ports`` promises them: a NaN is stored as text, every other number is one."""
    phased = _parameters_of_values(connection, experiment_id, sorted(e.number for e in found if e.wanted_index))
    found = [_with_numbers(e) if _has_text(e) else e for e in found]
    return [e._replace(parameters=phased[e.number]) if e.number in phased else e for e in found] if phased else found


def _has_text(entry: TrialEntry) -> bool:
    """In place of a number."""
    return isinstance(entry.value, str) or isinstance(entry.last_value, str) or isinstance(entry.reported_at, str)


def _with_numbers(entry: TrialEntry) -> TrialEntry:
    value, last, at = map(mapping.float_out, (entry.value, entry.last_value, entry.reported_at))
    return entry._replace(value=value, last_value=last, reported_at=at)


def _places(numbers: Sequence[int]) -> dict[str, int]:
    """For a statement with a fixed count of places: those left over ask for a trial that was asked for already."""
    asked = [*numbers, *[numbers[-1]] * (ENTRIES_AT_ONCE - len(numbers))]
    return {place.key: number for place, number in zip(_NUMBERS, asked, strict=True)}


def _parameters_of_values(
    connection: Connection, experiment_id: ExperimentId, numbers: Sequence[int]
) -> dict[int, str]:
    """Of trials that were given several sets of parameters, as JSON."""
    if not numbers:
        return {}
    span = _t.c.number.between(numbers[0], numbers[-1])
    query = select(_t).where(_t.c.experiment_id == experiment_id, span, _t.c.wanted_index > 0)
    trials = [mapping.trial_out(row) for row in connection.execute(query).mappings()]
    return {trial.number: mapping.to_json(trial.result_parameters) for trial in trials}


def _is_held_by(agent_id: str) -> ColumnElement[bool]:
    """Of a row of attempts: the agent has it, or a part of it."""
    is_part = _a.c.parts.contains(f'"agent_id":{mapping.to_json(agent_id)}', autoescape=True)
    return or_(_a.c.agent_id == mapping.text_in(agent_id), is_part)

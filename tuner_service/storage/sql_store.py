"""The one writer: each commit is one transaction."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from threading import Lock
from typing import Protocol

from sqlalchemy import Connection, Engine, delete, func, insert, select, update

from tuner_service.archive_ports import MovedMetrics
from tuner_service.dispatcher.changes import Changes, StoredSnapshot
from tuner_service.dispatcher.items import MetricsReported, Queue, QueueItem
from tuner_service.domain.archives import Archive, ArchivePhase
from tuner_service.domain.errors import StorageError
from tuner_service.domain.experiment import ExperimentId
from tuner_service.domain.resources import QuotaGroup
from tuner_service.domain.trial import AttemptStatus
from tuner_service.ports import Clock, LoadedExperiment, StoredSession, StoredToken
from tuner_service.storage import blobs, damage, mapping, reading, tables
from tuner_service.storage.access_rows import stored_sessions, stored_tokens
from tuner_service.storage.changed_rows import ChangedRows
from tuner_service.storage.commits import CommitSequence
from tuner_service.storage.examine import bad_rows
from tuner_service.storage.faults import translated
from tuner_service.storage.metric_rows import MetricWriter
from tuner_service.storage.moved_rows import MovedRows
from tuner_service.storage.row_updates import upsert
from tuner_service.storage.sql_assets import SqlAssets
from tuner_service.storage.sql_queries import SqlQueries

REMOVED_AT_ONCE = 10_000  # metrics
MAX_NUMBER = 2**62  # beyond every trial

logger = logging.getLogger(__name__)


class _Rehearsed(Exception):  # noqa: N818  # nothing is wrong: the transaction is rolled back
    """All of it could have been saved."""


class Hold(Protocol):
    """What makes this process the one that writes."""

    def is_in_place(self) -> bool:
        """Whether it still is. False: what it writes is written for nobody, or refused. Any thread."""

    def why_not_in_place(self) -> str:
        """What happened, and what to do."""

    def warning(self) -> str:
        """What people should know before it is trouble; "" where there is nothing. Any thread."""

    def announce(self, url: str) -> None:
        """This process serves there, for whoever asks the database."""

    def release(self) -> None:
        """Let another one write. Safe to repeat."""


class SqlStore:
    """Implements ``ports.Store``. ``queries`` reads the same database; ``hold`` is given back at the end."""

    def __init__(
        self, *, writer: WritingConnection, queries: SqlQueries, lineage: str, clock: Clock, hold: Hold
    ) -> None:
        self.queries = queries
        self._writer, self._clock, self._lineage, self._hold = writer, clock, lineage, hold
        self._writing = ChangedRows(writer.metrics)
        self.assets = SqlAssets(queries, writer.begin, lineage=lineage)
        self.moved_rows = MovedRows(
            queries, writer.begin, add=writer.metrics.add, vacuum=writer.give_back, stop=writer.stop_giving_back
        )
        self._sequence = CommitSequence()

    def is_in_place(self) -> bool:
        """Whether the database is still where it was opened, and this process's to write. Any thread."""
        return self._hold.is_in_place()

    def why_not_in_place(self) -> str:
        return self._hold.why_not_in_place()

    def warning(self) -> str:
        return self._hold.warning()

    def announce(self, url: str) -> None:
        self._hold.announce(url)

    @property
    def lineage(self) -> str:
        return self._lineage

    def commit(self, changes: Changes) -> int:
        saved = False
        try:
            with translated(), self._writer.begin() as connection:
                sequence = self._save(connection, changes)
            saved = True
        finally:
            if not saved:
                self._writing.forget()
                self._sequence.forget()
        return sequence

    def rehearse(self, changes: Changes) -> None:
        try:
            with suppress(_Rehearsed), translated(), self._writer.begin() as connection:
                self._save(connection, changes)
                raise _Rehearsed
        finally:
            self._writing.forget()
            self._sequence.forget()

    def _save(self, connection: Connection, changes: Changes) -> int:
        self._writing.save(connection, changes, self._clock.now())
        return self._sequence.add(connection, changes.touched())

    def load(self) -> tuple[LoadedExperiment, ...]:
        with self.queries.reading() as connection:
            try:
                loaded = reading.load(connection)
            except damage.DAMAGED:
                loaded = self._load_each(connection)
        self._set_aside(loaded)
        return loaded

    def _load_each(self, connection: Connection) -> tuple[LoadedExperiment, ...]:
        try:
            return damage.load_each(connection)
        except damage.DAMAGED as exc:
            first = next(bad_rows(self.queries), None)
            what = str(first) if first is not None else f"{type(exc).__name__}: {exc}"
            todo = "`tuner doctor` names every such row; restore the database from a backup"
            raise StorageError(f"the database cannot be read: {what}; {todo}") from exc

    def unable(self, loaded: LoadedExperiment, exc: Exception) -> LoadedExperiment:
        found = damage.unable(loaded, exc)
        self._set_aside([found])
        return found

    def set_aside(self, loaded: LoadedExperiment, why: str) -> LoadedExperiment:
        found = damage.at_fault(loaded, why)
        self._set_aside([found])
        return found

    def _set_aside(self, loaded: Iterable[LoadedExperiment]) -> None:
        for one in loaded:
            if one.damage:
                self.queries.set_aside[one.experiment.id] = (one.damage, one.experiment.reason)
                logger.error("experiment_set_aside", extra={"experiment": one.experiment.id, "error": one.damage})
            else:
                self.queries.set_aside.pop(one.experiment.id, None)

    def newest_at(self) -> float:
        """The newest time in the journals of the experiments that have not ended; 0.0 where there is none."""
        e, j = tables.experiments, tables.journal
        # Not a join: SQLite would read all of the journal and look for the experiment of each line.
        last = select(j.c.at).where(j.c.experiment_id == e.c.id, j.c.line == e.c.next_line - 1).scalar_subquery()
        query = select(last).where(e.c.ended_at.is_(None))
        newest = 0.0
        with self.queries.reading() as connection:
            reading.by_index(connection)
            for at in connection.execute(query).scalars():
                with suppress(*mapping.UNREADABLE):  # a damaged row says nothing; it is found when it is loaded
                    newest = max(newest, float(at or 0.0))
        return newest

    def quota_groups(self) -> Sequence[QuotaGroup]:
        return self.queries.quota_groups()

    def history(self, experiment_id: ExperimentId, queue: Queue, *, after: int, upto: int) -> Iterator[QueueItem]:
        return self.queries.history(experiment_id, queue, after=after, upto=upto)

    def reports_on(self, experiment_id: ExperimentId, line: int) -> MetricsReported:
        return self.queries.reports_on(experiment_id, line)

    def snapshot(self, experiment_id: ExperimentId, queue: Queue) -> StoredSnapshot | None:
        s = tables.algorithm_snapshots
        query = select(s).where(s.c.experiment_id == experiment_id, s.c.queue == queue.value)
        with self.queries.reading() as connection:
            row = connection.execute(query).mappings().first()
        try:
            return None if row is None else mapping.SNAPSHOTS.value(row)
        except StorageError as exc:  # the journal has all that it says
            logger.error("snapshot_left_out", extra={"experiment": experiment_id, "error": str(exc)})
            return None

    def tokens(self) -> Sequence[StoredToken]:
        """By name; those that have expired or were revoked too."""
        return stored_tokens(self.queries)

    def put_token(self, token: StoredToken, *, in_place_of: Sequence[str] = ()) -> None:
        """In place of the one of its name and of those with these names, in one transaction. Any thread."""
        t = tables.tokens
        with translated(), self._writer.begin() as connection:
            if in_place_of:
                connection.execute(delete(t).where(t.c.name.in_(in_place_of)))
            connection.execute(upsert(t, connection.dialect.name), mapping.TOKENS.row(token))

    def note_uses_of_tokens(self, used: Mapping[str, float]) -> None:
        """When those with these names were last used, of those that there are. Any thread."""
        t = tables.tokens
        with translated(), self._writer.begin() as connection:
            for name, at in used.items():
                connection.execute(update(t).where(t.c.name == name).values(last_used_at=at))

    def sessions(self) -> Sequence[StoredSession]:
        """Of browsers, oldest first; those that have expired too."""
        return stored_sessions(self.queries)

    def put_session(self, session: StoredSession, *, in_place_of: Sequence[str]) -> None:
        """Add it, and drop those with these ids, in one transaction. Any thread."""
        with translated(), self._writer.begin() as connection:
            connection.execute(insert(tables.sessions), mapping.SESSIONS.row(session))
            _drop_sessions(connection, in_place_of)

    def drop_sessions(self, ids: Sequence[str]) -> None:
        """Those among them that there are. Any thread."""
        with translated(), self._writer.begin() as connection:
            _drop_sessions(connection, ids)

    def note_uses(self, sessions: Sequence[StoredSession]) -> None:
        """The ``address`` and ``last_used_at`` of those among them that there are. Any thread."""
        s = tables.sessions
        with translated(), self._writer.begin() as connection:
            for session in sessions:
                used = {"address": session.address, "last_used_at": session.last_used_at}
                connection.execute(update(s).where(s.c.id == session.id).values(used))

    def remove_experiment(self, experiment_id: ExperimentId) -> None:
        """And everything of it, some rows at a time; where no dispatcher has it in memory.

        It is marked first: killed in between, the next service goes on with that.
        """
        self.commit(Changes(removing={experiment_id: Archive(phase=ArchivePhase.REMOVING, upto=0)}))
        moved, after = MovedMetrics(experiment_id, 1, MAX_NUMBER), (0, 0, 0)
        while (portion := self.moved_rows.clear(moved, after=after, limit=REMOVED_AT_ONCE)).size:
            after = portion.last
        while found := self.moved_rows.checkpoints(experiment_id, limit=REMOVED_AT_ONCE):
            self.commit(Changes(dropped_checkpoints=list(found)))
        while self.moved_rows.remove(experiment_id, limit=REMOVED_AT_ONCE):
            pass
        self.commit(Changes(deleted_experiments=[experiment_id]))

    def unnamed_blobs(self) -> dict[str, int]:
        """Digest → size of the blobs that nothing names, and that no running attempt can be about to name."""
        a, b = tables.attempts, tables.blobs
        live = [s.value for s in AttemptStatus if not s.is_final]
        with self.queries.reading() as connection:
            since = connection.scalar(select(func.min(a.c.created_at)).where(a.c.status.in_(live)))
            found = connection.execute(select(b.c.digest, b.c.size, b.c.at).where(*blobs.named_by_nobody()))
            return {digest: size for digest, size, at in found if since is None or float(at) < float(since)}

    def delete_unnamed_blobs(self, digests: Iterable[str]) -> None:
        """Those among them that nothing names, in one transaction."""
        with translated(), self._writer.begin() as connection:
            blobs.remove_unnamed(connection, list(digests))

    def begin(self) -> AbstractContextManager[Connection]:
        """A transaction of whoever writes rows as they are."""
        return self._writer.begin()

    def close(self) -> None:
        self.queries.close()
        self._writer.close()
        self._hold.release()


class WritingConnection:
    """The one connection that writes, kept between transactions: taking it from a pool costs as much as one.

    ``settle`` is called with it after each; ``metrics`` is how rows of metrics are added in one.
    """

    def __init__(self, engine: Engine, *, settle: Callable[[Connection], None], metrics: MetricWriter) -> None:
        self.engine, self.metrics = engine, metrics
        self._settle = settle
        self._lock = Lock()
        self._connection: Connection | None = None

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """A transaction, one at a time."""
        with self._lock:
            connection = self._connection or self.engine.connect()
            self._connection = None  # one that failed is not used again before the pool has looked at it
            try:
                with connection.begin():
                    yield connection
                self._settle(connection)
                self._connection = connection
            finally:
                if self._connection is None:
                    connection.close()

    def give_back(self, *, rows_went: bool) -> bool:  # noqa: ARG002  # a server looks at it
        """Return a little of the room that is free to the operating system; False when there is nothing to return.

        ``rows_went``: since it was last looked at.
        """
        return False

    def stop_giving_back(self) -> None:
        """What of it is under way and takes long is given up; any thread."""

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
        self.engine.dispose()


def prune(connection: Connection, *, before: float) -> None:
    """Forget idempotency keys, and blobs that nothing names, that came before that time."""
    b = tables.blobs
    connection.execute(delete(tables.idempotency_keys).where(tables.idempotency_keys.c.at < before))
    # Asked for at once: most of the old ones are named, and there may be as many as there are trials.
    old = select(b.c.digest).where(b.c.at < before, *blobs.named_by_nobody())
    blobs.remove(connection, list(connection.scalars(old)))


def _drop_sessions(connection: Connection, ids: Sequence[str]) -> None:
    if ids:
        connection.execute(delete(tables.sessions).where(tables.sessions.c.id.in_(ids)))

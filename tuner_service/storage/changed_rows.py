"""The rows that a commit changes: what of ``Changes`` becomes which statement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Table, and_, bindparam, delete, insert, or_, select, update

from tuner_service.dispatcher.changes import Changes, MetricsCut, SkippedLine
from tuner_service.domain.experiment import Experiment, ExperimentId, ExperimentSpec
from tuner_service.domain.resources import QuotaGroup
from tuner_service.domain.trial import Checkpoint
from tuner_service.storage import blobs, mapping, tables
from tuner_service.storage.mapping import Row
from tuner_service.storage.metric_rows import MetricWriter
from tuner_service.storage.prepared_writes import execute_many
from tuner_service.storage.row_updates import RowUpdates, dialect_insert, upsert

_INSERT_LINES = insert(tables.journal)
_CHECKPOINT_KEY = ("experiment_id", "number", "attempt", "sequence")
_DROP_CHECKPOINT = delete(tables.checkpoints).where(
    *(tables.checkpoints.c[name] == bindparam(f"key_{name}") for name in _CHECKPOINT_KEY)
)


class ChangedRows:
    """Turns changes into statements. Remembers what it wrote, and leaves out what is there already."""

    def __init__(self, metrics: MetricWriter) -> None:
        self._metrics = metrics
        self._specs: dict[ExperimentId, ExperimentSpec] = {}
        self._experiments = RowUpdates(tables.experiments, mapping.experiment_in)
        self._trials = RowUpdates(tables.trials, mapping.trial_in)
        self._attempts = RowUpdates(tables.attempts, mapping.attempt_in)

    def save(self, connection: Connection, changes: Changes, at: float) -> None:
        """In the transaction that ``connection`` is in; ``at`` is now."""
        changes = _without_deleted(changes)
        self._save_experiments(connection, changes.experiments)
        _put(connection, tables.search_space_revisions, [mapping.REVISIONS.row(r) for r in changes.search_spaces])
        for digest, data in changes.blobs.items():
            blobs.save(connection, digest, data, at)
        self._trials.put(connection, changes.trials)
        _name_assets(connection, changes.named_assets)
        _unname_assets(connection, changes.unnamed_assets)
        _put(connection, tables.decisions, [mapping.DECISIONS.row(d) for d in changes.decisions])
        self._attempts.put(connection, changes.attempts)
        if changes.journal:
            execute_many(connection, _INSERT_LINES, [mapping.line_in(line) for line in changes.journal])
        for skipped in changes.skipped_lines:
            _skip_line(connection, skipped)
        self._metrics.save(connection, changes.metrics)
        for cut in changes.metric_cuts:
            _cut_metrics(connection, cut)
        _put(connection, tables.checkpoints, [mapping.CHECKPOINTS.row(c) for c in changes.checkpoints])
        unsure = _drop_checkpoints(connection, changes.dropped_checkpoints)
        _put(connection, tables.algorithm_snapshots, [mapping.SNAPSHOTS.row(s) for s in changes.snapshots])
        _put(connection, tables.idempotency_keys, [mapping.KEYS.row(k) for k in changes.idempotency_keys])
        _put_quota_groups(connection, changes.quota_groups)
        for experiment_id, archive in changes.removing.items():
            _mark(connection, experiment_id, archive=mapping.EXPERIMENTS.encoded("archive", archive))
            self._experiments.forget()
        for experiment_id in changes.deleted_experiments:
            unsure |= _delete_experiment(connection, experiment_id)
            self.forget()
        if unsure:
            blobs.remove_unnamed(connection, sorted(unsure - changes.fresh_blobs))

    def forget(self) -> None:
        """What was written last was rolled back, or deleted."""
        self._specs.clear()
        self._experiments.forget()
        self._trials.forget()
        self._attempts.forget()

    def _save_experiments(self, connection: Connection, changed: Mapping[ExperimentId, Experiment]) -> None:
        self._experiments.put(connection, changed)
        experiments = changed.values()
        _put(connection, tables.queue_cursors, [row for e in experiments for row in mapping.cursors_in(e)])
        fresh = [e for e in experiments if self._specs.get(e.id) is not e.spec]
        code = [{"experiment_id": e.id, "digest": digest} for e in fresh for digest in e.spec.trial.blobs]
        if code:
            statement = dialect_insert(connection.dialect.name)(tables.code_revisions).on_conflict_do_nothing()
            connection.execute(statement, code)
        _name_assets(connection, [(e.id, digest) for e in fresh for digest in sorted(e.spec.trial.assets)])
        self._specs |= {e.id: e.spec for e in fresh}


def _without_deleted(changes: Changes) -> Changes:
    """``changes`` less what it writes about experiments it deletes."""
    if not changes.deleted_experiments:
        return changes
    gone = set(changes.deleted_experiments)
    return replace(
        changes.of(lambda one: one not in gone),
        unnamed_assets=changes.unnamed_assets,
        dropped_checkpoints=changes.dropped_checkpoints,
        quota_groups=changes.quota_groups,
        deleted_experiments=changes.deleted_experiments,
    )


def _put_quota_groups(connection: Connection, groups: Mapping[str, QuotaGroup | None]) -> None:
    _put(connection, tables.quota_groups, [mapping.QUOTA_GROUPS.row(g) for g in groups.values() if g is not None])
    gone = [name for name, group in groups.items() if group is None]
    if gone:
        connection.execute(delete(tables.quota_groups).where(tables.quota_groups.c.name.in_(gone)))


def _put(connection: Connection, table: Table, rows: list[Row]) -> None:
    if rows:
        execute_many(connection, upsert(table, connection.dialect.name), rows)


def _name_assets(connection: Connection, named: Sequence[tuple[ExperimentId, str]]) -> None:
    """What an experiment needs, or its trials left: nobody collects it as long as the experiment is there."""
    if named:
        statement = dialect_insert(connection.dialect.name)(tables.experiment_assets).on_conflict_do_nothing()
        connection.execute(statement, [{"experiment_id": e, "asset_id": a} for e, a in named])


def _unname_assets(connection: Connection, named: Sequence[tuple[ExperimentId, str]]) -> None:
    u = tables.experiment_assets
    for experiment_id, asset_id in named:
        connection.execute(delete(u).where(u.c.experiment_id == experiment_id, u.c.asset_id == asset_id))


def _cut_metrics(connection: Connection, cut: MetricsCut) -> None:
    m = tables.metrics
    later = or_(m.c.line > cut.line, and_(m.c.line == cut.line, m.c.sequence > cut.sequence))
    connection.execute(delete(m).where(m.c.experiment_id == cut.experiment_id, m.c.number == cut.number, later))


def _skip_line(connection: Connection, skipped: SkippedLine) -> None:
    j, bit = tables.journal, mapping.QUEUE_BITS[skipped.queue]
    named = j.c.experiment_id == skipped.experiment_id, j.c.line == skipped.line, j.c.queues.op("&")(bit) != 0
    connection.execute(update(j).where(*named).values(queues=j.c.queues - bit))
    r = tables.search_space_revisions  # none is the newest that its tuner was never told
    connection.execute(delete(r).where(r.c.experiment_id == skipped.experiment_id, r.c.line == skipped.line))


def _drop_checkpoints(connection: Connection, dropped: Sequence[Checkpoint]) -> set[str]:
    keys = [{f"key_{name}": getattr(checkpoint, name) for name in _CHECKPOINT_KEY} for checkpoint in dropped]
    if keys:
        connection.execute(_DROP_CHECKPOINT, keys)
    return {checkpoint.digest for checkpoint in dropped}


def _delete_experiment(connection: Connection, experiment_id: ExperimentId) -> set[str]:
    """Everything of it but its blobs, whose digests are returned."""
    named = [
        select(table.c.digest).where(table.c.experiment_id == experiment_id)
        for table in (tables.checkpoints, tables.code_revisions)
    ]
    digests = {digest for query in named for digest in connection.scalars(query)}
    # The rest goes with the experiment's row; metrics come first and in one go, because they are many.
    connection.execute(delete(tables.metrics).where(tables.metrics.c.experiment_id == experiment_id))
    connection.execute(delete(tables.experiments).where(tables.experiments.c.id == experiment_id))
    return digests


def _mark(connection: Connection, experiment_id: ExperimentId, **columns: Any) -> None:
    """Whatever else stands in its row."""
    e = tables.experiments
    connection.execute(update(e).where(e.c.id == experiment_id).values(columns))

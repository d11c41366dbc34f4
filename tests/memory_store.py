"""A store in plain dicts with the promises of the real one; it passes the same contract suite."""

from __future__ import annotations

import itertools
import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace

from trials.wire.plain import to_plain
from tuner_service.archive_ports import Held, MetricKey, MovedMetrics, Portion
from tuner_service.dispatcher.changes import (
    Changes,
    JournalLine,
    MetricRow,
    MetricsCut,
    SearchSpaceRevision,
    StoredDecision,
    StoredIdempotencyKey,
    StoredSnapshot,
    Touched,
)
from tuner_service.dispatcher.items import EncodedJson, MetricsReported, Queue, QueueItem
from tuner_service.dispatcher.limits import ASSESSOR_REPORTS_LIMIT
from tuner_service.dispatcher.step import report_count
from tuner_service.domain.errors import StorageError
from tuner_service.domain.experiment import Experiment, ExperimentId
from tuner_service.domain.resources import QuotaGroup
from tuner_service.domain.trial import EVALUATOR, Attempt, Checkpoint, Trial
from tuner_service.ports import (
    AttemptSpan,
    CurvePoint,
    LoadedExperiment,
    StoredSession,
    StoredToken,
    TrialEntry,
    TrialMetric,
)
from tuner_service.storage.items import SeenReport, item_of


@dataclass(slots=True)
class _Rows:
    """Everything of one experiment."""

    experiment: Experiment
    spaces: dict[int, SearchSpaceRevision] = field(default_factory=dict)
    code: set[str] = field(default_factory=set)
    trials: dict[int, Trial] = field(default_factory=dict)
    decisions: dict[int, StoredDecision] = field(default_factory=dict)
    decided: dict[int, tuple[int, int]] = field(default_factory=dict)  # line → number and index of what it asked for
    attempts: dict[tuple[int, int], Attempt] = field(default_factory=dict)
    journal: dict[int, JournalLine] = field(default_factory=dict)
    routed: dict[Queue, list[int]] = field(default_factory=lambda: {q: [] for q in Queue})
    metrics: dict[int, dict[tuple[int, int], MetricRow]] = field(default_factory=lambda: defaultdict(dict))
    checkpoints: dict[tuple[int, int, int], Checkpoint] = field(default_factory=dict)
    snapshots: dict[Queue, StoredSnapshot] = field(default_factory=dict)


class MemoryMovedRows:
    """Implements ``archive_ports.MovedRows`` as far as unit tests of the API ask it."""

    def __init__(self, rows: dict[ExperimentId, _Rows]) -> None:
        self._rows = rows

    def _count(self, experiment_id: ExperimentId) -> int:
        rows = self._rows.get(experiment_id)
        return 0 if rows is None else sum(map(len, rows.metrics.values()))

    def has_more_than(self, experiment_id: ExperimentId, count: int) -> bool:
        return self._count(experiment_id) > count

    def checkpoints(self, experiment_id: ExperimentId, *, limit: int) -> Sequence[Checkpoint]:
        return list(self._rows[experiment_id].checkpoints.values())[:limit]

    def remove(self, experiment_id: ExperimentId, *, limit: int) -> int:
        return 0  # all go with their experiment; that they go some at a time is tested on databases

    def held(self, experiment_id: ExperimentId) -> Held:
        rows = self._rows[experiment_id]
        return Held(self._count(experiment_id), sum(checkpoint.size for checkpoint in rows.checkpoints.values()))

    def clear(self, moved: MovedMetrics, *, after: MetricKey, limit: int) -> Portion:
        found = sorted(
            (number, *key)
            for number, metrics in self._rows[moved.experiment_id].metrics.items()
            for key, metric in metrics.items()
            if moved.first <= number <= moved.last
            and (number, *key) > after
            and (moved.upto is None or metric.line <= moved.upto)
        )[:limit]
        for number, *key in found:
            del self._rows[moved.experiment_id].metrics[number][key[0], key[1]]
        return Portion(len(found), found[-1] if found else after)

    def last_restored(self, moved: MovedMetrics) -> MetricKey | None:
        raise AssertionError("restoring is tested on databases")

    def restore(self, experiment_id: ExperimentId, rows: Sequence[Sequence[object]]) -> None:
        raise AssertionError("restoring is tested on databases")

    def give_back(self) -> bool:
        return False

    def stop_giving_back(self) -> None: ...


class MemoryStore:
    """``refusals``: errors that the next commits raise, one each, instead of saving."""

    def __init__(self, *, lineage: str = "memory") -> None:
        self.refusals: list[Exception] = []
        self._lineage = lineage
        self._rows: dict[ExperimentId, _Rows] = {}
        self._blobs: dict[str, bytes] = {}
        self._keys: dict[str, StoredIdempotencyKey] = {}
        self._groups: dict[str, QuotaGroup] = {}
        self._sessions: dict[str, StoredSession] = {}
        self._tokens: dict[str, StoredToken] = {}
        self.moved_rows = MemoryMovedRows(self._rows)
        self.queries = MemoryQueries(self._rows, self._blobs, self._keys, self._groups)

    @property
    def lineage(self) -> str:
        return self._lineage

    def close(self) -> None:
        pass

    # ── writing ─────────────────────────────────────────────────────────────────────────────────
    def commit(self, changes: Changes) -> int:
        if self.refusals:
            raise self.refusals.pop(0)
        self._check(changes)
        gone = set(changes.deleted_experiments)
        self._put_rows(changes, gone)
        self._put_lines(changes, gone)
        for cut in changes.metric_cuts:
            if cut.experiment_id not in gone:
                self._cut(cut)
        self._blobs |= {d: b for d, b in changes.blobs.items() if d not in self._blobs}
        for key in changes.idempotency_keys:
            if key.experiment_id not in gone:
                self._keys[key.key] = key
        for name, group in changes.quota_groups.items():
            if group is None:
                self._groups.pop(name, None)
            else:
                self._groups[name] = group
        self._delete(changes)
        self.queries.commits.append(changes.touched())
        return len(self.queries.commits)

    def rehearse(self, changes: Changes) -> None:
        if self.refusals:
            raise self.refusals[0]
        self._check(changes)

    # ── sessions ────────────────────────────────────────────────────────────────────────────────
    def sessions(self) -> Sequence[StoredSession]:
        return sorted(self._sessions.values(), key=lambda session: (session.created_at, session.id))

    def put_session(self, session: StoredSession, *, in_place_of: Sequence[str]) -> None:
        self.drop_sessions(in_place_of)
        self._sessions[session.id] = session

    def note_uses(self, sessions: Sequence[StoredSession]) -> None:
        for session in sessions:
            if session.id in self._sessions:
                used = replace(self._sessions[session.id], address=session.address, last_used_at=session.last_used_at)
                self._sessions[session.id] = used

    def tokens(self) -> Sequence[StoredToken]:
        return sorted(self._tokens.values(), key=lambda token: token.name)

    def put_token(self, token: StoredToken, *, in_place_of: Sequence[str] = ()) -> None:
        for name in in_place_of:
            self._tokens.pop(name, None)
        self._tokens[token.name] = token

    def note_uses_of_tokens(self, used: Mapping[str, float]) -> None:
        for name in used.keys() & self._tokens.keys():
            self._tokens[name] = replace(self._tokens[name], last_used_at=used[name])

    def drop_sessions(self, ids: Sequence[str]) -> None:
        for session_id in ids:
            self._sessions.pop(session_id, None)

    # ── what a commit is made of ────────────────────────────────────────────────────────────────

    def _check(self, changes: Changes) -> None:
        """StorageError for what a database's keys would refuse, before anything is changed."""
        known = self._rows.keys() | changes.experiments.keys() | set(changes.deleted_experiments)
        named = itertools.chain(
            (experiment_id for experiment_id, _ in changes.trials),
            (line.experiment_id for line in changes.journal),
            (metric.experiment_id for metric in changes.metrics),
            (checkpoint.experiment_id for checkpoint in changes.checkpoints),
            (revision.experiment_id for revision in changes.search_spaces),
            (snapshot.experiment_id for snapshot in changes.snapshots),
        )
        for experiment_id in named:
            _require(experiment_id in known, f"a row names the unknown experiment {experiment_id!r}")
        for key in changes.attempts:
            _require(self._has_trial(changes, key.experiment_id, key.number), f"attempt {key} has no trial")
        for metric in changes.metrics:
            name = (metric.experiment_id, metric.number)
            _require(self._has_trial(changes, *name), f"a metric names the unknown trial {name}")
        self._check_duplicates(changes)

    def _check_duplicates(self, changes: Changes) -> None:
        lines = [(line.experiment_id, line.line) for line in changes.journal]
        _require(len(set(lines)) == len(lines), "a journal line was written twice")
        for experiment_id, line in lines:
            rows = self._rows.get(experiment_id)
            _require(rows is None or line not in rows.journal, f"line {line} of {experiment_id} was written before")
        identities = [(m.experiment_id, m.number, m.attempt, m.sequence) for m in changes.metrics]
        _require(len(set(identities)) == len(identities), "a metric was written twice")
        for experiment_id, number, attempt, sequence in identities:
            rows = self._rows.get(experiment_id)
            stored = rows is not None and (attempt, sequence) in rows.metrics.get(number, {})
            _require(not stored, f"metric {experiment_id}/{number}/{attempt}#{sequence} was written before")

    def _has_trial(self, changes: Changes, experiment_id: ExperimentId, number: int) -> bool:
        rows = self._rows.get(experiment_id)
        return (
            (experiment_id, number) in changes.trials
            or (rows is not None and number in rows.trials)
            or experiment_id in changes.deleted_experiments
        )

    def _put_rows(self, changes: Changes, gone: set[ExperimentId]) -> None:
        for experiment in changes.experiments.values():
            if experiment.id in gone:
                continue
            rows = self._rows.get(experiment.id)
            if rows is None:
                rows = self._rows[experiment.id] = _Rows(experiment=experiment)
            rows.experiment = experiment
            rows.code.update(experiment.spec.trial.blobs)
        for experiment_id, archive in changes.removing.items():
            if experiment_id in self._rows and experiment_id not in gone:
                rows = self._rows[experiment_id]
                rows.experiment = replace(rows.experiment, archive=archive)
        for (experiment_id, number), trial in changes.trials.items():
            if experiment_id not in gone:
                self._rows[experiment_id].trials[number] = trial
                self._rows[experiment_id].decided[trial.decided_line] = (number, 0)
                for index, line in enumerate(trial.further_lines, start=1):
                    self._rows[experiment_id].decided[line] = (number, index)
        for decision in changes.decisions:
            if decision.experiment_id not in gone:
                self._rows[decision.experiment_id].decisions[decision.line] = decision
        for key, attempt in changes.attempts.items():
            if key.experiment_id not in gone:
                self._rows[key.experiment_id].attempts[key.number, key.attempt] = attempt

    def _put_lines(self, changes: Changes, gone: set[ExperimentId]) -> None:
        for revision in changes.search_spaces:
            if revision.experiment_id not in gone:
                self._rows[revision.experiment_id].spaces[revision.line] = revision
        for line in changes.journal:
            if line.experiment_id not in gone:
                rows = self._rows[line.experiment_id]
                rows.journal[line.line] = replace(line, payload=_as_stored(line.payload))
                for queue in line.queues:
                    rows.routed[queue].append(line.line)
        for skipped in changes.skipped_lines:
            if skipped.experiment_id not in gone:
                rows = self._rows[skipped.experiment_id]
                kept = tuple(queue for queue in rows.journal[skipped.line].queues if queue is not skipped.queue)
                rows.journal[skipped.line] = replace(rows.journal[skipped.line], queues=kept)
                rows.routed[skipped.queue] = [n for n in rows.routed[skipped.queue] if n != skipped.line]
                rows.spaces.pop(skipped.line, None)
        for metric in changes.metrics:
            if metric.experiment_id not in gone:
                rows = self._rows[metric.experiment_id]
                rows.metrics[metric.number][metric.attempt, metric.sequence] = metric
        for checkpoint in changes.checkpoints:
            if checkpoint.experiment_id not in gone:
                self._rows[checkpoint.experiment_id].checkpoints[_place(checkpoint)] = checkpoint
        for snapshot in changes.snapshots:
            if snapshot.experiment_id not in gone:
                self._rows[snapshot.experiment_id].snapshots[snapshot.queue] = snapshot

    def _cut(self, cut: MetricsCut) -> None:
        metrics = self._rows[cut.experiment_id].metrics[cut.number]
        for key in [k for k, m in metrics.items() if (m.line, m.sequence) > (cut.line, cut.sequence)]:
            del metrics[key]

    def _delete(self, changes: Changes) -> None:
        unsure: set[str] = set()
        for checkpoint in changes.dropped_checkpoints:
            rows = self._rows.get(checkpoint.experiment_id)
            if rows is not None:
                rows.checkpoints.pop(_place(checkpoint), None)
            unsure.add(checkpoint.digest)
        for experiment_id in changes.deleted_experiments:
            rows = self._rows.pop(experiment_id, None)
            if rows is not None:
                unsure |= rows.code | {c.digest for c in rows.checkpoints.values()}
            for key in [k.key for k in self._keys.values() if k.experiment_id == experiment_id]:
                del self._keys[key]
        named = {d for r in self._rows.values() for d in (*r.code, *(c.digest for c in r.checkpoints.values()))}
        for digest in unsure - named - changes.fresh_blobs if unsure else ():
            self._blobs.pop(digest, None)

    # ── reading ─────────────────────────────────────────────────────────────────────────────────
    def load(self) -> tuple[LoadedExperiment, ...]:
        oldest_first = sorted(self._rows.values(), key=lambda r: (r.experiment.created_at, r.experiment.id))
        return tuple(map(_loaded, oldest_first))

    def unable(self, loaded: LoadedExperiment, exc: Exception) -> LoadedExperiment:
        return replace(loaded, damage=f"its rows are damaged: {exc}")

    def set_aside(self, loaded: LoadedExperiment, why: str) -> LoadedExperiment:
        return replace(loaded, damage=why)

    def quota_groups(self) -> Sequence[QuotaGroup]:
        return self.queries.quota_groups()

    def history(self, experiment_id: ExperimentId, queue: Queue, *, after: int, upto: int) -> Iterator[QueueItem]:
        rows = self._rows.get(experiment_id)
        return iter([] if rows is None else list(_history(rows, queue, after=after, upto=upto)))

    def reports_on(self, experiment_id: ExperimentId, line: int) -> MetricsReported:
        rows = self._rows[experiment_id]
        item = _item(rows, rows.journal[line], with_values=True)
        assert isinstance(item, MetricsReported)
        return item

    def snapshot(self, experiment_id: ExperimentId, queue: Queue) -> StoredSnapshot | None:
        rows = self._rows.get(experiment_id)
        return None if rows is None else rows.snapshots.get(queue)


class MemoryQueries:
    version_waits = False

    def __init__(
        self,
        rows: dict[ExperimentId, _Rows],
        blobs: dict[str, bytes],
        keys: dict[str, StoredIdempotencyKey],
        groups: dict[str, QuotaGroup],
    ) -> None:
        self._rows, self._blobs, self._keys, self._groups = rows, blobs, keys, groups
        self.commits: list[Touched] = []
        self.commits_kept = 5_000

    def quota_groups(self) -> Sequence[QuotaGroup]:
        return [group for _, group in sorted(self._groups.items())]

    def all_live_attempts(self) -> Sequence[Attempt]:
        return [attempt for experiment_id in list(self._rows) for attempt in self.live_attempts(experiment_id)]

    def live_attempts_of(self, agent_id: str) -> Sequence[Attempt]:
        return [attempt for attempt in self.all_live_attempts() if attempt.is_held_by(agent_id)]

    def snapshot(self) -> AbstractContextManager[object]:
        """Nothing: whoever reads here does so on the thread that writes."""
        return nullcontext()

    def version(self) -> int:
        return len(self.commits)

    def sequence(self) -> int:
        return len(self.commits)

    def touched_after(self, sequence: int) -> Touched | None:
        if not max(0, len(self.commits) - self.commits_kept) <= sequence <= len(self.commits):
            return None
        merged = Touched()
        for touched in self.commits[sequence:]:
            merged.add(touched)
        return merged

    def experiments(self) -> Sequence[Experiment]:
        found = [rows.experiment for rows in list(self._rows.values())]
        return sorted(found, key=lambda e: (e.created_at, e.id), reverse=True)

    def experiment(self, experiment_id: ExperimentId) -> Experiment | None:
        rows = self._rows.get(experiment_id)
        return None if rows is None else rows.experiment

    def trials(
        self, experiment_id: ExperimentId, *, after: int = 0, limit: int = 1000, statuses: Sequence[str] = ()
    ) -> Sequence[Trial]:
        rows = self._rows.get(experiment_id)
        found = [] if rows is None else [t for n, t in sorted(rows.trials.items()) if n > after]
        return [t for t in found if not statuses or t.status in statuses][:limit]

    def trial_entries(
        self, experiment_id: ExperimentId, *, after: int = 0, limit: int = 1000, statuses: Sequence[str] = ()
    ) -> Sequence[TrialEntry]:
        return [
            TrialEntry(
                number=t.number,
                status=t.status.value,
                reason=t.reason.value,
                value=t.value,
                step=t.last_step,
                attempts=t.attempts,
                started_at=t.started_at,
                ended_at=t.ended_at,
                running_s=t.running_s,
                running_since=t.running_since,
                parameters=json.dumps(t.result_parameters, separators=(",", ":")),
                wanted_index=t.wanted_index,
                source=t.source,
                retry_of=t.retry_of,
                final=json.dumps(t.final),
                last_metrics=json.dumps(t.last_metrics),
                last_value=t.last_value,
                reported_at=self.reported_at(experiment_id, [t.number]).get(t.number),
                told_line=t.told_line,
            )
            for t in self.trials(experiment_id, after=after, limit=limit, statuses=statuses)
        ]

    def entries_of(self, experiment_id: ExperimentId, numbers: Sequence[int]) -> Sequence[TrialEntry]:
        wanted = set(numbers)
        return [e for e in self.trial_entries(experiment_id, limit=1_000_000) if e.number in wanted]

    def curve_points(
        self, experiment_id: ExperimentId, number: int, *, after: tuple[int, int] = (0, 0), limit: int = 10_000
    ) -> Sequence[CurvePoint]:
        rows = self._rows.get(experiment_id)
        found = [] if rows is None else sorted(rows.metrics.get(number, {}).items())
        return [
            CurvePoint(m.attempt, m.sequence, m.step, m.objective)
            for place, m in found
            if place > after and m.first and m.step is not None and m.objective is not None
        ][:limit]

    def attempt_spans(self, experiment_id: ExperimentId, *, limit: int) -> Sequence[AttemptSpan]:
        begun = [a for a in reversed(self.attempts(experiment_id)) if a.started_at is not None]
        return [
            AttemptSpan(
                number=a.key.number,
                attempt=a.key.attempt,
                status=a.status.value,
                agent_id=a.agent_id,
                holdings=json.dumps(to_plain(a.holdings)),
                started_at=a.started_at,
                ended_at=a.ended_at,
            )
            for a in begun[:limit]
        ]

    def trials_of(self, experiment_id: ExperimentId, numbers: Collection[int]) -> Sequence[Trial]:
        return [t for t in self.trials(experiment_id, after=-1, limit=100_000) if t.number in numbers]

    def trial(self, experiment_id: ExperimentId, number: int) -> Trial | None:
        rows = self._rows.get(experiment_id)
        return None if rows is None else rows.trials.get(number)

    def best_trials(self, experiment_ids: Collection[ExperimentId]) -> Mapping[ExperimentId, Trial]:
        named = [one for one in self.experiments() if one.id in experiment_ids]
        found = [self.trial(one.id, one.best_number) for one in named if one.best_number is not None]
        return {trial.experiment_id: trial for trial in found if trial is not None}

    def attempts(self, experiment_id: ExperimentId, number: int | None = None) -> Sequence[Attempt]:
        rows = self._rows.get(experiment_id)
        found = [] if rows is None else [a for _, a in sorted(rows.attempts.items())]
        return [a for a in found if number is None or a.key.number == number]

    def live_attempts(self, experiment_id: ExperimentId) -> Sequence[Attempt]:
        return [a for a in self.attempts(experiment_id) if not a.status.is_final]

    def live_trials(self, experiment_id: ExperimentId) -> Sequence[tuple[Trial, float | None]]:
        numbers = sorted({attempt.key.number for attempt in self.live_attempts(experiment_id)})
        told = self.reported_at(experiment_id, numbers)
        return [(t, told.get(n)) for n in numbers if (t := self.trial(experiment_id, n)) is not None]

    def asked_attempt(self, experiment_id: ExperimentId, token: str) -> Attempt | None:
        asked = (a for a in self.attempts(experiment_id) if a.agent_id == EVALUATOR and a.nonce == token)
        return next(asked, None)

    def metrics(
        self, experiment_id: ExperimentId, number: int, *, after: tuple[int, int] = (0, 0), limit: int = 10_000
    ) -> Sequence[TrialMetric]:
        rows = self._rows.get(experiment_id)
        found = [] if rows is None else sorted(rows.metrics.get(number, {}).items())
        return [_trial_metric(metric) for place, metric in found if place > after][:limit]

    def reported_at(self, experiment_id: ExperimentId, numbers: Sequence[int]) -> Mapping[int, float]:
        rows = self._rows.get(experiment_id)
        trials = {} if rows is None else {n: t for n in numbers if (t := rows.trials.get(n))}
        going = [n for n, t in trials.items() if t.started_at is not None and t.ended_at is None]
        found = {} if rows is None else {n: sorted(rows.metrics.get(n, {}).items()) for n in going}
        return {number: reports[-1][1].at for number, reports in found.items() if reports}

    def checkpoints(self, experiment_id: ExperimentId, number: int) -> Sequence[Checkpoint]:
        rows = self._rows.get(experiment_id)
        found = [] if rows is None else sorted(rows.checkpoints.items(), reverse=True)
        return [c for _, c in found if c.number == number]

    def journal(self, experiment_id: ExperimentId, *, after: int = 0, limit: int = 1000) -> Sequence[JournalLine]:
        rows = self._rows.get(experiment_id)
        return [] if rows is None else [line for n, line in sorted(rows.journal.items()) if n > after][:limit]

    def idempotency_key(self, key: str) -> StoredIdempotencyKey | None:
        return self._keys.get(key)

    def is_for_agent(self, digest: str, agent_id: str) -> bool:
        experiments = {a.key.experiment_id for a in self.all_live_attempts() if a.is_held_by(agent_id)}
        return any(
            digest in self._rows[one].code or digest in {c.digest for c in self._rows[one].checkpoints.values()}
            for one in experiments
        )

    def blob(self, digest: str) -> bytes | None:
        return self._blobs.get(digest)

    def search_space(self, experiment_id: ExperimentId) -> dict[str, object] | None:
        rows = self._rows.get(experiment_id)
        if rows is None:
            return None
        return rows.spaces[max(rows.spaces)].search_space if rows.spaces else rows.experiment.spec.search_space

    def newest_revision(self, experiment_id: ExperimentId) -> tuple[int, SearchSpaceRevision] | None:
        found = self.search_space_revisions(experiment_id)
        return (len(found), found[-1]) if found else None

    def search_space_revisions(
        self, experiment_id: ExperimentId, *, after: int = 0, limit: int = 1000
    ) -> Sequence[SearchSpaceRevision]:
        rows = self._rows.get(experiment_id)
        found = [] if rows is None else [revision for _, revision in sorted(rows.spaces.items())]
        return found[after : after + limit]

    def all_metrics(
        self, experiment_id: ExperimentId, *, after: tuple[int, int, int] = (0, 0, 0), limit: int = 10_000
    ) -> Sequence[tuple[int, TrialMetric]]:
        rows = self._rows.get(experiment_id)
        found = sorted(
            ((number, *place), metric)
            for number, metrics in (rows.metrics.items() if rows is not None else ())
            for place, metric in metrics.items()
        )
        return [(place[0], _trial_metric(metric)) for place, metric in found if place > after][:limit]


def _trial_metric(m: MetricRow) -> TrialMetric:
    return TrialMetric(attempt=m.attempt, sequence=m.sequence, step=m.step, values=m.values, first=m.first, at=m.at)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise StorageError(message)


def _as_stored(payload: Mapping[str, object]) -> dict[str, object]:
    return {name: json.loads(value) if isinstance(value, EncodedJson) else value for name, value in payload.items()}


def _place(checkpoint: Checkpoint) -> tuple[int, int, int]:
    return checkpoint.number, checkpoint.attempt, checkpoint.sequence


def _loaded(rows: _Rows) -> LoadedExperiment:
    trials = [t for _, t in sorted(rows.trials.items()) if not t.status.is_final or t.told_line is None]
    loaded = {t.number for t in trials}
    cursors = {Queue.TUNER: rows.experiment.tuner_cursor, Queue.ASSESSOR: rows.experiment.assessor_cursor}
    grows, cuts = rows.experiment.spec.trial.define_by_run, rows.experiment.spec.deterministic
    taken = [line for line in rows.spaces if grows and line <= rows.experiment.tuner_cursor]
    return LoadedExperiment(
        experiment=rows.experiment,
        search_space=rows.spaces[max(taken)].search_space if taken else None,
        trials=tuple(trials),
        attempts=tuple(a for _, a in sorted(rows.attempts.items()) if not a.status.is_final),
        unanswered={
            queue: tuple(_kept(rows, _routed(rows, queue, after=cursors[queue]), with_values=cuts)) for queue in Queue
        },
        seen_steps={
            t.number: frozenset(
                m.step for m in rows.metrics.get(t.number, {}).values() if m.first and m.step is not None
            )
            for t in trials
        },
        checkpoints=tuple(c for _, c in sorted(rows.checkpoints.items()) if c.number in loaded),
    )


def _kept(rows: _Rows, lines: list[JournalLine], *, with_values: bool) -> Iterator[QueueItem]:
    reports = 0
    for line in lines:
        is_read = reports < ASSESSOR_REPORTS_LIMIT or line.kind != "reports"
        item = _item(rows, line, with_values=with_values) if is_read else item_of(line, recorded=None, seen=None)
        reports += report_count(item)
        yield item


def _routed(rows: _Rows, queue: Queue, *, after: int, upto: int | None = None) -> list[JournalLine]:
    lines = rows.routed[queue]
    stop = len(lines) if upto is None else bisect_right(lines, upto)
    return [rows.journal[n] for n in lines[bisect_right(lines, after) : stop]]


def _history(rows: _Rows, queue: Queue, *, after: int, upto: int) -> Iterator[QueueItem]:
    for line in _routed(rows, queue, after=after, upto=upto):
        # The assessor is told of a decision even while the tuner has not answered it.
        answered = line.line in rows.decided or line.line in rows.decisions
        asked_in_vain = queue is Queue.TUNER and line.kind == "suggestion_requested" and not answered
        if not asked_in_vain and not (line.kind == "reports" and not _seen(rows, line, with_values=False)):
            yield _item(rows, line, with_values=False)


def _item(rows: _Rows, line: JournalLine, *, with_values: bool) -> QueueItem:
    decided = rows.decided.get(line.line)
    recorded = None if decided is None else rows.trials[decided[0]].parameters_of(decided[1])
    seen = _seen(rows, line, with_values=with_values) if line.kind == "reports" else ()
    decision = rows.decisions.get(line.line)
    return item_of(line, recorded=recorded if decision is None else decision.decision(recorded), seen=seen)


def _seen(rows: _Rows, line: JournalLine, *, with_values: bool) -> list[SeenReport]:
    """The line's reports that algorithms see, by sequence."""
    metrics = rows.metrics.get(line.payload["number"], {})
    attempt = line.payload["attempt"]
    found = (metrics.get((attempt, n)) for n in range(line.payload["first"], line.payload["last"] + 1))
    return [
        (m.sequence, m.step, m.objective, m.values if with_values else None)
        for m in found
        if m is not None and m.line == line.line and m.first and m.step is not None and m.objective is not None
    ]

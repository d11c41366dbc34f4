"""Rows of one experiment as the core wants them; every function works inside the transaction it is handed."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Select, and_, select

from tuner_service.dispatcher.changes import JournalLine
from tuner_service.dispatcher.items import MetricsReported, Queue, QueueItem, SuggestionRequested
from tuner_service.dispatcher.limits import ASSESSOR_REPORTS_LIMIT
from tuner_service.dispatcher.step import report_count
from tuner_service.domain.errors import RowsDamagedError
from tuner_service.domain.experiment import Experiment, ExperimentId
from tuner_service.domain.steps import Steps
from tuner_service.domain.trial import (
    FINAL_STATUSES,
    Attempt,
    AttemptStatus,
    Checkpoint,
    Decision,
    Parameters,
    Trial,
    TrialStatus,
)
from tuner_service.ports import LoadedExperiment
from tuner_service.storage import mapping, tables
from tuner_service.storage.items import SeenReport, item_of, reports_on

HISTORY_PAGE_LINES = 1_000  # most journal lines read at once
HISTORY_PAGE_REPORTS = 50_000  # and most reports in them, but for a single line that holds more

_UNFINISHED = [s.value for s in TrialStatus if s not in FINAL_STATUSES]
LIVE = [s.value for s in AttemptStatus if not s.is_final]


def with_cursors(rows: Iterable[Mapping[Any, Any]], cursors: Iterable[Mapping[Any, Any]]) -> list[Experiment]:
    """``rows`` of experiments, with those of their queue cursors."""
    lines: dict[str, dict[str, int]] = defaultdict(dict)
    for cursor in cursors:
        lines[cursor["experiment_id"]][cursor["queue"]] = cursor["line"]
    return [mapping.experiment_out(row, lines[row["id"]]) for row in rows]


def load(connection: Connection, only: ExperimentId | None = None) -> tuple[LoadedExperiment, ...]:
    """Every experiment, oldest first, or one. The work grows with what is unfinished, not with what is stored."""
    e, q = tables.experiments, tables.queue_cursors
    by_index(connection)
    trials = _loaded_trials(connection, only)
    attempts = live_attempts(connection, only)
    all_loaded = [trial for found in trials.values() for trial in found]
    checkpoints = _checkpoints(connection, all_loaded)
    seen = _seen_steps(connection, all_loaded)
    rows = connection.execute(_of(only, e.c.id, select(e)).order_by(e.c.created_at, e.c.id)).mappings().all()
    cursors = connection.execute(_of(only, q.c.experiment_id, select(q))).mappings().all()
    experiments = with_cursors(rows, cursors)
    with_values = {experiment.id for experiment in experiments if experiment.spec.deterministic}
    unanswered = {queue: _unanswered(connection, queue, only, with_values) for queue in Queue}
    loaded = tuple(
        LoadedExperiment(
            experiment=experiment,
            trials=tuple(trials[experiment.id]),
            attempts=tuple(attempts[experiment.id]),
            unanswered={queue: unanswered[queue].get(experiment.id, ()) for queue in Queue},
            seen_steps={t.number: seen[experiment.id, t.number] for t in trials[experiment.id]},
            checkpoints=tuple(checkpoints[experiment.id]),
            search_space=_growing_space(connection, experiment),
        )
        for experiment in experiments
    )
    for one in loaded:
        _require_trials(one)
    return loaded


def by_index(connection: Connection) -> None:
    """Until the transaction ends, a table is read whole only where no index leads to its rows.

    A server's planner cannot know that next to nothing is unfinished: it takes a third of the journal to be unanswered,
    and reads all of it. Where it reads a small table whole all the same, it takes that for so much that it would
    compile the statement first, a seventh of a second.
    """
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(
            "SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; "
            "SET LOCAL jit = off"
        )


def _of(only: ExperimentId | None, column: Any, query: Select[Any]) -> Select[Any]:
    return query if only is None else query.where(column == only)


def _require_trials(loaded: LoadedExperiment) -> None:
    numbers = {trial.number for trial in loaded.trials}
    for attempt in loaded.attempts:
        if attempt.key.number not in numbers:
            raise ValueError(f"attempt {attempt.key} lives, and its trial has ended")


def _growing_space(connection: Connection, experiment: Experiment) -> dict[str, Any] | None:
    """The newest revision that its tuner has taken, where scripts may add to it."""
    if not experiment.spec.trial.define_by_run:
        return None
    r = tables.search_space_revisions
    taken = select(r).where(r.c.experiment_id == experiment.id, r.c.line <= experiment.tuner_cursor)
    query = taken.order_by(r.c.line.desc()).limit(1)
    row = connection.execute(query).mappings().first()
    return None if row is None else mapping.REVISIONS.value(row).search_space


def _loaded_trials(connection: Connection, only: ExperimentId | None) -> dict[ExperimentId, list[Trial]]:
    """Two queries, because each has an index of its own and their union has none."""
    t = tables.trials
    found: dict[tuple[ExperimentId, int], Trial] = {}
    for condition in (t.c.status.in_(_UNFINISHED), t.c.told_line.is_(None)):
        for row in connection.execute(_of(only, t.c.experiment_id, select(t).where(condition))).mappings():
            found[row["experiment_id"], row["number"]] = mapping.trial_out(row)
    grouped: dict[ExperimentId, list[Trial]] = defaultdict(list)
    for (experiment_id, _), trial in sorted(found.items()):
        grouped[experiment_id].append(trial)
    return grouped


def live_attempts(connection: Connection, only: ExperimentId | None) -> dict[ExperimentId, list[Attempt]]:
    a = tables.attempts
    live = select(a).where(a.c.status.in_(LIVE)).order_by(a.c.experiment_id, a.c.number, a.c.attempt)
    query = _of(only, a.c.experiment_id, live)
    grouped: dict[ExperimentId, list[Attempt]] = defaultdict(list)
    for row in connection.execute(query).mappings():
        grouped[row["experiment_id"]].append(mapping.attempt_out(row))
    return grouped


def _checkpoints(connection: Connection, trials: Iterable[Trial]) -> dict[ExperimentId, list[Checkpoint]]:
    """Of the trials that are loaded: one that has ended and was not told yet may still be forked."""
    c = tables.checkpoints
    grouped: dict[ExperimentId, list[Checkpoint]] = defaultdict(list)
    for trial in trials:
        query = select(c).where(c.c.experiment_id == trial.experiment_id, c.c.number == trial.number)
        for row in connection.execute(query.order_by(c.c.attempt, c.c.sequence)).mappings():
            grouped[trial.experiment_id].append(mapping.CHECKPOINTS.value(row))
    return grouped


def _seen_steps(connection: Connection, trials: Iterable[Trial]) -> dict[tuple[ExperimentId, int], Steps]:
    m = tables.metrics
    seen = {}
    for trial in trials:
        of_trial = (m.c.experiment_id == trial.experiment_id, m.c.number == trial.number)
        query = select(m.c.step).where(*of_trial, m.c.first, m.c.step.is_not(None))
        query = query.order_by(m.c.attempt, m.c.sequence)  # as the key has them: so they ascend, mostly
        seen[trial.experiment_id, trial.number] = Steps(connection.scalars(query))
    return seen


def _unanswered(
    connection: Connection, queue: Queue, only: ExperimentId | None, with_values: Container[ExperimentId]
) -> dict[ExperimentId, tuple[QueueItem, ...]]:
    """``with_values``: the experiments whose reports bring all their metrics along."""
    c, j = tables.queue_cursors, tables.journal
    # An expression: else SQLite goes through all lines and asks for the cursor of each.
    of_cursor = j.c.experiment_id == c.c.experiment_id.concat("")
    query = (
        select(j)
        .join(c, and_(of_cursor, j.c.line > c.c.line))
        .where(c.c.queue == queue.value, j.c.queues.in_(_routed_to(queue)))
        .order_by(j.c.experiment_id, j.c.line)
    )
    lines: dict[ExperimentId, list[JournalLine]] = defaultdict(list)
    for row in connection.execute(_of(only, j.c.experiment_id, query)).mappings():
        lines[row["experiment_id"]].append(mapping.line_out(row))
    return {
        experiment_id: tuple(_kept(connection, found, with_values=experiment_id in with_values))
        for experiment_id, found in lines.items()
    }


def _kept(connection: Connection, lines: list[JournalLine], *, with_values: bool) -> Iterator[QueueItem]:
    """The items of ``lines``; once there are reports enough in them, the others stay unread."""
    reports = 0
    while lines:
        page = _within_bound(lines)
        lines = lines[len(page) :]
        is_read = reports < ASSESSOR_REPORTS_LIMIT
        for item, _ in _items(connection, page, with_values=with_values, is_read=is_read):
            reports += report_count(item)
            yield item


def reports_of_line(connection: Connection, experiment_id: ExperimentId, line: int) -> MetricsReported:
    """As ``ports.Store`` promises it of ``reports_on``."""
    j = tables.journal
    found = connection.execute(select(j).where(j.c.experiment_id == experiment_id, j.c.line == line)).mappings().one()
    lines = [mapping.line_out(found)]
    try:
        ((item, _),) = _items(connection, lines, with_values=True)
    except mapping.UNREADABLE as exc:
        raise _damage_in(connection, lines, Queue.ASSESSOR) from exc
    assert isinstance(item, MetricsReported)  # noqa: S101  # it is asked for lines with reports alone
    return item


def history_page(
    connection: Connection, experiment_id: ExperimentId, queue: Queue, *, after: int, upto: int
) -> tuple[list[QueueItem], int]:
    """The next items and the line they reach, from which the following page goes on; ``upto`` when done."""
    j = tables.journal
    query = (
        select(j)
        .where(
            j.c.experiment_id == experiment_id,
            j.c.queues.in_(_routed_to(queue)),
            j.c.line > after,
            j.c.line <= upto,
        )
        .order_by(j.c.line)
        .limit(HISTORY_PAGE_LINES)
    )
    lines = [mapping.line_out(row) for row in connection.execute(query).mappings()]
    try:
        page = _within_bound(lines)
        items = _history_of(connection, page, queue)
    except mapping.UNREADABLE as exc:
        raise _damage_in(connection, lines, queue) from exc
    reached = upto if len(lines) < HISTORY_PAGE_LINES and len(page) == len(lines) else page[-1].line
    return items, reached


def _history_of(connection: Connection, lines: Sequence[JournalLine], queue: Queue) -> list[QueueItem]:
    return [
        item
        for item, has_content in _items(connection, lines, with_values=False)
        # The assessor is told of a decision even while the tuner has not answered it.
        if has_content or (queue is Queue.ASSESSOR and isinstance(item, SuggestionRequested))
    ]


def _damage_in(connection: Connection, lines: Sequence[JournalLine], queue: Queue) -> RowsDamagedError:
    """Names the first of the lines that cannot be read by itself."""
    for line in lines:
        try:
            _within_bound([line])
            _history_of(connection, [line], queue)
        except mapping.UNREADABLE as exc:
            why = f"{type(exc).__name__}: {exc}"[: mapping.DAMAGE_SHOWN]
            what = f"line {line.line} of the journal of {line.experiment_id} ({line.kind}), or what it names"
            return RowsDamagedError(f"{what}, is damaged: {why}; run `tuner doctor`")
    return RowsDamagedError(f"the journal of {lines[0].experiment_id} is damaged from line {lines[0].line} on")


def _within_bound(lines: list[JournalLine]) -> list[JournalLine]:
    reports = 0
    for place, line in enumerate(lines):
        reports += reports_on(line)
        if reports > HISTORY_PAGE_REPORTS and place > 0:
            return lines[:place]
    return lines


def _items(
    connection: Connection, lines: Sequence[JournalLine], *, with_values: bool, is_read: bool = True
) -> Iterator[tuple[QueueItem, bool]]:
    """Each with whether it says something: False for requests answered with nothing and reports all cut away.

    ``with_values``: reports bring all their metrics along, which algorithms do not see. ``is_read`` False: they stay in
    their rows.
    """
    requests = [line for line in lines if line.kind == "suggestion_requested"]
    recorded = _recorded(connection, requests)
    decisions = _decisions(connection, requests, recorded)
    held = [line for line in lines if line.kind == "reports"]
    seen = _seen_reports(connection, held, with_values=with_values) if is_read else {}
    for line in lines:
        answer = decisions.get(line.line, recorded.get(line.line))
        reports = seen.get(line.line, ()) if is_read else None
        has_content = {"suggestion_requested": answer is not None, "reports": bool(reports)}.get(line.kind, True)
        yield item_of(line, recorded=answer, seen=reports), has_content


def _recorded(connection: Connection, requests: Sequence[JournalLine]) -> dict[int, Parameters]:
    if not requests:
        return {}
    t = tables.trials
    of_experiment = t.c.experiment_id == requests[0].experiment_id
    query = select(t.c.decided_line, t.c.parameters).where(
        of_experiment, t.c.decided_line.between(requests[0].line, requests[-1].line)
    )
    found = {line: json.loads(parameters) for line, parameters in connection.execute(query)}
    further = {request.payload["number"] for request in requests if request.payload.get("index", 0) > 0}
    for number in sorted(further):
        row = connection.execute(
            select(t.c.further_lines, t.c.further_parameters).where(of_experiment, t.c.number == number)
        ).one()
        found |= zip(json.loads(row.further_lines), json.loads(row.further_parameters), strict=True)
    return found


def _decisions(
    connection: Connection, requests: Sequence[JournalLine], recorded: dict[int, Parameters]
) -> dict[int, Decision]:
    """What an advisor answered, by the line of the request; nothing of a tuner's requests."""
    if not requests:
        return {}
    d = tables.decisions
    query = select(d).where(
        d.c.experiment_id == requests[0].experiment_id, d.c.line.between(requests[0].line, requests[-1].line)
    )
    stored = map(mapping.DECISIONS.value, connection.execute(query).mappings())
    return {decision.line: decision.decision(recorded.get(decision.line)) for decision in stored}


def _seen_reports(
    connection: Connection, reports: Sequence[JournalLine], *, with_values: bool
) -> dict[int, list[SeenReport]]:
    if not reports:
        return {}
    m = tables.metrics
    query = (
        select(m.c.line, m.c.sequence, m.c.step, m.c.objective, *((m.c["values"],) if with_values else ()))
        .where(
            m.c.experiment_id == reports[0].experiment_id,
            m.c.line.between(reports[0].line, reports[-1].line),
            m.c.first,
            m.c.step.is_not(None),
            m.c.objective.is_not(None),
        )
        .order_by(m.c.line, m.c.number, m.c.attempt, m.c.sequence)  # as the index has them: a line is of one attempt
    )
    found: dict[int, list[SeenReport]] = defaultdict(list)
    for line, sequence, step, objective, *values in connection.execute(query).all():
        found[line].append((sequence, step, float(objective), json.loads(values[0]) if values else None))
    return found


def _routed_to(queue: Queue) -> list[int]:
    """The values of the column that name ``queue``: asked for by value, so that the index finds them."""
    bit = mapping.QUEUE_BITS[queue]
    return [bits for bits in range(1, sum(mapping.QUEUE_BITS.values()) + 1) if bits & bit]

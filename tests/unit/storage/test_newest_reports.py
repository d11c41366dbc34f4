"""What trials have reached, and when they reported the last time, is found by few looks, however much that is."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from tests.api_service import an_api_service
from tests.builders import EXPERIMENT_ID, START, StillClock, a_metric, a_trial, an_attempt, an_experiment
from tuner_service.dispatcher.changes import Changes
from tuner_service.domain.trial import TrialStatus
from tuner_service.service.views import moment
from tuner_service.storage.engine import open_store
from tuner_service.storage.sql_queries import SqlQueries

T = TypeVar("T")
FEW, MANY = 2, 2_000  # reports of a trial


def steps_of(queries: SqlQueries, read: Callable[[], object]) -> int:
    """How many instructions of its machine SQLite needs for ``read``."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    with queries.reading() as connection:
        raw = connection.connection.dbapi_connection
        assert raw is not None
        raw.set_progress_handler(count, 1)
        try:
            read()
        finally:
            raw.set_progress_handler(None, 0)
    return steps


def statements_of(queries: SqlQueries, read: Callable[[], T]) -> tuple[list[str], T]:
    """What SQLite is asked for ``read``, and what that gives."""
    statements = list[str]()
    with queries.reading() as connection:
        raw = connection.connection.dbapi_connection
        assert raw is not None
        raw.set_trace_callback(statements.append)
        try:
            return statements, read()
        finally:
            raw.set_trace_callback(None)


def test_a_trial_with_many_reports_costs_no_more_than_one_with_few(tmp_path: Path) -> None:
    reports = {1: FEW, 2: MANY}
    with closing(open_store(tmp_path / "tuner.db", StillClock())) as store:
        trials = {(EXPERIMENT_ID, number): a_trial(number=number, started_at=START) for number in reports}
        rows = [
            a_metric(number=number, sequence=sequence, step=sequence, at=START + sequence)
            for number, count in reports.items()
            for sequence in range(1, count + 1)
        ]
        store.commit(Changes(experiments={EXPERIMENT_ID: an_experiment()}, trials=trials, metrics=rows))
        queries = store.queries

        assert queries.reported_at(EXPERIMENT_ID, [1, 2]) == {1: START + FEW, 2: START + MANY}
        for read in (queries.reported_at, queries.entries_of):
            few, many = (steps_of(queries, lambda n=number, r=read: r(EXPERIMENT_ID, [n])) for number in reports)  # type: ignore[misc]
            assert 0 < many <= few + FEW


def test_of_trials_that_have_ended_no_report_is_looked_at(tmp_path: Path) -> None:
    going, ended = a_trial(started_at=START), a_trial(started_at=START, ended_at=START + 1)
    with closing(open_store(tmp_path / "tuner.db", StillClock())) as store:
        steps = []
        for trial in (going, ended):
            store.commit(Changes(experiments={EXPERIMENT_ID: an_experiment()}, trials={(EXPERIMENT_ID, 1): trial}))
            steps.append(steps_of(store.queries, lambda: store.queries.trial_entries(EXPERIMENT_ID)))
        assert steps[1] < steps[0]


def test_an_experiment_is_shown_by_as_many_statements_however_many_trials_run(tmp_path: Path) -> None:
    counts = []
    with closing(open_store(tmp_path / "tuner.db", StillClock())) as store:
        experiments = replace(an_api_service().services.experiments, queries=store.queries)
        for first, last in ((1, 1), (2, 200)):
            numbers = range(first, last + 1)
            trials = {(EXPERIMENT_ID, n): a_trial(number=n, started_at=START, last_value=float(n)) for n in numbers}
            attempts = {attempt.key: attempt for attempt in (an_attempt(number=n) for n in numbers)}
            experiment = {EXPERIMENT_ID: an_experiment()}
            store.commit(Changes(experiments=experiment, trials=trials, attempts=attempts))
            statements, shown = statements_of(store.queries, lambda: experiments.detail_view(EXPERIMENT_ID))
            counts.append(len(statements))
            assert [one["value"] for one in shown["running"]] == list(range(1, last + 1))
    assert 0 < counts[0] == counts[1]


def test_the_page_of_a_trial_asks_for_its_newest_report_only_while_it_goes_on(tmp_path: Path) -> None:
    going = a_trial(number=1, started_at=START)
    ended = replace(going, number=2, status=TrialStatus.SUCCEEDED, ended_at=START + 9)
    counts, told = list[int](), list[str | None]()
    with closing(open_store(tmp_path / "tuner.db", StillClock())) as store:
        experiments = replace(an_api_service().services.experiments, queries=store.queries)
        trials = {(EXPERIMENT_ID, trial.number): trial for trial in (going, ended)}
        reports = [a_metric(number=trial.number, at=START + 5) for trial in (going, ended)]
        store.commit(Changes(experiments={EXPERIMENT_ID: an_experiment()}, trials=trials, metrics=reports))
        for number in (1, 2):
            read = partial(experiments.trial_detail_view, EXPERIMENT_ID, number)
            statements, shown = statements_of(store.queries, read)
            counts.append(len(statements))
            told.append(shown["reported_at"])
    assert counts[1] == counts[0] - 1
    assert told == [moment(START + 5), None]

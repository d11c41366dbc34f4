"""A database that is whole as SQLite sees it, and holds a row that cannot be read, or lacks a table."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.builders import EXPERIMENT_ID, START, a_line, a_metric, a_spec, a_trial, an_attempt, an_experiment
from tuner_service.cli.verbs.doctor import BAD_ROWS_SHOWN, examine
from tuner_service.clock import SystemClock
from tuner_service.config import Settings
from tuner_service.dispatcher.changes import Changes, SearchSpaceRevision
from tuner_service.domain.errors import StorageError
from tuner_service.domain.experiment import ExperimentReason
from tuner_service.domain.trial import TrialStatus
from tuner_service.storage.engine import open_queries, open_store
from tuner_service.storage.examine import bad_rows

TRIALS = 30


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """One experiment with a live trial and some that have ended."""
    path = tmp_path / "tuner.db"
    changes = Changes()
    experiment = an_experiment(spec=a_spec())
    changes.experiments[EXPERIMENT_ID] = experiment
    space = SearchSpaceRevision(
        experiment_id=EXPERIMENT_ID, line=1, search_space=experiment.spec.search_space, at=START
    )
    changes.search_spaces.append(space)
    for number in range(1, TRIALS + 1):
        status = TrialStatus.RUNNING if number == TRIALS else TrialStatus.SUCCEEDED
        told = None if status is TrialStatus.RUNNING else number
        changes.trials[EXPERIMENT_ID, number] = a_trial(number=number, status=status, told_line=told)
    attempt = an_attempt()
    changes.attempts[attempt.key] = attempt
    changes.journal.append(a_line())
    changes.metrics.append(a_metric())
    store = open_store(path, SystemClock())
    store.commit(changes)
    store.close()
    return path


def damage(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def told(path: Path) -> list[str]:
    findings = examine(Settings(home=path.parent, db=f"sqlite:///{path}"))
    return [finding.detail for finding in findings if finding.check == "rows" and finding.state == "FAULT"]


def found(path: Path) -> Iterator[tuple[str, str, str]]:
    with open_queries(path) as queries:
        for bad in bad_rows(queries):
            yield bad.table, "/".join(map(str, bad.key)), bad.column


def test_a_whole_database_has_no_bad_row(database: Path) -> None:
    assert list(found(database)) == []
    assert told(database) == []


@pytest.mark.parametrize(
    ("statement", "bad"),
    [
        ("UPDATE trials SET parameters = substr(parameters, 1, 5) WHERE number = 7", ("trials", "7", "parameters")),
        ("UPDATE trials SET status = 'odd' WHERE number = 7", ("trials", "7", "status")),
        ("UPDATE trials SET value = 'much' WHERE number = 7", ("trials", "7", "value")),
        ("UPDATE experiments SET spec = substr(spec, 1, 90)", ("experiments", "", "spec")),
        ("UPDATE experiments SET counts = '[]'", ("experiments", "", "counts")),
        (
            "UPDATE search_space_revisions SET search_space = '{\"x\": 3}'",
            ("search_space_revisions", "", "search_space"),
        ),
        ("UPDATE journal SET payload = '{'", ("journal", "", "payload")),
        ("UPDATE journal SET queues = 77", ("journal", "", "queues")),
        ('UPDATE metrics SET "values" = \'{"loss": \'', ("metrics", "", "values")),
        ("UPDATE attempts SET status = ''", ("attempts", "", "status")),
    ],
)
def test_a_row_that_cannot_be_read_is_named_with_its_table_and_column(
    database: Path, statement: str, bad: tuple[str, str, str]
) -> None:
    damage(database, statement)
    rows = list(found(database))
    table, key, column = rows[0]
    assert (table, column, len(rows)) == (bad[0], bad[2], 1)
    assert key.startswith(EXPERIMENT_ID)
    assert not bad[1] or key == f"{EXPERIMENT_ID}/{bad[1]}"
    assert f"table {table}, row {key}, column {column}: " in told(database)[0]


def test_of_many_bad_rows_the_first_are_shown_and_that_there_are_more(database: Path) -> None:
    damage(database, "UPDATE trials SET final = 'x'")
    details = told(database)
    assert len(details) == BAD_ROWS_SHOWN + 1
    assert details[-1] == f"there are more than these {BAD_ROWS_SHOWN}"


def test_a_missing_table_is_named_and_no_service_starts_on_it(database: Path) -> None:
    damage(database, "DROP TABLE decisions")
    assert list(found(database)) == [("decisions", "", "")]
    with pytest.raises(StorageError, match="table decisions is missing; restore it"):
        open_store(database, SystemClock())


def test_a_newer_revision_is_a_fault_that_says_what_to_do(database: Path) -> None:
    damage(database, "UPDATE alembic_version SET version_num = '9999'")
    (detail,) = told(database)
    assert "has revision 9999" in detail


@pytest.mark.parametrize(
    "statement",
    [
        f"UPDATE trials SET parameters = '{{' WHERE number = {TRIALS}",
        "UPDATE experiments SET spec = '{'",
        "UPDATE experiments SET status = 'odd'",
    ],
)
def test_a_service_sets_an_experiment_aside_that_it_cannot_read_and_says_why(database: Path, statement: str) -> None:
    damage(database, statement)
    store = open_store(database, SystemClock())
    try:
        (loaded,) = store.load()
        assert loaded.experiment.id == EXPERIMENT_ID
        assert EXPERIMENT_ID in loaded.damage
        assert "tuner doctor" in loaded.damage
        assert loaded.experiment.reason is ExperimentReason.ROWS_DAMAGED
    finally:
        store.close()


def test_a_damaged_row_among_ended_trials_lets_the_service_start_and_is_named_to_who_reads_it(database: Path) -> None:
    damage(database, "UPDATE trials SET parameters = '{' WHERE number = 7")
    store = open_store(database, SystemClock())
    try:
        assert len(store.load()) == 1
        with pytest.raises(StorageError, match=rf"Trial \({EXPERIMENT_ID}/7\) is damaged in column parameters"):
            store.queries.trials(EXPERIMENT_ID)
    finally:
        store.close()

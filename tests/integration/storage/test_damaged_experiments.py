"""Junk in the rows of one experiment: that one is set aside with what to do, and the others go on."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.builders import START, a_checkpoint, a_line, a_metric, a_spec, a_trial, an_attempt, an_experiment
from tests.waiting import wait_until
from trials.wire.messages import Acknowledge, Busy, Forget, ObservedAttempt, Stop
from tuner_service.clock import SystemClock
from tuner_service.dispatcher import commands as c
from tuner_service.dispatcher.changes import Changes, SearchSpaceRevision
from tuner_service.dispatcher.effects import Effect, Tell
from tuner_service.domain.errors import ConflictError, NotFoundError, UnavailableError
from tuner_service.domain.experiment import Experiment, ExperimentReason, ExperimentStatus
from tuner_service.domain.resources import Holding
from tuner_service.domain.trial import TrialStatus
from tuner_service.service.retention import due
from tuner_service.service.runner import Runner
from tuner_service.storage.engine import open_store
from tuner_service.storage.sql_store import SqlStore

BAD, GOOD = "bad", "good"
JUNK = ("{", "[]", '{"a":[{}]}', "[" * 100_000)
TIMEOUT_S = 10
COUNTS = {"running": 1, "succeeded": 1}
COLUMNS = {
    "experiments": ("spec", "counts", "free_numbers", "tags", "status", "reason", "created_at", "best_value"),
    "queue_cursors": ("line",),
    "search_space_revisions": ("search_space",),
    "trials": ("parameters", "further_parameters", "final", "last_metrics", "pending_end", "metric_names", "value"),
    "attempts": ("process", "exit", "holdings", "half_way", "status", "created_at"),
    "journal": ("payload", "kind", "at", "queues"),
    "metrics": ("values", "objective", "step", "at"),
    "checkpoints": ("digest", "size", "step", "at"),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two experiments with a trial each that runs."""
    path = tmp_path_factory.mktemp("damaged") / "tuner.db"
    store = open_store(path, SystemClock())
    for name in (BAD, GOOD):
        experiment = an_experiment(id=name, spec=a_spec(name=name), next_line=3, next_number=3, counts=COUNTS)
        holding = Holding(agent_id="agent-1", cpus=1.0)
        attempt = replace(an_attempt(experiment_id=name, holdings=(holding,)), lineage=store.lineage)
        ended = a_trial(experiment_id=name, number=2, status=TrialStatus.SUCCEEDED, told_line=2)
        space = SearchSpaceRevision(experiment_id=name, line=1, search_space=experiment.spec.search_space, at=START)
        lines = [a_line(experiment_id=name), a_line(experiment_id=name, line=2, payload={"number": 2})]
        changes = Changes(experiments={name: experiment}, search_spaces=[space], journal=lines)
        changes.trials |= {(name, 1): a_trial(experiment_id=name, attempts=1), (name, 2): ended}
        changes.attempts[attempt.key] = attempt
        changes.metrics.append(a_metric(experiment_id=name))
        changes.checkpoints.append(a_checkpoint(experiment_id=name, inline=False))
        store.commit(changes)
    store.close()
    return path


@pytest.fixture
def database(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(whole, tmp_path / "tuner.db"))


def damage(path: Path, table: str, column: str, junk: object) -> None:
    where = "id" if table == "experiments" else "experiment_id"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute(f'UPDATE {table} SET "{column}" = ? WHERE {where} = ?', (junk, BAD))
        connection.commit()


@contextmanager
def running(path: Path) -> Iterator[tuple[Runner, SqlStore, list[Effect]]]:
    store, effects = open_store(path, SystemClock()), list[Effect]()
    runner = Runner(
        store=store, clock=SystemClock(), incarnation="life", perform=effects.append, forget_agents=lambda: None
    )
    try:
        runner.start()
        yield runner, store, effects
    finally:
        runner.close()
        store.close()


def do(runner: Runner, command: c.Command) -> None:
    runner.submit(command).result(TIMEOUT_S)


@pytest.mark.parametrize(("table", "column"), [(table, column) for table, names in COLUMNS.items() for column in names])
def test_junk_in_a_column_of_one_experiment_leaves_the_others_running(
    whole: Path, tmp_path: Path, table: str, column: str
) -> None:
    for number, junk in enumerate(JUNK):
        path = Path(shutil.copy(whole, tmp_path / f"{number}.db"))
        try:
            damage(path, table, column, junk)
        except sqlite3.IntegrityError:
            continue  # the database itself takes no such value
        with running(path) as (runner, store, _):
            do(runner, c.ExperimentPaused(at=START, experiment_id=GOOD))
            listed = {experiment.id: experiment for experiment in store.queries.experiments()}
            assert listed.keys() == {BAD, GOOD}
            assert listed[GOOD].reason is ExperimentReason.REQUESTED
            if BAD in store.queries.set_aside:
                assert listed[BAD].status is ExperimentStatus.PAUSED
                assert listed[BAD].reason is ExperimentReason.ROWS_DAMAGED
                assert "`tuner doctor` names every such row" in listed[BAD].message
                assert store.queries.experiment(BAD) == listed[BAD]
                with pytest.raises(ConflictError, match="its rows are damaged"):
                    do(runner, c.ExperimentResumed(at=START, experiment_id=BAD))
            assert runner.readiness() == {"dispatcher": "ok", "database": "ok"}


def test_the_rows_of_what_is_set_aside_stay_as_they_are_and_it_goes_on_once_they_are_repaired(database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection:
        before = connection.execute("SELECT parameters FROM trials WHERE experiment_id = ?", (BAD,)).fetchall()
    damage(database, "trials", "parameters", "{")
    with running(database) as (runner, store, _):
        assert list(store.queries.set_aside) == [BAD]
        assert f"Trial ({BAD}/1) is damaged in column parameters" in store.queries.set_aside[BAD][0]
        do(runner, c.ExperimentPaused(at=START, experiment_id=GOOD))
    with closing(sqlite3.connect(database)) as connection:
        rows = connection.execute("SELECT status, reason FROM experiments WHERE id = ?", (BAD,)).fetchall()
        assert rows == [("running", "none")]
        connection.execute("UPDATE trials SET parameters = ? WHERE experiment_id = ?", (before[0][0], BAD))
        connection.commit()
    with running(database) as (runner, store, _):
        assert store.queries.set_aside == {}
        do(runner, c.ExperimentPaused(at=START, experiment_id=BAD))


def test_the_trials_of_what_is_set_aside_run_on_and_keep_what_they_hold(database: Path) -> None:
    store = open_store(database, SystemClock())
    lineage = store.lineage  # of the copy
    store.close()
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("UPDATE attempts SET lineage = ?", (lineage,))
        connection.commit()
    damage(database, "journal", "payload", "{")
    with running(database) as (runner, store, effects):
        bad = replace(an_attempt(experiment_id=BAD), lineage=lineage)
        observed = ObservedAttempt(key=bad.key, nonce=bad.nonce, lineage=lineage, process=None, exit=None, spooled=3)
        do(
            runner,
            c.AgentConnected(at=START, agent_id="agent-1", cpus=4, memory_bytes=1 << 30, attempts=(observed,)),
        )
        assert runner._dispatcher is not None
        assert runner._dispatcher.state.ledger.experiment_cpus.keys() >= {BAD}
        do(
            runner,
            c.ReportsReceived(at=START, agent_id="agent-1", key=bad.key, nonce=bad.nonce, first_sequence=2, records=()),
        )
        told = [effect.message for effect in effects if isinstance(effect, Tell)]
        told_of_bad = [message for message in told if getattr(message, "nonce", "") == bad.nonce]
        assert [type(message) for message in told_of_bad] == [Busy]
        assert not any(isinstance(message, Stop | Forget | Acknowledge) for message in told_of_bad)
        assert BAD in store.queries.set_aside


def shown_after_a_fault(runner: Runner, store: SqlStore) -> Experiment:
    """The experiment at which the service fails, once all is read anew."""
    runner.suspects.set_aside(BAD, "OverflowError: too large")
    with pytest.raises(UnavailableError):
        runner.submit(object()).result(TIMEOUT_S)  # type: ignore[arg-type]  # a fault, after which all is read anew
    wait_until(lambda: runner.readiness()["database"] == "ok")
    shown = store.queries.experiment(BAD)
    assert shown is not None
    assert "OverflowError: too large" in shown.message
    return shown


def test_one_with_which_the_service_fails_is_set_aside_with_whole_rows_and_goes_on_after_the_next_start(
    database: Path,
) -> None:
    with running(database) as (runner, store, _):
        shown = shown_after_a_fault(runner, store)
        assert shown.reason is ExperimentReason.SERVICE_FAULT
        do(runner, c.ExperimentPaused(at=START, experiment_id=GOOD))
    with running(database) as (runner, store, _):
        assert store.queries.set_aside == {}
        do(runner, c.ExperimentPaused(at=START, experiment_id=BAD))


def test_one_that_has_ended_stays_what_it_was_with_the_fault_beside_it(database: Path) -> None:
    """It is as done as before, and nobody waits for it again; what is removed by its age leaves it alone."""
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("UPDATE attempts SET status = 'exited' WHERE experiment_id = ?", (BAD,))
        connection.execute("UPDATE trials SET status = 'succeeded' WHERE experiment_id = ?", (BAD,))
        ended = "status = 'completed', reason = 'budget_reached', ended_at = 2.0, running_since = NULL"
        connection.execute(f"UPDATE experiments SET {ended} WHERE id = ?", (BAD,))
        connection.commit()
    with running(database) as (runner, store, _):
        assert [one.id for one in due(store.queries, before=START)] == [BAD]
        shown = shown_after_a_fault(runner, store)
        assert (shown.status, shown.reason) == (ExperimentStatus.COMPLETED, ExperimentReason.SERVICE_FAULT)
        assert due(store.queries, before=START) == []
        with pytest.raises(ConflictError, match="too large"):
            do(runner, c.ExperimentResumed(at=START, experiment_id=BAD))
    damage(database, "experiments", "counts", "{")
    with running(database) as (_, store, _):
        shown = store.queries.experiment(BAD)
        assert shown is not None
        assert (shown.status, shown.reason) == (ExperimentStatus.COMPLETED, ExperimentReason.ROWS_DAMAGED)


def test_what_is_set_aside_can_be_removed(database: Path) -> None:
    damage(database, "experiments", "spec", "{")
    with running(database) as (runner, store, _):
        assert runner._dispatcher is not None
        do(runner, c.ExperimentDeleted(at=START, experiment_id=BAD))
        assert [experiment.id for experiment in store.queries.experiments()] == [GOOD]
        assert BAD not in runner._dispatcher.state.ledger.experiment_cpus
        with pytest.raises(NotFoundError):
            do(runner, c.ExperimentDeleted(at=START, experiment_id=BAD))


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("UPDATE trials SET status = 'succeeded', told_line = 1 WHERE experiment_id = ?", "its trial has ended"),
        ("UPDATE experiments SET counts = '{}' WHERE id = ?", "its rows do not fit together: KeyError"),
        ("UPDATE experiments SET next_line = 2 WHERE id = ?", "its rows do not fit together: StorageError"),
        ("UPDATE experiments SET next_line = 9223372036854775807 WHERE id = ?", "its rows do not fit together"),
    ],
)
def test_rows_that_can_be_read_and_make_no_sense_set_their_experiment_aside(
    database: Path, statement: str, why: str
) -> None:
    with closing(sqlite3.connect(database)) as connection:
        connection.execute(statement, (BAD,))
        connection.commit()
    with running(database) as (runner, store, _):
        assert why in store.queries.set_aside[BAD][0]
        do(runner, c.ExperimentPaused(at=START, experiment_id=GOOD))

"""What a database on a server has to be, what is said of one that is not, and copies of one."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import InternalError

from benchmarks.large.filling import EXPERIMENT_ID as EXPERIMENT
from benchmarks.large.filling import Size, fill
from tests.builders import EXPERIMENT_ID, START, StillClock, a_metric, a_trial, an_attempt, an_experiment
from tests.migrations import build_database as stored
from tests.postgresql import the_server
from tuner_service.archive_ports import MovedMetrics
from tuner_service.dispatcher.changes import Changes
from tuner_service.dispatcher.items import Queue
from tuner_service.domain.errors import NotInstalledError, StorageError, UnavailableError
from tuner_service.storage import migrate, reading, tables
from tuner_service.storage.copying import CopiedTable, copy_database
from tuner_service.storage.engine import open_queries, open_store, revision_of, server_said
from tuner_service.storage.postgresql.connecting import Address
from tuner_service.storage.prepared import Prepared
from tuner_service.storage.sql_queries import SqlQueries

pytestmark = pytest.mark.slow
REPOSITORY = Path(__file__).parents[3]


def name_of(url: str) -> str:
    return url.split("@/")[1].partition("?")[0]


def test_a_new_database_has_the_schema_of_the_newest_revision() -> None:
    url = the_server().new_database()
    open_store(url, StillClock()).close()
    assert revision_of(url) == tables.HEAD_REVISION
    wrong = the_server().execute(
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public' "
        "AND data_type = 'text' AND collation_name <> 'C' AND table_name NOT IN ('tuner_lease', 'tuner_services')",
        database=name_of(url),
    )
    assert wrong == [], "columns whose order is not that of Python"


def test_what_reads_can_change_nothing() -> None:
    with closing(open_queries(the_server().filled_database())) as queries, queries.reading() as connection:
        with pytest.raises(InternalError, match="read-only transaction"):
            connection.exec_driver_sql("DELETE FROM meta")
        connection.rollback()


def test_a_start_and_a_step_of_archiving_read_what_they_want_and_nothing_else_of_what_is_stored() -> None:
    url = the_server().new_database()
    fill(url, Size(trials=40, reports=10, values=1), lambda _: None)
    with closing(open_store(url, StillClock())):
        pass  # what is read once, at an opening, is not meant here

    def at_server(statement: str) -> list[tuple[Any, ...]]:
        return the_server().execute(statement, database=name_of(url))

    at_server("VACUUM (ANALYZE)")
    with closing(open_store(url, StillClock())) as store:
        at_server("SELECT pg_stat_reset()")
        assert [loaded.experiment.id for loaded in store.load()] == [EXPERIMENT]
        assert store.newest_at() == 0.0  # of what has not ended
        step = store.moved_rows.clear(MovedMetrics(EXPERIMENT, 1, 40, None), after=(9, 1, 3), limit=50)
        assert (step.size, step.last) == (50, (14, 1, 3))
        assert store.moved_rows.clear(MovedMetrics(EXPERIMENT, 1, 9, None), after=(0, 0, 0), limit=500).size == 83

    statistics = at_server("SELECT relname::text, seq_tup_read FROM pg_stat_user_tables")
    large = ("journal", "trials", "attempts", "metrics", "checkpoints")
    assert {name: count for name, count in statistics if name in large and count} == {}


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """How the server has carried out the prepared statements since, each with its rows."""
    found = list[dict[str, Any]]()
    tuples = Prepared.tuples

    def explained(query: Prepared, connection: Connection, **values: Any) -> list[tuple[Any, ...]]:
        text, _, fixed = query._compiled(connection.dialect)
        cursor = connection.connection.cursor()
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}", fixed | values)
        ((plan,),) = cursor.fetchall()
        found.append(plan[0]["Plan"])
        return tuples(query, connection, **values)

    monkeypatch.setattr(Prepared, "tuples", explained)
    return found


def looks_at(table: str, plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if plan.get("Relation Name") == table:
        yield plan
    for part in plan.get("Plans", ()):
        yield from looks_at(table, part)


@pytest.mark.parametrize("read", ["reported_at", "entries_of", "trial_entries", "live_trials"])
def test_the_newest_report_of_a_running_trial_is_one_row_at_the_end_of_its_part_of_the_key(
    plans: list[dict[str, Any]], read: str
) -> None:
    url, reports = the_server().new_database(), {1: 2, 2: 2_000}
    with closing(open_store(url, StillClock())) as store:
        attempts = [an_attempt(number=number) for number in reports]
        rows = [a_metric(number=number, sequence=n + 1, step=n) for number in reports for n in range(reports[number])]
        trials = {(EXPERIMENT_ID, number): a_trial(number=number, started_at=START) for number in reports}
        store.commit(
            Changes(
                experiments={EXPERIMENT_ID: an_experiment()},
                trials=trials,
                attempts={attempt.key: attempt for attempt in attempts},
                metrics=rows,
            )
        )
        the_server().execute("VACUUM (ANALYZE)", database=name_of(url))
        plans.clear()
        numbers = () if read in {"trial_entries", "live_trials"} else ([1, 2],)
        assert len(getattr(store.queries, read)(EXPERIMENT_ID, *numbers)) == len(reports)

    looks = [look for plan in plans for look in looks_at("metrics", plan)]
    assert looks
    for look in looks:
        assert (look["Node Type"], look["Scan Direction"]) == ("Index Scan", "Backward")
        assert (look["Actual Rows"], look["Actual Loops"]) == (1, len(reports))
        assert "Filter" not in look


def test_the_best_trials_of_a_list_are_found_by_their_keys_and_no_other_is_read() -> None:
    url, listed = the_server().new_database(), [an_experiment(id=f"e{n}", best_number=n) for n in range(1, 21)]
    numbers = range(1, 501)
    with closing(open_store(url, StillClock())) as store:
        trials = {
            (one.id, number): a_trial(experiment_id=one.id, number=number) for one in listed for number in numbers
        }
        store.commit(Changes(experiments={one.id: one for one in listed}, trials=trials))
        the_server().execute("VACUUM (ANALYZE)", database=name_of(url))
        plan = plan_of(store.queries, partial(store.queries.best_trials, [one.id for one in listed]))
        found = store.queries.best_trials([one.id for one in listed])
    assert {trial.experiment_id: trial.number for trial in found.values()} == {
        one.id: one.best_number for one in listed
    }

    (look,) = looks_at("trials", plan)
    assert (look["Node Type"], look["Actual Loops"], look["Actual Rows"]) == ("Index Scan", len(listed), 1)
    assert "Filter" not in look


def plan_of(queries: SqlQueries, read: Callable[[], object]) -> dict[str, Any]:
    """How the server carries out the one statement that ``read`` gives it."""
    with sent_to(queries._engine) as sent:
        read()
    ((statement, values),) = sent
    with queries.reading() as connection:
        ((plan,),) = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", values).all()
    return dict(plan[0]["Plan"])


@contextmanager
def sent_to(engine: Engine) -> Iterator[list[tuple[str, Any]]]:
    """The statements that are sent meanwhile, and their values."""
    sent: list[tuple[str, Any]] = []

    def note(_: object, __: object, statement: str, values: Any, *___: object) -> None:
        sent.append((statement, values))

    event.listen(engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        event.remove(engine, "before_cursor_execute", note)


def test_a_database_of_the_first_revision_is_brought_up_to_date_and_keeps_its_rows() -> None:
    url = the_server().new_database()
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        migrate.upgrade(connection, folder=migrate.migrations_folder(), revision="0001")
        connection.exec_driver_sql("INSERT INTO quota_groups VALUES ('small', 1.5, false)")
    engine.dispose()
    with pytest.raises(StorageError, match="revision 0001"):
        open_queries(url)

    with closing(open_store(url, StillClock())) as store:
        assert [group.name for group in store.quota_groups()] == ["small"]
    assert revision_of(url) == tables.HEAD_REVISION


def test_a_database_of_a_newer_version_is_refused_and_left_as_it_is() -> None:
    url = the_server().filled_database()
    the_server().execute("UPDATE alembic_version SET version_num = '9999'", database=name_of(url))
    for refused in (lambda: open_store(url, StillClock()), lambda: open_queries(url)):
        with pytest.raises(StorageError, match="newer version"):
            refused()
    assert the_server().execute("SELECT version_num FROM alembic_version", database=name_of(url)) == [("9999",)]


def test_a_database_of_another_program_is_refused_and_left_as_it_is() -> None:
    url = the_server().new_database()
    the_server().execute("CREATE TABLE experiments (theirs int)", database=name_of(url))
    with pytest.raises(StorageError, match="another program"):
        open_store(url, StillClock())
    found = the_server().execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'", database=name_of(url))
    assert found == [("experiments",)]


def test_tables_that_another_schema_hides_are_named_and_none_are_made_there() -> None:
    """PostgreSQL's own search path has the schema of the role's name first: it may be made at any time."""
    url = the_server().filled_database()
    with closing(open_store(url, StillClock())) as store:
        lineage = store.lineage
    the_server().execute("CREATE SCHEMA tuner", database=name_of(url))

    for open_one in (lambda: open_store(url, StillClock()), lambda: open_queries(url)):
        with pytest.raises(StorageError, match="in schema public, and schema tuner, which has none, comes first"):
            open_one()

    assert the_server().execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'tuner'", database=name_of(url)) == [
        (0,)
    ]
    with closing(open_store(f"{url}&options=-csearch_path%3Dpublic", StillClock())) as store:
        assert store.lineage == lineage
    with closing(open_store(f"{url}&options=-csearch_path%3Dtuner", StillClock())) as store:
        assert store.lineage != lineage, "one that is meant to be there is made"


def test_a_lost_table_is_named() -> None:
    url = the_server().filled_database()
    the_server().execute("DROP TABLE checkpoints", database=name_of(url))
    with pytest.raises(StorageError, match="table checkpoints is missing"):
        open_store(url, StillClock())


def test_a_database_that_was_copied_has_a_lineage_of_its_own_and_one_that_stays_keeps_its() -> None:
    url = the_server().filled_database()
    with closing(open_store(url, StillClock())) as store:
        lineage = store.lineage
    with closing(open_store(url, StillClock())) as store:
        assert store.lineage == lineage
    with closing(open_store(the_server().new_database(template=name_of(url)), StillClock())) as store:
        assert store.lineage != lineage


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda url: url.replace("tuner@/", "tuner:hunter2@[::1/"), "makes no sense"),
        (lambda url: url.replace("@/t", ":hunter2@/nothing_t"), "createdb"),
        (lambda url: url.replace("host=/tmp/", "host=/tmp/nowhere/").replace("@", ":hunter2@"), "does the server run"),
        (lambda url: url.replace("tuner@", "stranger:hunter2@"), "pgpass"),
    ],
    ids=["malformed", "no such database", "no server", "no such role"],
)
def test_an_address_that_leads_nowhere_is_said_so_without_its_password(
    change: Callable[[str], str], words: str
) -> None:
    with pytest.raises((StorageError, UnavailableError), match=words) as refusal:
        open_store(change(the_server().url("t0")), StillClock())
    causes, cause = "", refusal.value
    while cause is not None:
        causes, cause = causes + str(cause), cause.__cause__  # type: ignore[assignment]  # the chain ends in None
    assert "hunter2" not in causes


def test_an_address_shows_no_password() -> None:
    assert "hunter2" not in Address("postgresql+psycopg://me:hunter2@host:5433/db").shown
    assert Address("postgresql://me:hunter2@host:5433/db").shown == "db on host:5433"


def test_without_the_driver_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(NotInstalledError, match=r"tuner-service\[postgresql\]"):
        open_store("postgresql://host/db", StillClock())


@pytest.mark.parametrize("way", ["to a server", "to a file"])
def test_a_copy_holds_every_row_as_it_was(way: str, tmp_path: Path) -> None:
    file, url = tmp_path / "tuner.db", the_server().new_database()
    source, target = (file, url) if way == "to a server" else (url, file)
    done: list[CopiedTable] = []
    with closing(open_store(source, StillClock())) as store, closing(open_store(target, StillClock())) as copy:
        store.commit(stored.changes())
        store.put_token(stored.TOKEN)
        copy_database(store, copy, done.append)
        assert repr(copy.load()) == repr(store.load())
        assert copy.lineage != store.lineage
    with closing(open_store(target, StillClock())) as copy:
        metrics = copy.queries.all_metrics(EXPERIMENT_ID)
        assert [math.isnan(metric.values["loss"]) for _, metric in metrics] == [False, False, True]
        assert copy.queries.blob(stored.CHECKPOINT.digest) == stored.WEIGHTS
        assert len(list(copy.history(EXPERIMENT_ID, Queue.TUNER, after=0, upto=4))) == 3
        assert copy.queries.sequence() == 1
    counts = {table.name: table.rows for table in done}
    assert (counts["trials"], counts["metrics"], counts["tokens"], counts["commits"]) == (3, 3, 1, 1)


def test_a_database_that_holds_rows_is_no_target(tmp_path: Path) -> None:
    url = the_server().filled_database()
    with (
        closing(open_store(tmp_path / "tuner.db", StillClock())) as store,
        closing(open_store(url, StillClock())) as copy,
    ):
        store.commit(stored.changes())
        copy.put_token(stored.TOKEN)
        with pytest.raises(StorageError, match="holds rows already"):
            copy_database(store, copy, lambda _: None)
        assert copy.load() == ()


def test_the_command_copies_and_says_what(tmp_path: Path) -> None:
    with closing(open_store(tmp_path / "tuner.db", StillClock())) as store:
        store.commit(stored.changes())
    url = the_server().new_database()
    command = [sys.executable, "-m", "tuner_service.cli.main", "db", "copy", "tuner.db", url]
    environment = {"PYTHONPATH": str(REPOSITORY), "PATH": "", "HOME": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert "metrics" in done.stdout + done.stderr
    with open_queries(url) as queries:
        assert [trial.number for trial in queries.trials(EXPERIMENT_ID)] == [1, 2, 3]


def test_no_statement_of_a_start_is_compiled_first() -> None:
    """By the server (JIT), which takes longer than all that a start reads."""
    with closing(open_queries(the_server().filled_database())) as queries, queries.reading() as connection:
        reading.by_index(connection)
        plan = connection.exec_driver_sql("EXPLAIN SELECT id FROM experiments WHERE ended_at IS NULL").scalars().all()

    assert "JIT:" not in plan, "\n".join(plan)


def test_a_server_says_its_version_and_how_large_the_database_is() -> None:
    assert re.search(r"answers: PostgreSQL \d+\.\d+, [1-9]\d*\.\d MiB$", server_said(the_server().filled_database()))

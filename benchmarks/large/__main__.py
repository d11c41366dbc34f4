"""A database of 5 GB, in a file and on a server: filling it, reading it, and what retention gives back.

Of each table it is counted how many rows were read without an index while a screen's reads were answered: on the
server by its own statistics, of a file by the plan of every statement.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.large.filling import EXPERIMENT_ID, REPORTS_OF_A_LINE, Size, fill
from benchmarks.machine import describe
from benchmarks.scale.reads import Asking, serve
from benchmarks.service import Service, memory_mb, service
from benchmarks.writing import Row, save
from tests.postgresql import INSTALL, Server, a_server, programs
from tuner_service.service.cursors import make_cursor
from tuner_service.storage.engine import open_queries
from tuner_service.storage.sql_queries import SqlQueries

# As Debian has it, but for where it listens (tests/postgresql.py sets some otherwise): all of it as durable.
SETTINGS = ("fsync=on", "shared_buffers=128MB", "max_connections=100", "autovacuum_naptime=1min")
DATABASES = ("file", "server")
SHRINKING_S = 20.0  # a file that has not become smaller in that time has given back what it gives
LARGE_TABLES = ("metrics", "journal", "trials", "attempts")
ONE = f"/api/v1/experiments/{EXPERIMENT_ID}"
TRIAL = f"/api/v1/trials/{EXPERIMENT_ID}"
NOTES = (
    (
        "Filled through the store, 20 trials in a commit. Reads: those of a terminal and of the page, over one "
        "connection, by the clock of the client. First: of a service that has just been started. Again: the median of "
        "the runs, each of another place of the experiment where there is one. The rows were written shortly before, "
        "so both read from the page cache: a first read from a disk takes longer."
    ),
    (
        "Rows read without an index, while these reads were answered: on the server what its statistics say "
        "(`seq_tup_read`), of a file the rows of the tables that the plan of a statement reads whole."
    ),
    (
        "Archived: `tuner archive` as a whole; the parquet file is written, read again and compared, the rows are "
        "taken out 500 in a transaction, with as long a pause after each, and the room is given back. Removed: `tuner "
        "gc --older-than`, with no service. Size: of the file with its log; what the server says of its database."
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.large", description=__doc__, allow_abbrev=False)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--reports", type=int, default=1_000, help="of each trial (default: 1000)")
    parser.add_argument("--values", type=int, default=16, help="in each report (default: 16)")
    parser.add_argument("--runs", type=int, default=5, help="of each read after the first (default: 5)")
    parser.add_argument("--databases", nargs="+", choices=DATABASES, default=list(DATABASES))
    parser.add_argument("--back", action="store_true", help="put what was archived back before it is removed")
    parser.add_argument("--name", default="large", help="of the result (default: large)")
    options = parser.parse_args()
    if "server" in options.databases and programs() is None:
        parser.error(f"there is no PostgreSQL server here: {INSTALL}")
    machine = describe()
    found = {name: _Measure(name, options).rows() for name in options.databases}
    command = f"python -m benchmarks.large --trials {options.trials} --reports {options.reports}"
    command += f" --values {options.values} --databases {' '.join(options.databases)}" + " --back" * options.back
    save(options.name, command=command, machine=machine, rows=_side_by_side(found), notes=NOTES)
    return 0


def _side_by_side(found: dict[str, dict[str, float]]) -> list[Row]:
    names = dict.fromkeys(name for rows in found.values() for name in rows)
    return [{"what": name} | {of: rows.get(name) for of, rows in found.items()} for name in names]


class _Measure:
    """Of one database, from an empty one to one that is empty again."""

    def __init__(self, name: str, options: argparse.Namespace) -> None:
        self._name, self._options = name, options
        self._size = Size(trials=options.trials, reports=options.reports, values=options.values)
        self._server: Server | None = None
        self._url = ""
        self._rows: dict[str, float] = {}

    def rows(self) -> dict[str, float]:
        with ExitStack() as stack:
            if self._name == "server":
                self._server = a_server(*SETTINGS)
                stack.callback(self._server.end)
                self._url = self._server.new_database()
            made = stack.enter_context(service(TUNER_DB=self._url) if self._url else service())
            made.home.mkdir()
            self._measured(made)
        return self._rows

    def _measured(self, made: Service) -> None:
        database = self._url or made.database
        self._say("rows of metrics", self._size.rows)
        self._say("filled, s", fill(database, self._size, self._progress))
        self._say("filled, GB", self._gigabytes(made))
        if self._server is not None:
            self._say("VACUUM (ANALYZE) of all, s", self._timed(lambda: self._at_server("VACUUM (ANALYZE)")))
            self._at_server("SELECT pg_stat_reset()")
        self._reads(made)
        for table, count in self._without_index(made):
            self._say(f"rows of {table} read without an index", count)
        serve(made)
        self._say("archived, s", self._timed(lambda: made.tuner("archive", EXPERIMENT_ID)))
        self._say("service at most, MB", memory_mb(made.processes()["service"], peak=True))
        self._settled(made, "archived, GB")
        self._say(
            "its asset, GB", sum(f.stat().st_size for f in (made.home / "assets").rglob("*") if f.is_file()) / 1e9
        )
        if self._options.back:
            self._say("put back, s", self._timed(lambda: made.tuner("unarchive", EXPERIMENT_ID)))
            self._settled(made, "put back, GB")
        made.end()
        self._say("removed by gc, s", self._timed(lambda: made.tuner("gc", "--older-than", "90d")))
        self._settled(made, "removed, GB")

    # ── reads ───────────────────────────────────────────────────────────────────────────────────
    def _reads(self, made: Service) -> None:
        for what, paths in self._paths().items():
            serve(made)
            asking = Asking(made)
            self._say(f"{what}: first, s", asking.get(paths[0])[0])
            self._say(f"{what}: again, s", median(asking.get(path)[0] for path in paths[1:]))
            made.end()

    def _paths(self) -> dict[str, list[str]]:
        """The first and the places of the runs."""
        runs, lines = self._options.runs, self._size.rows // REPORTS_OF_A_LINE
        places = [max(1, self._size.trials * (2 * run + 1) // (2 * runs + 2)) for run in range(runs + 1)]
        return {
            "an experiment": [ONE] * (runs + 1),
            "100 trials": [f"{ONE}/trials?limit=100&cursor={make_cursor(str(place))}" for place in places],
            "a trial": [f"{TRIAL}/{place}" for place in places],
            "metrics of a trial": [f"{TRIAL}/{place}/metrics" for place in places],
            "curves of 100 trials": [f"{ONE}/curves"] * (runs + 1),
            "the table": [f"{ONE}/table?columns=number,status,value"] * (runs + 1),
            "best": [f"{ONE}/best"] * (runs + 1),
            "journal, its last lines": [f"{ONE}/journal?cursor={make_cursor(str(lines))}"] * (runs + 1),
        }

    def _without_index(self, made: Service) -> Iterator[tuple[str, int]]:
        if self._server is None:
            scanned = _scanned(made.database, self._size)
            yield from ((table, self._rows_of(table) if table in scanned else 0) for table in LARGE_TABLES)
            return
        told = dict(self._at_server("SELECT relname::text, seq_tup_read FROM pg_stat_user_tables"))
        yield from ((table, int(told[table])) for table in LARGE_TABLES)

    def _rows_of(self, table: str) -> int:
        return self._size.rows if table == "metrics" else self._size.trials

    # ── the rest ────────────────────────────────────────────────────────────────────────────────
    def _settled(self, made: Service, what: str) -> None:
        """How large it is. A server gives free pages of the end back by its VACUUM, the room inside it keeps."""
        if self._server is not None:
            self._say(what.replace("GB", "VACUUM, s"), self._timed(lambda: self._at_server("VACUUM (ANALYZE)")))
        size = self._gigabytes(made)
        while self._server is None:  # a file is given back a little at a time, once the command has ended
            time.sleep(SHRINKING_S)
            before, size = size, self._gigabytes(made)
            if size >= before:
                break
        self._say(what, size)

    def _gigabytes(self, made: Service) -> float:
        if self._server is None:
            return sum(f.stat().st_size for f in made.home.glob("tuner.db*") if f.suffix != ".lock") / 1e9
        ((size,),) = self._at_server("SELECT pg_database_size(current_database())")
        return float(size) / 1e9

    def _at_server(self, statement: str) -> list[tuple[Any, ...]]:
        assert self._server is not None
        return self._server.execute(statement, database=self._url.split("@/")[1].partition("?")[0])

    def _timed(self, action: Callable[[], object]) -> float:
        begun = time.perf_counter()
        action()
        return time.perf_counter() - begun

    def _say(self, what: str, value: float) -> None:
        self._rows[what] = round(value, 4)
        print(f"{self._name}: {what}: {value:,.4g}", flush=True)

    def _progress(self, trials: int) -> None:
        if trials % max(1, self._size.trials // 10) == 0:
            print(f"{self._name}: {trials} trials are there", flush=True)


def _scanned(database: Path, size: Size) -> set[str]:
    """Tables of which a statement of these reads reads every row, as the file's own plans say."""
    found: set[str] = set()
    with closing(open_queries(database)) as queries, queries.reading() as connection:
        driver: Any = connection.connection.driver_connection
        said: list[str] = []
        driver.set_trace_callback(said.append)
        _ask_all(queries, size)
        driver.set_trace_callback(None)
        for statement in {one for one in said if one.startswith("SELECT")}:
            plan = [str(row[3]) for row in driver.execute(f"EXPLAIN QUERY PLAN {statement}")]
            found |= {table for table in LARGE_TABLES if f"SCAN {table}" in plan}
    return found


def _ask_all(queries: SqlQueries, size: Size) -> None:
    """What the reads of ``_paths`` ask of the store."""
    number = size.trials // 2
    queries.experiment(EXPERIMENT_ID)
    queries.trials(EXPERIMENT_ID, after=number, limit=100)
    queries.trial_entries(EXPERIMENT_ID, after=number, limit=100)
    queries.trial(EXPERIMENT_ID, number)
    queries.attempts(EXPERIMENT_ID, number)
    queries.checkpoints(EXPERIMENT_ID, number)
    queries.metrics(EXPERIMENT_ID, number)
    queries.curve_points(EXPERIMENT_ID, number)
    queries.live_attempts(EXPERIMENT_ID)
    queries.journal(EXPERIMENT_ID, after=number, limit=100)


if __name__ == "__main__":
    sys.exit(main())

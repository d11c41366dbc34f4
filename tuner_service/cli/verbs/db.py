"""db: where the database is, which revision it has, bringing it up to date, copying it, and whether it is whole."""

from __future__ import annotations

import argparse
from contextlib import closing
from itertools import islice
from pathlib import Path

from tuner_service.cli.context import database_of, settings_of
from tuner_service.cli.output.exit_codes import CommandError, ExitCode, say
from tuner_service.config import SQLITE_SCHEME, Settings, database_url
from tuner_service.setting_values import without_password

FINDINGS_LIMIT = 100


def run(arguments: argparse.Namespace) -> int:
    settings = settings_of(arguments)
    match arguments.action:
        case "path":
            print(settings.database_file or without_password(settings.db))
        case "revision":
            from tuner_service.storage.engine import revision_of

            print(revision_of(database_of(settings)))
        case "upgrade":
            return _upgrade(settings)
        case "copy":
            return copy(arguments.source, arguments.target)
        case _:
            return _check(settings)
    return ExitCode.OK


def _upgrade(settings: Settings) -> int:
    """Opening it as a service does migrates it, with a copy kept beside it."""
    from tuner_service.clock import SystemClock
    from tuner_service.storage.engine import open_store, revision_of

    database = database_of(settings)
    before = revision_of(database)
    open_store(database, SystemClock()).close()
    after, shown = revision_of(database), without_password(str(database))
    say(f"{shown} has revision {after} already" if before == after else f"{shown}: revision {before} → {after}")
    return ExitCode.OK


def _check(settings: Settings) -> int:
    database = database_of(settings)
    findings, shown = _findings(database), without_password(str(database))
    for finding in findings:
        say(finding)
    say(f"{shown} is damaged; restore it from a backup" if findings else f"{shown} is whole")
    return ExitCode.FAILURE if findings else ExitCode.OK


def _findings(database: str | Path) -> list[str]:
    """Of a file everything that SQLite finds; of a server's database what of its rows cannot be read."""
    if isinstance(database, Path):
        from tuner_service.storage.sqlite_file import check_integrity

        return check_integrity(database)
    from tuner_service.storage.engine import open_queries
    from tuner_service.storage.examine import bad_rows

    with open_queries(database) as queries:
        return [str(bad) for bad in islice(bad_rows(queries), FINDINGS_LIMIT)]


def copy(source: str | None, target: str | None) -> int:
    """From one database into an empty one, while no service runs on either; compared row by row before it is kept."""
    if source is None or target is None:
        raise CommandError("name both: tuner db copy FROM TO, each a file or a postgresql:// URL", ExitCode.USAGE)
    from tuner_service.clock import SystemClock
    from tuner_service.storage.copying import CopiedTable, copy_database
    from tuner_service.storage.engine import open_store

    def done(table: CopiedTable) -> None:
        say(f"{table.name:24} {table.rows:>12} rows  {table.digest[:16]}")

    found, wanted = _address(source), _address(target)
    if found == wanted:
        raise CommandError("FROM and TO are one database; name an empty one as TO", ExitCode.USAGE)
    if isinstance(found, Path) and not found.exists():
        raise CommandError(f"there is no database {found}", ExitCode.NOT_FOUND)
    clock = SystemClock()
    with closing(open_store(found, clock)) as held, closing(open_store(wanted, clock)) as empty:
        copy_database(held, empty, done)
    say(f"{without_password(target)} holds what {without_password(source)} holds; name it with --db or TUNER_DB")
    return ExitCode.OK


def _address(named: str) -> str | Path:
    url = database_url(named, folder=Path.cwd())
    if not url.startswith(SQLITE_SCHEME):
        return url
    file = Path(url.removeprefix(SQLITE_SCHEME))
    if file.is_dir():
        raise CommandError(f"{file} is a folder; name a database file in it", ExitCode.USAGE)
    return file

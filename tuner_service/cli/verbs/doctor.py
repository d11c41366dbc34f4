"""doctor: is everything as it should be, and if not, what to do."""

from __future__ import annotations

import argparse
import os
import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from trials.stores import StoreError
from tuner_service.cli.context import database_of, settings_of
from tuner_service.cli.files.damaged_bytes import damaged_checkpoints
from tuner_service.cli.output.exit_codes import ExitCode
from tuner_service.cli.output.tables import Column, print_rows
from tuner_service.client import Client, ClientError
from tuner_service.config import Settings
from tuner_service.domain.errors import NotInstalledError, StorageError, UnavailableError
from tuner_service.domain.wording import counted
from tuner_service.local_service import database_holder, find_service

BAD_ROWS_SHOWN = 20
LOW_DISK_BYTES = 1 << 30
_MEND_ASSET = "add it again, or name the store that has it (--asset-store, TUNER_ASSET_STORE)"
GIB = 1 << 30
WAL_FAULT_FROM = (3, 7, 0)
WAL_FAULT_UNTIL = (3, 51, 3)
COLUMNS = (
    Column(title="CHECK", text=lambda f: f["id"]),
    Column(title="STATE", text=lambda f: f["state"]),
    Column(title="DETAIL", text=lambda f: f["detail"], width=1_000),
)


@dataclass(frozen=True, kw_only=True)
class Finding:
    check: str
    detail: str
    state: str = "ok"  # or "warning", or "FAULT"


def run(arguments: argparse.Namespace) -> int:
    """1 when there is a fault; warnings are no reason to fail. With --replay: 1 when something differs."""
    settings = settings_of(arguments)
    if arguments.replay is not None:
        from tuner_service.cli.replay import replay

        return replay(settings, arguments.replay, output=arguments.output)
    findings = list(examine(settings))
    if all(f.state != "FAULT" for f in findings if f.check in {"database", "rows"}):
        findings += examine_bytes(settings, reads_all=arguments.digests)
    rows = [{"id": f.check, "state": f.state, "detail": f.detail} for f in findings]
    print_rows(rows, output=arguments.output, columns=COLUMNS)
    return ExitCode.FAILURE if any(f.state == "FAULT" for f in findings) else ExitCode.OK


def examine(settings: Settings) -> Iterator[Finding]:
    yield from _home(settings)
    yield _sqlite()
    database = _database(settings)
    yield database
    if database.state == "ok":
        yield from _rows(settings)
    yield from _service(settings)


def _home(settings: Settings) -> Iterator[Finding]:
    home = settings.home
    if not home.is_dir():
        yield Finding(check="home", state="warning", detail=f"{home} does not exist yet; the first service makes it")
        return
    if not os.access(home, os.W_OK | os.X_OK):
        yield Finding(check="home", state="FAULT", detail=f"{home} may not be written; change its owner or permissions")
    else:
        yield Finding(check="home", detail=str(home))
    free = shutil.disk_usage(home).free
    state = "ok" if free >= LOW_DISK_BYTES else "warning"
    yield Finding(check="disk", state=state, detail=f"{free / GIB:.1f} GiB free")
    token = settings.token_file
    if token.exists() and token.stat().st_mode & 0o077:
        detail = f"{token} is readable by others; chmod 600 {token}"
        yield Finding(check="token", state="FAULT", detail=detail)


def _sqlite() -> Finding:
    version = sqlite3.sqlite_version
    if WAL_FAULT_FROM <= sqlite3.sqlite_version_info < WAL_FAULT_UNTIL:
        detail = f"SQLite {version} may have the write-ahead log fault; the service keeps clear of it"
        return Finding(check="sqlite", detail=detail)
    return Finding(check="sqlite", detail=f"SQLite {version}")


def _database(settings: Settings) -> Finding:
    file = settings.database_file
    if file is None:
        return _server(settings)
    if not file.exists():
        return Finding(
            check="database", state="warning", detail=f"{file} does not exist yet; the first service makes it"
        )
    findings = _integrity(file)
    if findings:
        detail = f"{file}: {findings[0]} ({counted(len(findings), 'finding')}); restore it from a backup"
        return Finding(check="database", state="FAULT", detail=detail)
    return Finding(check="database", detail=f"{file} is whole, {file.stat().st_size / (1 << 20):.1f} MiB")


def _server(settings: Settings) -> Finding:
    from tuner_service.storage.engine import open_queries, server_said

    try:
        open_queries(settings.db).close()
        return Finding(check="database", detail=server_said(settings.db))
    except UnavailableError as exc:
        return Finding(check="database", state="FAULT", detail=f"{exc}; start the server, or name another with --db")
    except (StorageError, NotInstalledError) as exc:
        return Finding(check="database", state="FAULT", detail=str(exc))


def _rows(settings: Settings) -> Iterator[Finding]:
    """Every row is read by the code that uses it."""
    from tuner_service.storage.engine import open_queries
    from tuner_service.storage.examine import bad_rows

    try:
        with open_queries(database_of(settings)) as queries:
            found = list(islice(bad_rows(queries), BAD_ROWS_SHOWN + 1))
    except StorageError as exc:
        yield Finding(check="rows", state="FAULT", detail=str(exc))
        return
    except UnavailableError as exc:
        yield Finding(check="rows", state="warning", detail=f"they could not be read now: {exc}")
        return
    for bad in found[:BAD_ROWS_SHOWN]:
        yield Finding(check="rows", state="FAULT", detail=f"{bad}; restore the database from a backup")
    if len(found) > BAD_ROWS_SHOWN:
        yield Finding(check="rows", state="FAULT", detail=f"there are more than these {BAD_ROWS_SHOWN}")
    if not found:
        yield Finding(check="rows", detail="every row of it can be read")


def examine_bytes(settings: Settings, *, reads_all: bool) -> Iterator[Finding]:
    """Assets that the store has not; with ``reads_all`` every damaged file of assets, their trees, checkpoints."""
    from tuner_service.cli.files.damaged_trees import damaged_trees
    from tuner_service.service.assets.asset_store import AssetStore
    from tuner_service.service.assets.collecting import damages, missing_assets
    from tuner_service.storage.engine import open_queries
    from tuner_service.storage.sql_assets import read_only_assets

    if settings.database_file is not None and not settings.database_file.exists():
        return
    try:
        with open_queries(database_of(settings)) as queries:
            rows = read_only_assets(queries)
            store = AssetStore.of(settings, rows.lineage)
            found = [f"{asset_id} is not in {store.root}: {_MEND_ASSET}" for asset_id in missing_assets(store, rows)]
            if reads_all:
                found += [damage.text for damage in damages(store, rows)]
                found += damaged_checkpoints(queries, home=settings.home)
                found += damaged_trees(settings.home, store.manifest)
    except (StoreError, StorageError, UnavailableError) as exc:
        yield Finding(check="assets", state="warning", detail=f"they could not be looked at: {exc}")
        return
    for text in found[:BAD_ROWS_SHOWN]:
        yield Finding(check="assets", state="FAULT", detail=text)
    if len(found) > BAD_ROWS_SHOWN:
        yield Finding(check="assets", state="FAULT", detail=f"there are {len(found) - BAD_ROWS_SHOWN} more")
    if not found:
        how = (
            "every digest of assets, of what lies on this node, and of checkpoints is as it was"
            if reads_all
            else "all are in the store"
        )
        yield Finding(check="assets", detail=how)


def _integrity(file: Path) -> list[str]:
    from tuner_service.storage.sqlite_file import check_integrity, inspect

    try:
        inspect(file)
    except StorageError as exc:
        return [str(exc)]
    return check_integrity(file)


def _service(settings: Settings) -> Iterator[Finding]:
    try:
        client = find_service(settings)
    except ClientError as exc:
        yield Finding(check="service", state="FAULT", detail=str(exc))
        return
    if client is None:
        yield _no_service(settings)
        yield from _local_agent(settings)
        return
    try:
        yield from _parts(client)
    except ClientError as exc:
        yield Finding(check="service", state="FAULT", detail=str(exc))
    finally:
        client.close()


def _no_service(settings: Settings) -> Finding:
    holder = database_holder(settings)
    if holder is not None:
        detail = f"none answers, and process {holder} holds the database; it is starting, ending, or of another home"
        return Finding(check="service", state="warning", detail=detail)
    detail = "none runs; `tuner serve`, start, run and resume start one"
    return Finding(check="service", state="warning", detail=detail)


def _local_agent(settings: Settings) -> Iterator[Finding]:
    from tuner_service.executors.local import agent_is_alive

    if agent_is_alive(settings.home):
        yield Finding(check="agent", detail="runs without the service; `tuner ps --local` shows its trials")


def _parts(client: Client) -> Iterator[Finding]:
    yield Finding(check="service", detail=client.url)
    yield from _agents(client)
    readiness = client.readiness()
    for name, trouble in readiness.get("parts", {}).items():
        state = "ok" if trouble == "ok" else "FAULT"
        yield Finding(check=f"service {name}", state=state, detail=trouble)
    for name, warning in readiness.get("warnings", {}).items():
        yield Finding(check=f"service {name}", state="warning", detail=warning)


def _agents(client: Client) -> Iterator[Finding]:
    """Those connected, and of each that is in trouble, or away with trials, what to do."""
    agents = client.agents()
    connected = [agent for agent in agents if agent["state"] != "away"]
    if connected:
        detail = ", ".join(f"{a['id']} on {a['host']}, process {a['pid']}" for a in connected)
        yield Finding(check="agent", detail=detail)
    else:
        detail = "none is connected; trials wait until one is (its log is agent/agent.log in the home folder)"
        yield Finding(check="agent", state="warning", detail=detail)
    for agent in agents:
        if agent["message"]:
            yield Finding(check="agent", state="warning", detail=f"{agent['id']}: {agent['message']}")

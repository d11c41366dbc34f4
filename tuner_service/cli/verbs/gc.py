"""gc: what nothing needs any more, listed with its size and removed."""

from __future__ import annotations

import argparse
from contextlib import ExitStack, closing
from pathlib import Path

from trials.stores import StoreError
from tuner_service.api.bodies.quantities import parse_duration
from tuner_service.cli.context import database_of, settings_of
from tuner_service.cli.files.garbage_files import Garbage, Needed, find_files
from tuner_service.cli.output.exit_codes import CommandError, ExitCode, say
from tuner_service.cli.output.sizes import size_text
from tuner_service.cli.output.tables import Column, Row, moment_text, print_rows
from tuner_service.client import Client
from tuner_service.clock import SystemClock, machine_uptime
from tuner_service.config import Settings
from tuner_service.domain.errors import InUseError, StorageError
from tuner_service.local_service import find_service
from tuner_service.service.assets.asset_store import AssetStore
from tuner_service.service.assets.collecting import collect
from tuner_service.service.retention import due, due_view
from tuner_service.storage.engine import open_store
from tuner_service.storage.lock import HomeLock
from tuner_service.storage.sql_store import SqlStore

COLUMNS = (
    Column(title="WHAT", text=lambda g: g["what"]),
    Column(title="SIZE", text=lambda g: size_text(g["size"]), right=True),
    Column(title="WHERE", text=lambda g: g["id"], width=1_000),
    Column(title="WHY", text=lambda g: g["why"], width=1_000),
)

DUE_COLUMNS = (
    Column(title="ID", text=lambda e: e["id"]),
    Column(title="NAME", text=lambda e: e["name"]),
    Column(title="STATUS", text=lambda e: e["status"]),
    Column(title="ENDED", text=lambda e: moment_text(e["ended_at"])),
    Column(title="TRIALS", text=lambda e: str(e["trials"]), right=True),
    Column(title="REPORTS", text=lambda e: str(e["reports"]), right=True),
    Column(title="SIZE", text=lambda e: size_text(e["bytes"]), right=True),
)


def run(arguments: argparse.Namespace) -> int:
    """Holds the database all the while, so that no service starts and needs what is being removed."""
    settings = settings_of(arguments)
    older_than_s = None if arguments.older_than is None else _seconds(arguments.older_than)
    if settings.url and older_than_s is None:
        raise CommandError("gc works on the home folder of this machine", ExitCode.USAGE)
    client = None if older_than_s is None else find_service(settings)
    if client is not None and older_than_s is not None:
        with closing(client):
            return _by_service(client, arguments, older_than_s)
    store = _open_at_rest(database_of(settings))
    with ExitStack() as stack:
        stack.callback(store.close)
        if settings.home.is_dir():
            stack.callback(_home_at_rest(settings.home, store.lineage).release)
        if older_than_s is not None:
            _print_due(_remove_old(store, older_than_s, dry_run=arguments.dry_run), arguments)
        found = collected(settings, store, remove=not arguments.dry_run)
        rows = [{"id": g.where, "what": g.what, "size": g.size, "why": g.why} for g in found]
        print_rows(rows, output=arguments.output, columns=COLUMNS)
        while not arguments.dry_run and store.moved_rows.give_back(is_asked_for=True):
            pass  # nobody waits for the database meanwhile
    verb = "would be" if arguments.dry_run else "were"
    say(f"{size_text(sum(g.size for g in found))} in {len(found)} places {verb} removed")
    return ExitCode.OK


def collected(settings: Settings, store: SqlStore, *, remove: bool) -> list[Garbage]:
    """What nothing needs, in the order of its kinds; gone when this returns, with ``remove``.

    Files go first: on a full disk they make the room without which nothing else can be removed.
    """
    blobs, files = _blobs(store), find_files(settings.home, _needed(store))
    if remove:
        files = [garbage for garbage in files if is_removed(garbage)]
        store.delete_unnamed_blobs([blob.digest for blob in blobs])
    return [*blobs, *files, *_assets(settings, store, remove=remove)]


def _seconds(given: str | float) -> float:
    try:
        return parse_duration(given)
    except ValueError as exc:
        raise CommandError(f"--older-than {exc}", ExitCode.USAGE) from exc


def _by_service(client: Client, arguments: argparse.Namespace, older_than_s: float) -> int:
    """A service that runs removes them itself; what else nothing needs is collected while none does."""
    body = {"older_than": older_than_s, "dry_run": arguments.dry_run}
    answer = client.call("POST", "/api/v1/experiments/collect", body=body).json()
    _print_due(answer["items"], arguments)
    for kept in answer.get("kept", []):
        say(f"careful: {kept['id']} is not removed: {kept['why']}")
    say("blobs, files and assets that nothing needs are collected by `tuner gc` while no service runs")
    return ExitCode.OK


def _remove_old(store: SqlStore, older_than_s: float, *, dry_run: bool) -> list[Row]:
    queries = store.queries
    found = due(queries, before=SystemClock().now() - older_than_s)
    views = [due_view(experiment, store.moved_rows) for experiment in found]
    if not dry_run:
        for experiment in found:
            store.remove_experiment(experiment.id)
    return views


def _print_due(views: list[Row], arguments: argparse.Namespace) -> None:
    print_rows(views, output=arguments.output, columns=DUE_COLUMNS)
    verb = "would be" if arguments.dry_run else "are"
    say(f"{len(views)} experiments, about {size_text(sum(v['bytes'] for v in views))}, {verb} removed")


def _open_at_rest(database: str | Path) -> SqlStore:
    """A service that works decides at any moment what is needed next."""
    try:
        return open_store(database, SystemClock())
    except InUseError as exc:
        raise CommandError(
            f"{exc}: end it with `tuner serve --stop` (trials run on), collect, and start it again", ExitCode.CONFLICT
        ) from exc


def _home_at_rest(home: Path, lineage: str) -> HomeLock:
    """A service with another database needs what is in the folder, and this database does not say what."""
    try:
        return HomeLock.acquire(home, lineage)
    except InUseError as exc:
        raise CommandError(str(exc), ExitCode.CONFLICT) from exc


def _blobs(store: SqlStore) -> list[Garbage]:
    why = "no experiment, code revision or checkpoint names it"
    return [
        Garbage(what="blob", where=f"sha256:{digest}", size=size, why=why, digest=digest)
        for digest, size in sorted(store.unnamed_blobs().items())
    ]


def _assets(settings: Settings, store: SqlStore, *, remove: bool) -> list[Garbage]:
    """They are removed here and now: what others that share the store need may change at any moment."""
    assets = AssetStore.of(settings, store.lineage)
    try:
        found = collect(assets, store.assets, now=SystemClock().now(), uptime=machine_uptime, remove=remove)
    except (StoreError, StorageError) as exc:
        say(f"careful: nothing more of the asset store is collected: {exc}")
        return []
    return [Garbage(what=one.what, where=one.where, size=one.size, why=one.why) for one in found]


def is_removed(garbage: Garbage) -> bool:
    """What cannot be removed stays, and is named; the rest goes."""
    try:
        garbage.remove()
    except OSError as exc:
        say(f"careful: {garbage.where} is not removed: {exc}")
        return False
    return True


def _needed(store: SqlStore) -> Needed:
    queries = store.queries
    experiments = queries.experiments()
    ended = {
        attempt.nonce
        for experiment in experiments
        for attempt in queries.attempts(experiment.id)
        if attempt.status.is_final
    }
    return Needed(
        lineage=store.lineage,
        experiments=frozenset(experiment.id for experiment in experiments),
        ended_nonces=frozenset(ended),
        checkpoints=queries.checkpoint_digests(),
        code=frozenset(
            experiment.spec.trial.code_digest
            for experiment in experiments
            if experiment.spec.trial.code_digest is not None and not experiment.status.has_ended
        ),
    )

"""gc: what nothing needs any more, listed with its size and removed."""

from __future__ import annotations

import argparse
from pathlib import Path

from trials.stores import StoreError
from tuner_service.cli.context import database_of, settings_of
from tuner_service.cli.files.garbage_files import Garbage, Needed, find_files
from tuner_service.cli.output.exit_codes import CommandError, ExitCode, say
from tuner_service.cli.output.sizes import size_text
from tuner_service.cli.output.tables import Column, print_rows
from tuner_service.clock import SystemClock
from tuner_service.config import Settings
from tuner_service.domain.errors import InUseError, StorageError
from tuner_service.service.assets.asset_store import AssetStore
from tuner_service.service.assets.collecting import collect
from tuner_service.storage.engine import open_store
from tuner_service.storage.sql_store import SqlStore

COLUMNS = (
    Column(title="WHAT", text=lambda g: g["what"]),
    Column(title="SIZE", text=lambda g: size_text(g["size"]), right=True),
    Column(title="WHERE", text=lambda g: g["id"], width=1_000),
    Column(title="WHY", text=lambda g: g["why"], width=1_000),
)


def run(arguments: argparse.Namespace) -> int:
    """Holds the database all the while, so that no service starts and needs what is being removed."""
    settings = settings_of(arguments)
    if settings.url:
        raise CommandError("gc works on the home folder of this machine", ExitCode.USAGE)
    store = _open_at_rest(database_of(settings))
    try:
        found = [*_blobs(store), *find_files(settings.home, _needed(store))]
        found += _assets(settings, store, remove=not arguments.dry_run)
        rows = [{"id": g.where, "what": g.what, "size": g.size, "why": g.why} for g in found]
        print_rows(rows, output=arguments.output, columns=COLUMNS)
        if not arguments.dry_run:
            store.delete_unnamed_blobs([g.digest for g in found if g.digest])
            for garbage in found:
                garbage.remove()
    finally:
        store.close()
    verb = "would be" if arguments.dry_run else "were"
    say(f"{size_text(sum(g.size for g in found))} in {len(found)} places {verb} removed")
    return ExitCode.OK


def _open_at_rest(database: str | Path) -> SqlStore:
    """A service that works decides at any moment what is needed next."""
    try:
        return open_store(database, SystemClock())
    except InUseError as exc:
        raise CommandError(
            f"{exc}: end it with `tuner serve --stop` (trials run on), collect, and start it again", ExitCode.CONFLICT
        ) from exc


def _blobs(store: SqlStore) -> list[Garbage]:
    why = "no experiment, code revision or checkpoint names it"
    return [
        Garbage(what="blob", where=f"sha256:{digest}", size=size, why=why, digest=digest)
        for digest, size in sorted(store.unnamed_blobs().items())
    ]


def _assets(settings: Settings, store: SqlStore, *, remove: bool) -> list[Garbage]:
    """They are removed here and now: what others that share the store need may change at any moment."""
    assets = AssetStore(settings.asset_root, home=settings.home, lineage=store.lineage)
    try:
        found = collect(assets, store.assets, now=SystemClock().now(), remove=remove)
    except (StoreError, StorageError) as exc:
        say(f"careful: nothing more of the asset store is collected: {exc}")
        return []
    return [Garbage(what=one.what, where=one.where, size=one.size, why=one.why) for one in found]


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

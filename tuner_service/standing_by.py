"""A service that stands by, put together: the reads of its database, looked after once a second."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner_service.clock import SystemClock, new_experiment_id
from tuner_service.config import Settings, package_version
from tuner_service.service.access import Role, read_or_make_token
from tuner_service.storage.engine import open_queries, revision_of, services_of
from tuner_service.storage.tables import HEAD_REVISION

if TYPE_CHECKING:
    from fastapi import FastAPI

    from tuner_service.analyst.process import AnalystProcess
    from tuner_service.service.events import EventHub
    from tuner_service.service.tokens import Tokens
    from tuner_service.storage.sql_queries import SqlQueries

LOOK_S = 1.0

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class Reads:
    """What reads the database beside the active service."""

    app: FastAPI
    tokens: Tokens
    queries: SqlQueries
    analyst: AnalystProcess
    events: EventHub

    def close(self) -> None:
        """Nothing is asked of it any more."""
        self.events.close()
        self.analyst.close()
        self.queries.close()


class Standby:
    """Knows who is active and has what reads, from ``start`` to ``close``; a thread looks after both.

    Where the database cannot be read (it is away, has no tables yet, or those of another version) nothing is read.
    """

    def __init__(self, settings: Settings, *, url: str = "") -> None:
        """``url``: where this service listens."""
        self._settings = settings
        self._me = socket.gethostname(), os.getpid(), url
        self._active, self._trouble = "", ""
        self._reads: Reads | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._look_after, name="standing-by", daemon=True)

    def active(self) -> str:
        """The address of the active service, as it says; "" where there is none. At once."""
        return self._active

    def app(self) -> FastAPI | None:
        """What answers reads. At once."""
        reads = self._reads
        return None if reads is None else reads.app

    def start(self) -> None:
        self._look()
        self._thread.start()

    def close(self) -> None:
        """Safe to repeat."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()
        self._drop()

    def _look_after(self) -> None:
        while not self._closing.wait(LOOK_S):
            self._look()

    def _look(self) -> None:
        try:
            self._active = active_url(self._settings, but=self._me)
            if revision_of(self._settings.db) != HEAD_REVISION:
                self._drop()
            elif self._reads is None:
                self._reads = open_reads(self._settings)
            else:
                self._reads.tokens.look_again()
            self._trouble = ""
        except Exception as exc:  # noqa: BLE001  # whatever it was, who asks must not be sent to a service of long ago
            if str(exc) != self._trouble:
                logger.warning("standby_cannot_read", extra={"error": str(exc)})
            self._active, self._trouble = "", str(exc)

    def _drop(self) -> None:
        reads, self._reads = self._reads, None
        if reads is not None:
            reads.close()


def active_url(settings: Settings, *, but: tuple[str, int, str]) -> str:
    """Of the active service of the database, as it says there; "" where there is none.

    Nobody is sent to ``but``, this service itself, whose takeover is under way: host, process and address.
    """
    services = services_of(settings.db)
    return next((s.reached_at for s in services if s.role == "active" and (s.host, s.pid, s.url) != but), "")


def home_tokens(settings: Settings) -> dict[str, Role]:
    """By their hashes those of the home folder, made at the first start."""
    from tuner_service.service.tokens import hash_of

    files = {
        Role.ADMIN: settings.token_file,
        Role.READ_ONLY: settings.read_only_token_file,
        Role.AGENT: settings.agent_token_file,
    }
    return {hash_of(read_or_make_token(file)): role for role, file in files.items()}


def open_reads(settings: Settings) -> Reads:
    """StorageError where this program cannot read the database."""
    with contextlib.ExitStack() as stack:
        queries = open_queries(settings.db)
        stack.callback(queries.close)
        reads = _reads(settings, queries)
        stack.pop_all()
        return reads


def _reads(settings: Settings, queries: SqlQueries) -> Reads:
    from tuner_service.analyst.process import AnalystProcess
    from tuner_service.api.app import create_app
    from tuner_service.service.assets.asset_store import AssetStore
    from tuner_service.service.assets.catalogue import Assets
    from tuner_service.service.cluster import AgentHub
    from tuner_service.service.events import EventHub
    from tuner_service.service.experiments import Experiments, Services
    from tuner_service.service.node_files import NodeFiles
    from tuner_service.service.retention import Retention
    from tuner_service.service.sessions import Sessions
    from tuner_service.service.standing_by import NoCommands
    from tuner_service.service.tokens import Tokens
    from tuner_service.storage.access_rows import NoSessions, ReadTokens
    from tuner_service.storage.moved_rows import read_only_moved_rows
    from tuner_service.storage.sql_assets import read_only_assets

    rows, clock, runner, hub = read_only_assets(queries), SystemClock(), NoCommands(), AgentHub()
    tokens = Tokens(home=home_tokens(settings), store=ReadTokens(queries), clock=clock)
    assets = Assets(AssetStore.of(settings, rows.lineage), rows, clock)
    analyst = AnalystProcess(database=settings.db, log_format=settings.log_format)
    events = EventHub(queries=queries, lineage=rows.lineage, clock=clock)
    experiments = Experiments(
        runner=runner,
        queries=queries,
        clock=clock,
        hub=hub,
        assets=assets,
        new_id=new_experiment_id,
        variables=tuple(os.environ),
        knows_nodes=False,
    )
    services = Services(
        experiments=experiments,
        retention=Retention(
            queries=queries,
            rows=read_only_moved_rows(queries),
            clock=clock,
            submit=experiments.submit,
            wake=lambda: None,
        ),
        queries=queries,
        analyst=analyst,
        runner=runner,
        hub=hub,
        config=settings,
        tokens=tokens,
        assets=assets,
        node_files=NodeFiles.of(settings, queries, lineage=rows.lineage),
        sessions=Sessions(store=NoSessions(), tokens=tokens, clock=clock, lineage=rows.lineage),
        events=events,
        version=package_version(),
        pid=os.getpid(),
    )
    return Reads(app=create_app(services), tokens=tokens, queries=queries, analyst=analyst, events=events)

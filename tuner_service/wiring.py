"""The running service, put together: the only file that names concrete classes.

The agent and the server that workers are forked from are started first, and everything that takes long to import is
imported after them: on two cores they are ready when the service is.
"""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import secrets
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from trials.files import BY_UMASK, write_atomically
from trials.wire.log_files import kept_bounded
from trials.wire.log_format import configure_logging
from trials.wire.log_lines import LogForm
from tuner_service.clock import SystemClock, go_on_in_time, new_experiment_id
from tuner_service.config import Settings, package_version
from tuner_service.domain.errors import StorageError
from tuner_service.executors.local import LocalExecutor
from tuner_service.executors.ray.building import ray_nodes
from tuner_service.listening import guard_the_door, listening_socket, url_of
from tuner_service.local_service import database_told, process_mark
from tuner_service.service.access import read_or_make_token
from tuner_service.service.ending import Ending
from tuner_service.service.private import PRIVATE_UMASK, make_private, own_log, require_own
from tuner_service.service.warned import About
from tuner_service.tls import Certificate, certificate_of
from tuner_service.workers.forks import WorkerForks

if TYPE_CHECKING:
    from tuner_service.analyst.process import AnalystProcess
    from tuner_service.dispatcher.commands import WorkerEvent
    from tuner_service.executors.ray.executor import RayExecutor
    from tuner_service.service.archiving import Archivist
    from tuner_service.service.assets.catalogue import Assets
    from tuner_service.service.cluster import AgentHub
    from tuner_service.service.events import EventHub
    from tuner_service.service.experiments import Experiments, Services
    from tuner_service.service.node_files import NodeFiles
    from tuner_service.service.perform import Performer
    from tuner_service.service.runner import Runner
    from tuner_service.service.sessions import Sessions
    from tuner_service.service.tokens import Tokens
    from tuner_service.storage.sql_store import SqlStore
    from tuner_service.workers.pool import WorkerPool

ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
REMOVALS_END_S = 3.0  # for what nodes have sent of experiments that were just deleted; the rest is for `tuner gc`
ASSET_STORE_S = 10.0  # for the folder of assets to answer at the start; then it is gone on without
COLLECT_AFTER = 50_000  # new objects; by default 700, some ten times for each batch of reports

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class Core:
    """Everything but HTTP."""

    store: SqlStore
    clock: SystemClock
    hub: AgentHub
    runner: Runner
    executor: LocalExecutor
    ray: RayExecutor | None
    events: EventHub
    workers: WorkerPool
    node_files: NodeFiles
    commands: frozenset[str]  # by which people can be told, as the home names them


@contextlib.contextmanager
def running_core(
    settings: Settings, *, umask: int | None = None, url: str = "", waits: Callable[[], None] | None = None
) -> Iterator[Core]:
    """The dispatcher at work on the database, an agent beside it. Leaving it disturbs no trial.

    ``umask``: what trials have, where it is another than this process's. ``url``, ``waits``: as ``open_store``.
    """
    make_private(settings.home)
    with contextlib.ExitStack() as stack:
        executor = LocalExecutor(
            home=settings.home,
            service_file=settings.service_file,
            log_format=settings.log_format,
            umask=umask,
            token=read_or_make_token(settings.agent_token_file),
        )
        stack.callback(executor.close)
        if waits is None and settings.executor.has_local:
            executor.start()
        forks = WorkerForks(folder=settings.home / "workers", memory_bytes=settings.worker_memory)
        stack.callback(forks.close)
        forks.prepare()
        with _dispatching(settings, executor, forks, url=url, waits=waits) as core:
            yield core


@contextlib.contextmanager
def _dispatching(
    settings: Settings, executor: LocalExecutor, forks: WorkerForks, *, url: str, waits: Callable[[], None] | None
) -> Iterator[Core]:
    from tuner_service.executors.notifying import Notifier, read_notify_file
    from tuner_service.service.cluster import AgentHub
    from tuner_service.service.events import EventHub
    from tuner_service.service.node_files import NodeFiles
    from tuner_service.service.runner import Runner

    _import_json_tricks_alone()
    from tuner_service.workers.pool import WorkerPool

    clock = SystemClock()
    with contextlib.ExitStack() as stack:
        store = _opened_store(settings, clock, stack, url=url, waits=waits)
        if waits is not None and settings.executor.has_local:
            executor.start()
        events = stack.enter_context(closing(EventHub(queries=store.queries, lineage=store.lineage, clock=clock)))
        hub = AgentHub(dismiss=executor.dismiss, on_change=events.cluster_changed)
        go_on_in_time(clock, store.newest_at())
        folder, runners, wanted = settings.home / "workers", list[Runner](), read_notify_file(settings.home)
        notifier = stack.enter_context(closing(Notifier(settings.home, wanted)))

        def on_event(event: WorkerEvent) -> None:
            runners[0].submit(event)

        pool = WorkerPool(store=store, code=store.queries, folder=folder, now=clock.now, on_event=on_event, forks=forks)
        stack.callback(pool.close)
        files = NodeFiles.of(settings, store.queries, lineage=store.lineage)
        files.begin(now=clock.now())
        runner = Runner(
            store=store,
            clock=clock,
            incarnation=secrets.token_hex(4),
            perform=_performer(settings, files, stack, lineage=store.lineage, hub=hub, pool=pool).perform,
            forget_agents=hub.close_all,
            forget_workers=pool.stop_all,
            on_saved=notifier.look,
            on_committed=events.committed,
            service_lost_s=settings.service_lost_timeout,
        )
        runners.append(runner)
        ray = stack.enter_context(ray_nodes(settings, store.lineage, clock, runner))
        stack.callback(runner.close)
        notifier.begin(store.queries.experiments)
        runner.start()
        yield Core(
            store=store,
            clock=clock,
            hub=hub,
            runner=runner,
            executor=executor,
            ray=ray,
            events=events,
            workers=pool,
            commands=frozenset(wanted.commands),
            node_files=files,
        )


def _opened_store(
    settings: Settings, clock: SystemClock, stack: contextlib.ExitStack, *, url: str, waits: Callable[[], None] | None
) -> SqlStore:
    """The database, as its one active service, and the home folder as that of this database."""
    from tuner_service.storage.engine import open_store
    from tuner_service.storage.lock import HomeLock

    store = open_store(settings.db, clock, home=str(settings.home), url=url, waits=waits)
    stack.callback(store.close)
    stack.callback(HomeLock.acquire(settings.home, store.lineage).release)
    return store


def _performer(  # noqa: PLR0913  # what effects are about
    settings: Settings, files: NodeFiles, stack: contextlib.ExitStack, *, lineage: str, hub: AgentHub, pool: WorkerPool
) -> Performer:
    from tuner_service.service.assets.asset_store import staging_of
    from tuner_service.service.errands import Errands
    from tuner_service.service.perform import Performer

    removals = Errands("removals")
    stack.callback(removals.close, REMOVALS_END_S)
    return Performer(
        hub=hub,
        workers=pool,
        lineage=lineage,
        checkpoint_store=settings.checkpoint_store,
        asset_store=settings.asset_root,
        asset_staging=str(staging_of(settings.asset_root, home=settings.home, lineage=lineage)),
        asset_cache_bytes=settings.asset_cache,
        service_lost_s=settings.service_lost_timeout,
        removed=files.remove,
        removed_experiment=lambda experiment_id: removals.put(partial(files.remove_experiment, experiment_id)),
    )


def _import_json_tricks_alone() -> None:
    """Without NumPy, for which it has encoders of its own that are not used: 80 ms of a start, and 20 MB.

    Frames with NumPy values in them import it when they come. Only here: a worker runs code of users.
    """
    from tuner_service.workers.tricks import import_json_tricks

    import_json_tricks("numpy")


def serve(settings: Settings, *, is_standby: bool = False) -> int:
    """Run the service until a signal ends it. The exit code; trials run on.

    A standby waits until the active service of its database is gone.
    """
    log_to_standard_error(settings)
    certificate = certificate_of(settings)
    guard_the_door(settings)
    require_own(settings.home)
    umask = os.umask(PRIVATE_UMASK)  # what the service, the agent and the workers write is their owner's alone
    ending = Ending()
    for number in ENDING_SIGNALS:
        signal.signal(number, partial(_end, ending))
    with contextlib.ExitStack() as stack:
        stack.callback(gc.freeze)  # Python's last look through everything would be half a second that helps nobody
        stack.enter_context(kept_bounded([*own_log(settings), settings.home / "agent" / "agent.out"]))
        if is_standby:
            from tuner_service.api.standby import StandbyApp, StandbyServer
            from tuner_service.standing_by import Standby

            listening = stack.enter_context(listening_socket(settings))
            context = None if certificate is None else certificate.context
            # It may be renewed many times before this one takes over.
            looks = (lambda: None) if certificate is None else partial(_look_at, certificate)
            url = url_of(listening, is_tls=certificate is not None)
            standby = stack.enter_context(closing(Standby(settings, url=url)))
            app = StandbyApp(standby.active, standby.app, warnings=partial(_warnings, certificate))
            server = StandbyServer(listening, app, tls=context, looks=looks)
            stack.callback(server.stop)
            server.start()
            standby.start()
            core = stack.enter_context(running_core(settings, umask=umask, url=url, waits=_say_that_it_waits))
            server.stop()
            standby.close()
        else:
            core = stack.enter_context(running_core(settings, umask=umask))
            listening = stack.enter_context(listening_socket(settings))
        tokens = make_tokens(settings, core)
        _serve_http(settings, core, listening, tokens=tokens, certificate=certificate, ending=ending)
    return 0


def _say_that_it_waits() -> None:
    logger.info("standby_waits")
    # While there is time: what is needed to serve.
    from tuner_service.analyst import process  # noqa: F401
    from tuner_service.api import app, server  # noqa: F401
    from tuner_service.service import experiments, runner, sessions  # noqa: F401
    from tuner_service.workers import pool  # noqa: F401


def _end(ending: Ending, number: int, frame: FrameType | None) -> NoReturn:
    """Leave through every ``finally``; uvicorn ends its requests first, then raises the signal anew, for this.

    Python drops what is raised while it tidies an object away, so ``ending`` knows of it, too.
    """
    del number, frame
    ending.begin()
    raise SystemExit(0)


def _serve_http(  # noqa: PLR0913  # what `serve` has put together
    settings: Settings,
    core: Core,
    listening: socket.socket,
    *,
    tokens: Tokens,
    certificate: Certificate | None,
    ending: Ending,
) -> None:
    # Imported late: the agent and the workers of running experiments start meanwhile.
    from tuner_service.analyst.process import AnalystProcess
    from tuner_service.api.app import create_app
    from tuner_service.api.server import Server, http_config
    from tuner_service.service.sessions import Sessions

    assets = _open_assets(settings, core)
    analyst = AnalystProcess(database=settings.db, log_format=settings.log_format)
    sessions = Sessions(store=core.store, tokens=tokens, clock=core.clock, lineage=core.store.lineage)
    archivist = _archivist(settings, core, assets)
    services = _services(
        settings, core, assets, certificate, analyst=analyst, tokens=tokens, sessions=sessions, archivist=archivist
    )

    def ends() -> None:
        ending.begin()
        core.events.close()

    def listens() -> None:
        _spare_the_collector()
        announce(settings, core, url=url_of(listening, is_tls=certificate is not None))
        archivist.start()

    try:
        server = Server(
            http_config(create_app(services)),
            listens=listens,
            may_go_on=lambda: core.store.is_in_place() and not ending.has_begun,
            ends=ends,
            told=ending.begin,
            looks=partial(_look, core, certificate),
            tls=None if certificate is None else certificate.context,
        )
        server.run(sockets=[listening])
    finally:
        withdraw(settings)
        assets.close()
        archivist.close()
        if core.store.is_in_place():
            sessions.note_uses()
            tokens.note_uses()
        analyst.close()
    if not core.store.is_in_place():
        raise StorageError(core.store.why_not_in_place())


def _services(  # noqa: PLR0913  # likewise
    settings: Settings,
    core: Core,
    assets: Assets,
    certificate: Certificate | None,
    *,
    analyst: AnalystProcess,
    tokens: Tokens,
    sessions: Sessions,
    archivist: Archivist,
) -> Services:
    from tuner_service.service.experiments import Services
    from tuner_service.service.retention import Retention

    experiments = _experiments(core, assets)
    return Services(
        experiments=experiments,
        retention=Retention.beside(archivist, submit=experiments.submit),
        queries=core.store.queries,
        analyst=analyst,
        runner=core.runner,
        hub=core.hub,
        config=settings,
        tokens=tokens,
        assets=assets,
        node_files=core.node_files,
        sessions=sessions,
        events=core.events,
        version=package_version(),
        pid=os.getpid(),
        nodes=core.ray,
        workers=core.workers.count,
        warnings=partial(_warnings, certificate, core.store),
    )


def _warnings(certificate: Certificate | None, store: SqlStore | None = None) -> dict[str, str]:
    """``store``: of the active service alone."""
    of_certificate = "" if certificate is None else certificate.warning(SystemClock().now())
    found = {About.CERTIFICATE: of_certificate, About.DATABASE: "" if store is None else store.warning()}
    return {about.value: warning for about, warning in found.items() if warning}


def _experiments(core: Core, assets: Assets) -> Experiments:
    from tuner_service.service.experiments import Experiments

    return Experiments(
        assets=assets,
        runner=core.runner,
        queries=core.store.queries,
        clock=core.clock,
        hub=core.hub,
        new_id=new_experiment_id,
        collected=core.node_files.log_of,
        commands=core.commands,
        variables=tuple(os.environ),
        choice=core.workers.choice,
    )


def _look_at(certificate: Certificate) -> None:
    certificate.look()
    certificate.say(SystemClock().now())


def _look(core: Core, certificate: Certificate | None) -> None:
    core.hub.close_those_who_may_not()  # whose tokens have expired
    core.runner.commit_hangs()  # so that the log says it, though nobody asks
    if certificate is not None:
        _look_at(certificate)


def _archivist(settings: Settings, core: Core, assets: Assets) -> Archivist:
    from tuner_service.exports.archive_process import ArchiveProcess
    from tuner_service.service.archiving import Archivist

    return Archivist(
        queries=core.store.queries,
        rows=core.store.moved_rows,
        files=ArchiveProcess(settings.db),
        assets=assets,
        clock=core.clock,
        submit=core.runner.submit,
    )


def _open_assets(settings: Settings, core: Core) -> Assets:
    """The service works where their store does not: experiments without assets need none."""
    from tuner_service.service.assets.asset_store import AssetStore
    from tuner_service.service.assets.catalogue import Assets

    rows = core.store.assets
    store = AssetStore.of(settings, rows.lineage)
    store.open(list(rows.asset_ids()), wait_s=ASSET_STORE_S)
    return Assets(store, rows, core.clock)


def _spare_the_collector() -> None:
    """What was imported stays, and reports come in thousands of objects that do: neither is worth looking through."""
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER)


# ── who may come in, and where ───────────────────────────────────────────────────────────────────
def make_tokens(settings: Settings, core: Core) -> Tokens:
    """Those of the home folder, made at the first start, and those that people and agents were given."""
    from tuner_service.service.tokens import Tokens
    from tuner_service.standing_by import home_tokens

    node_key = "" if core.ray is None else core.ray.key()
    return Tokens(home=home_tokens(settings), store=core.store, clock=core.clock, node_key=node_key)


def announce(settings: Settings, core: Core, *, url: str) -> None:
    """Write where the service listens, atomically, and wake the agent."""
    content = {
        "url": url,
        "pid": os.getpid(),
        "process": process_mark(os.getpid()),
        "token_file": str(settings.token_file),
        "agent_token_file": str(settings.agent_token_file),
        "started_at": core.clock.now(),
        "version": package_version(),
        "database": database_told(settings.db),
    }
    write_atomically(str(settings.service_file), json.dumps(content).encode(), access=BY_UMASK)
    if not settings.port:
        with contextlib.suppress(OSError):  # the next start picks another one then
            write_atomically(str(settings.port_file), url.rpartition(":")[2].encode(), access=BY_UMASK)
    core.store.announce(url)
    core.executor.announce()
    if core.ray is not None:
        core.ray.announce(url, os.getpid())
    logger.info("listening", extra={"url": url})
    print(f"Tuner Service listens on {url} (home {settings.home})", flush=True)  # noqa: T201  # what `serve` says


def withdraw(settings: Settings) -> None:
    """Remove the address, unless another service has written its own meanwhile."""
    with contextlib.suppress(OSError, ValueError):
        if json.loads(settings.service_file.read_text()).get("pid") == os.getpid():
            settings.service_file.unlink()


# ── logging ─────────────────────────────────────────────────────────────────────────────────────
def log_to_standard_error(settings: Settings) -> None:
    form = LogForm(settings.log_format)
    configure_logging(logging.StreamHandler(sys.stderr), level=settings.log_level.upper(), form=form)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    logging.getLogger("alembic.runtime.plugins").setLevel(logging.WARNING)  # it names each of its own, at every start

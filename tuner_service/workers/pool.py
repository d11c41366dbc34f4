"""The workers of a service: one link for each experiment that wants one."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from trials.files import put_in_place, sync_tree
from tuner_service.dispatcher.commands import SnapshotTaken, WorkerEvent
from tuner_service.dispatcher.effects import Deliver, PingWorker, StartWorker
from tuner_service.dispatcher.items import Queue
from tuner_service.domain.errors import StorageError
from tuner_service.domain.experiment import ExperimentId
from tuner_service.ports import Store
from tuner_service.service.code import unpack_code
from tuner_service.workers.forks import WorkerForks
from tuner_service.workers.link import WorkerLink
from tuner_service.workers.messages import initialize
from tuner_service.workers.snapshots import makers, opened, sealed
from tuner_service.workers.starts import Starts

CLOSE_TIMEOUT_S = 3.0  # for all workers together; they also end by themselves when their input closes

logger = logging.getLogger(__name__)


class Code(Protocol):
    """Where the code of an experiment is read from."""

    def blob(self, digest: str) -> bytes | None: ...


@dataclass(kw_only=True)
class WorkerPool:
    """Implements ``ports.Workers``.

    What a start takes, reads of rows, code that is unpacked, a process, is done by threads of the pool, a few starts at
    a time; what is delivered meanwhile waits in the link. ``on_event`` must not wait for the caller of these
    methods: ``start`` itself calls it where no thread can be had.
    """

    store: Store
    code: Code
    folder: Path
    now: Callable[[], float]
    on_event: Callable[[WorkerEvent], None]
    forks: WorkerForks
    _starts: Starts = field(default_factory=Starts)
    _drafts: set[Path] = field(default_factory=set)  # of code that is being unpacked
    _changing: threading.Lock = field(default_factory=threading.Lock)  # held while links come and go
    _links: dict[ExperimentId, tuple[int, WorkerLink]] = field(default_factory=dict)
    _ending: list[WorkerLink] = field(default_factory=list)
    _refused: dict[tuple[ExperimentId, Queue], int] = field(default_factory=dict)  # lines of snapshots of no use

    def start(self, order: StartWorker) -> None:
        self.stop(order.experiment_id)
        link = WorkerLink(
            experiment_id=order.experiment_id,
            generation=order.generation,
            log_path=self.folder / f"{order.experiment_id}.log",
            now=self.now,
            on_event=partial(self._hear, order),
            on_refused=partial(self._refuse, order.experiment_id),
            reports_on=partial(self.store.reports_on, order.experiment_id),
            spawn=self.forks.take,
        )
        with self._changing:
            self._links[order.experiment_id] = (order.generation, link)
        try:
            self._starts.put(lambda: self._begin(link, order))
        except RuntimeError as exc:  # there is no thread to be had
            self._give_up(link, order, exc)

    def _begin(self, link: WorkerLink, order: StartWorker) -> None:
        if link.is_closed:
            return
        link.begin()
        try:
            self._start(link, order)
        except Exception as exc:  # noqa: BLE001  # whatever it was: said as a death, so that another one is started
            self._give_up(link, order, exc)

    def _give_up(self, link: WorkerLink, order: StartWorker, exc: Exception) -> None:
        logger.error("worker_not_started", exc_info=exc)
        with self._changing:
            if self._links.get(order.experiment_id) == (order.generation, link):
                self._drop(order.experiment_id)
        link.fail(exc)

    def _start(self, link: WorkerLink, order: StartWorker) -> None:
        spec, cursors = order.spec, {Queue.TUNER: order.tuner_cursor, Queue.ASSESSOR: order.assessor_cursor}
        snapshots, history = {}, {}
        for queue, cursor in cursors.items():
            after = 0
            if (found := self._snapshot(order, queue)) is not None and found[0] <= cursor:
                snapshots[queue], after = found, found[0]
            history[queue] = self.store.history(order.experiment_id, queue, after=after, upto=cursor)
        code_folder = self._code_folder(order)
        command = initialize(order.experiment_id, spec, code_folder=code_folder, workers=spec.workers)
        if not link.is_closed:  # nobody has ordered another one meanwhile
            link.start(command, snapshots=snapshots, history=history)

    # ── snapshots ───────────────────────────────────────────────────────────────────────────────
    def _snapshot(self, order: StartWorker, queue: Queue) -> tuple[int, str] | None:
        """Its line and what it holds; None where there is none of use to the algorithms of ``order``."""
        stored = self.store.snapshot(order.experiment_id, queue)
        if stored is None or self._refused.get((order.experiment_id, queue)) == stored.line:
            return None
        memory = opened(stored.state, makers(order.spec)[queue])
        return None if memory is None else (stored.line, memory)

    def _hear(self, order: StartWorker, event: WorkerEvent) -> None:
        if isinstance(event, SnapshotTaken):
            self._refused.pop((order.experiment_id, event.queue), None)  # it takes the place of that one
            event = replace(event, state=sealed(event.state, makers(order.spec)[event.queue]))
        self.on_event(event)

    def _refuse(self, experiment_id: ExperimentId, queue: Queue, line: int) -> None:
        """The algorithm could not load it: the next worker, which follows at once, is told the whole story."""
        self._refused[experiment_id, queue] = line

    # ── what is told to them ────────────────────────────────────────────────────────────────────
    def deliver(self, order: Deliver) -> None:
        generation, link = self._links.get(order.experiment_id, (0, None))
        if link is not None and generation == order.generation:
            link.tell(order.queue, order.item)

    def ping(self, order: PingWorker) -> None:
        with contextlib.suppress(RuntimeError):  # without a thread to spare it is tried again with the next one
            self._starts.look()
        generation, link = self._links.get(order.experiment_id, (0, None))
        if link is not None and generation == order.generation:
            link.ping()

    def count(self) -> int:
        """How many experiments have a worker, about now; any thread."""
        return len(self._links)

    def choice(self, experiment_id: ExperimentId) -> str:
        """What ``auto`` does now and why, as far as it has said; any thread."""
        _, link = self._links.get(experiment_id, (0, None))
        return "" if link is None else link.choice

    def stop(self, experiment_id: ExperimentId) -> None:
        """It is killed, not asked: everything it knows can be folded again."""
        with self._changing:
            link = self._drop(experiment_id)
        if link is not None:
            link.kill()

    def _drop(self, experiment_id: ExperimentId) -> WorkerLink | None:
        _, link = self._links.pop(experiment_id, (0, None))
        if link is not None:
            self._ending = [old for old in self._ending if not old.join(0)]
            self._ending.append(link)
        return link

    def stop_all(self) -> None:
        """Likewise each one that there is; others can be started."""
        for experiment_id in list(self._links):
            self.stop(experiment_id)

    def close(self) -> None:
        self.stop_all()
        self._starts.close(CLOSE_TIMEOUT_S)
        for link in self._ending:
            link.join(CLOSE_TIMEOUT_S / len(self._ending))
        self.forks.close()

    # ── code of users' classes ──────────────────────────────────────────────────────────────────
    def _code_folder(self, order: StartWorker) -> str | None:
        """The experiment's code, unpacked once per digest; None where no class of a user needs it."""
        digest = order.spec.algorithm_code_digest
        if digest is None:
            return None
        folder = self.folder / "code" / digest
        if not folder.exists():
            data = self.code.blob(digest)
            if data is None:
                raise StorageError(f"the code sha256:{digest} of experiment {order.experiment_id} is not stored")
            draft = folder.with_name(f"{digest}.{os.getpid()}-{threading.get_native_id()}")
            found = list(folder.parent.glob(f"{digest}.*"))
            with self._changing:
                left = [one for one in found if one not in self._drafts]
                self._drafts.add(draft)
            try:
                for one in left:  # by a service that was killed
                    shutil.rmtree(one, ignore_errors=True)
                unpack_code(data, draft)
                # What is found under this name is never looked at again: after a power loss it must not be empty files.
                sync_tree(str(draft))
                _put_in_place_once(draft, folder)
            finally:
                shutil.rmtree(draft, ignore_errors=True)
                with self._changing:
                    self._drafts.discard(draft)
        return str(folder)


def _put_in_place_once(draft: Path, folder: Path) -> None:
    """Unless another start has done so meanwhile: both have unpacked the same."""
    try:
        put_in_place(str(draft), str(folder))
    except OSError:
        if not folder.exists():
            raise

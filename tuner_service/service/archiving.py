"""Metrics of ended experiments on their way out of the database, and back: one thread, one experiment at a time.

What is to be done stands in the experiment's row (``Archive.phase``), so that a service that was killed goes on with
it; each phase may be begun again from its start:

    writing     the rows are written into a file, which is read again and compared, and becomes an asset of the store;
                only with that does the experiment name it
    clearing    the rows that the file holds are removed, some at a time
    restoring   the file is compared, its rows are added behind the last that is there, and all are compared
    removing    the rows of an experiment that is being deleted are removed, some at a time, and then it

Between two steps as much time passes as the step took, so that what else is committed waits for one step at most.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from trials.stores import StoreError
from trials.wire.manifests import AssetFile, pieces_of, write_manifest
from tuner_service.archive_ports import ArchivedFile, ArchiveFiles, MetricKey, MovedMetrics, MovedRows
from tuner_service.dispatcher.commands import ArchiveMade, ArchiveMoved, CheckpointsDropped, Command, ExperimentDeleted
from tuner_service.domain.archives import UNDER_WAY, Archive, ArchivePhase
from tuner_service.domain.assets import AssetKind
from tuner_service.domain.errors import ConflictError, NotFoundError, StorageError, TunerServiceError, UnavailableError
from tuner_service.domain.experiment import Experiment, ExperimentId
from tuner_service.ports import Clock, Queries
from tuner_service.service.assets.asset_store import DRAFT
from tuner_service.service.assets.catalogue import Assets
from tuner_service.service.assets.uploads import NewAsset

MAX_NUMBER = 2**62  # beyond every trial
CLEARED_ROWS = 500  # removed in one transaction
AGAIN_S = 30.0  # after something could not be done
STOP_AGAIN_S = 0.2  # after which a thread that still works is told once more to stop giving back
FILE = "metrics.parquet"
COPY_BYTES = 4 << 20

logger = logging.getLogger(__name__)


class Submit(Protocol):
    def __call__(self, command: Command) -> Future[None]: ...


@dataclass(kw_only=True)
class Archivist:
    """``submit`` as ``Runner.submit``."""

    queries: Queries
    rows: MovedRows
    files: ArchiveFiles
    assets: Assets
    clock: Clock
    submit: Submit
    cleared_rows: int = CLEARED_ROWS
    _awake: threading.Event = field(default_factory=threading.Event)
    _closing: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    # ── from other threads ──────────────────────────────────────────────────────────────────────
    def start(self) -> None:
        """Go on with what is under way."""
        self._thread = threading.Thread(target=self._run, name="archivist", daemon=True)
        self._thread.start()
        self.wake()

    def wake(self) -> None:
        """Something is to be done; never blocks."""
        self._awake.set()

    def close(self) -> None:
        """Ends at the next step. What is under way goes on with the next service."""
        self._closing.set()
        self._awake.set()
        self.files.close()
        while self._thread is not None and self._thread.is_alive():
            self.rows.stop_giving_back()
            self._thread.join(STOP_AGAIN_S)

    # ── the thread ──────────────────────────────────────────────────────────────────────────────
    def _run(self) -> None:
        again: float | None = None
        while True:
            self._awake.wait(again)
            self._awake.clear()
            if self._closing.is_set():
                return
            again = None if self.work() else AGAIN_S

    def work(self) -> bool:
        """Everything that is under way, one after the other. False where something has to be tried again."""
        try:
            pending = [e for e in self.queries.experiments() if e.archive is not None and e.archive.phase in UNDER_WAY]
            pending.sort(key=lambda e: e.archive.at if e.archive is not None else 0.0)
            is_done = [self._is_worked_on(experiment) for experiment in pending]
            self._give_back()
        except _EndedError:
            return True
        except Exception:  # whatever it was, the rows say what is to be done
            logger.exception("archiving_failed")
            return False
        return all(is_done)

    def _is_worked_on(self, experiment: Experiment) -> bool:
        """False where it has to be tried again: what is wrong with one keeps no other one waiting."""
        try:
            with suppress(NotFoundError, ConflictError):  # deleted or moved on meanwhile
                self._work_on(experiment)
        except (_EndedError, UnavailableError):  # nothing else can be done now either
            raise
        except Exception:
            logger.exception("archiving_failed", extra={"experiment": experiment.id})
            return False
        return True

    def _work_on(self, experiment: Experiment) -> None:
        archive = experiment.archive
        while archive is not None and archive.phase in UNDER_WAY:
            self._go_on()
            match archive.phase:
                case ArchivePhase.WRITING:
                    self._write(experiment, archive)
                case ArchivePhase.CLEARING:
                    self._clear(_moved(experiment, archive))
                    self._move(experiment.id, ArchivePhase.ARCHIVED)
                case ArchivePhase.RESTORING:
                    self._restore(experiment, archive)
                case _:
                    self._remove(experiment.id)
                    return
            found = self.queries.experiment(experiment.id)
            archive = None if found is None else found.archive

    # ── out ─────────────────────────────────────────────────────────────────────────────────────
    def _write(self, experiment: Experiment, archive: Archive) -> None:
        try:
            made = self._made(experiment, archive)
        except (TunerServiceError, StoreError, OSError) as exc:
            self._go_on()
            logger.warning("archive_not_made", extra={"experiment": experiment.id, "error": str(exc)})
            self._move(experiment.id, ArchivePhase.FAILED, message=str(exc))
        else:
            self._move(experiment.id, ArchivePhase.CLEARING, made=made)

    def _made(self, experiment: Experiment, archive: Archive) -> ArchiveMade:
        moved = _moved(experiment, archive)
        self.files.require()
        staging = self.assets.store.staging
        self.assets.store.settle_staging()  # later, it would take away what is staged here
        staging.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = staging / f"{DRAFT}{secrets.token_hex(8)}"
        try:
            if not moved:
                raise StorageError("every trial of it waits to be gone on with; nothing can be archived")
            written = self.files.write(moved, draft)
            if not written.rows:
                raise StorageError("it has no metrics that can be archived")
            asset = self._stored(written, draft)
        finally:
            draft.unlink(missing_ok=True)
        return ArchiveMade(asset=asset, rows=written.rows, digest=written.digest, size=written.size)

    def _stored(self, written: ArchivedFile, draft: Path) -> str:
        """As an asset of one file; whole in the store, with its row, when this returns."""
        file = AssetFile(path=FILE, size=written.size, pieces=written.pieces)
        listed = write_manifest([file])
        manifest = AssetFile(path="manifest", size=len(listed), pieces=pieces_of(listed))
        staging = self.assets.store.staging
        draft.chmod(0o400)
        draft.replace(staging / file.digest)
        listing = staging / f"{DRAFT}{secrets.token_hex(8)}"
        listing.write_bytes(listed)
        listing.replace(staging / manifest.digest)
        new = NewAsset(manifest=manifest, kind=AssetKind.ARCHIVE, name=None, kept=False)
        self.assets.uploads.commit(new)
        return manifest.digest

    def _clear(self, moved: Sequence[MovedMetrics]) -> None:
        for one in moved:
            after: MetricKey = (0, 0, 0)
            while True:
                with self._step():
                    portion = self.rows.clear(one, after=after, limit=self.cleared_rows)
                if not portion.size:
                    break
                after = portion.last

    def _remove(self, experiment_id: ExperimentId) -> None:
        """Some rows at a time, and the experiment's own last: whoever is killed in between goes on here.

        Its own row says that it is being removed, so that nothing else can be done with it until then.
        """
        self._clear([MovedMetrics(experiment_id, 1, MAX_NUMBER)])
        while True:
            with self._step():
                found = self.rows.checkpoints(experiment_id, limit=self.cleared_rows)
                if not found:
                    break
                at = self.clock.now()
                dropped = CheckpointsDropped(at=at, experiment_id=experiment_id, checkpoints=tuple(found))
                self.submit(dropped).result()
        removed = 1
        while removed:
            with self._step():
                removed = self.rows.remove(experiment_id, limit=self.cleared_rows)
        self.submit(ExperimentDeleted(at=self.clock.now(), experiment_id=experiment_id)).result()

    def _give_back(self) -> None:
        """The room that rows had, a little at a time, until there is something else to do.

        Also at a start: the service before may have ended in the midst of it.
        """
        try:
            more = True
            while more and not self._awake.is_set():
                with self._step():
                    more = self.rows.give_back()
        except (UnavailableError, StorageError) as exc:
            self._go_on()
            logger.warning("room_not_given_back", extra={"error": str(exc)})

    # ── back ────────────────────────────────────────────────────────────────────────────────────
    def _restore(self, experiment: Experiment, archive: Archive) -> None:
        try:
            self._put_back(experiment, archive)
        except ConflictError:  # it is being deleted, which is next
            raise
        except (TunerServiceError, StoreError, OSError) as exc:
            self._go_on()
            logger.warning("archive_not_restored", extra={"experiment": experiment.id, "error": str(exc)})
            self._move(experiment.id, ArchivePhase.ARCHIVED, message=f"not put back: {exc}")
        else:
            self._move(experiment.id, None)

    def _put_back(self, experiment: Experiment, archive: Archive) -> None:
        self.files.require()
        moved = _moved(experiment, archive)
        last = max((key for one in moved if (key := self.rows.last_restored(one))), default=(0, 0, 0))
        with self._file_of(archive) as file:
            for rows in self.files.read(file, rows=archive.rows, digest=archive.digest, after=last):
                with self._step():
                    self._require_wanted(experiment.id)
                    self.rows.restore(experiment.id, rows)
        count, digest = self.files.compare(moved)
        if (count, digest) != (archive.rows, archive.digest):
            raise StorageError(f"the database reads {count} rows with another digest than the {archive.rows} archived")

    def _require_wanted(self, experiment_id: ExperimentId) -> None:
        """ConflictError where it was deleted meanwhile."""
        found = self.queries.experiment(experiment_id)
        if found is None or found.archive is None or found.archive.phase is not ArchivePhase.RESTORING:
            raise ConflictError(f"the metrics of experiment {experiment_id} are not wanted back any more")

    @contextmanager
    def _file_of(self, archive: Archive) -> Iterator[Path]:
        """The file on this machine; a store behind a URL is copied from."""
        store = self.assets.store
        (file,) = list(store.manifest(archive.asset or ""))
        here = store.path_of(file.digest)
        if here is not None:
            if not here.exists():
                raise StorageError(f"the asset store has no file {file.digest} of asset sha256:{archive.asset}")
            yield here
            return
        draft = store.staging / f"{DRAFT}{secrets.token_hex(8)}"
        try:
            with draft.open("xb") as copy:
                for offset in range(0, file.size, COPY_BYTES):
                    copy.write(store.read(file.digest, offset=offset, length=min(COPY_BYTES, file.size - offset)))
            yield draft
        finally:
            draft.unlink(missing_ok=True)

    # ── steps ───────────────────────────────────────────────────────────────────────────────────
    @contextmanager
    def _step(self) -> Iterator[None]:
        """Then a pause as long as it took."""
        self._go_on()
        begun = time.monotonic()
        yield
        self._closing.wait(time.monotonic() - begun)

    def _go_on(self) -> None:
        if self._closing.is_set():
            raise _EndedError

    def _move(
        self,
        experiment_id: ExperimentId,
        phase: ArchivePhase | None,
        *,
        made: ArchiveMade | None = None,
        message: str = "",
    ) -> None:
        at = self.clock.now()
        self.submit(ArchiveMoved(at=at, experiment_id=experiment_id, phase=phase, made=made, message=message)).result()


class _EndedError(Exception):
    """The service ends."""


def _moved(experiment: Experiment, archive: Archive) -> list[MovedMetrics]:
    return [
        MovedMetrics(experiment.id, first, last, archive.upto)
        for first, last in archive.numbers(experiment.next_number - 1)
    ]

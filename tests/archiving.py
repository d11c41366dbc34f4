"""A service without HTTP that archives: its store, its runner and its archivist, on a database of whichever kind."""

from __future__ import annotations

import io
import json
import math
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import event, select

from tests.builders import (
    EXPERIMENT_ID,
    START,
    StillClock,
    a_checkpoint,
    a_line,
    a_metric,
    a_trial,
    an_attempt,
    an_experiment,
)
from tests.contract.stores import changes_for
from tuner_service.dispatcher.changes import Changes, MetricRow
from tuner_service.dispatcher.commands import ArchiveMoved
from tuner_service.domain.archives import Archive, ArchivePhase
from tuner_service.domain.errors import StorageError
from tuner_service.domain.experiment import ExperimentStatus
from tuner_service.domain.trial import AttemptStatus, Trial, TrialStatus
from tuner_service.exports import archive as archive_work
from tuner_service.exports.archive_process import ArchiveProcess
from tuner_service.service.archiving import Archivist
from tuner_service.service.assets.asset_store import AssetStore
from tuner_service.service.assets.catalogue import Assets
from tuner_service.service.runner import Runner
from tuner_service.storage import tables
from tuner_service.storage.engine import open_store
from tuner_service.storage.sql_store import SqlStore

PHASES = {
    "archive": ArchivePhase.WRITING,
    "unarchive": ArchivePhase.RESTORING,
    "remove": ArchivePhase.REMOVING,
}
CLEARED_ROWS = 60
ODD = (math.nan, math.inf, -math.inf, -0.0, 5e-324, 1.7976931348623157e308, 0.1 + 0.2, 1e-7)


@dataclass
class Life:
    """Of a service: from a start to its end."""

    store: SqlStore
    runner: Runner
    archivist: Archivist
    assets: Assets

    def ask(self, verb: str, experiment_id: str = EXPERIMENT_ID) -> None:
        self.runner.submit(ArchiveMoved(at=START, experiment_id=experiment_id, phase=PHASES[verb])).result()

    def archive(self, experiment_id: str = EXPERIMENT_ID) -> Archive | None:
        found = self.store.queries.experiment(experiment_id)
        assert found is not None
        return found.archive


class WithoutProcess(ArchiveProcess):
    """Does the work of the archive's process here: for lives that are short, and many."""

    def _lines(self, order: dict[str, Any]) -> Iterator[Any]:
        told = io.StringIO()
        try:
            last = archive_work._carried_out(order, told)
        except ValueError as error:
            raise StorageError(str(error)) from error
        yield from [*map(json.loads, told.getvalue().splitlines()), last]


@contextmanager
def a_life(
    database: str | Path, home: Path, *, files: Callable[[str], ArchiveProcess] = ArchiveProcess
) -> Iterator[Life]:
    """``work`` of the archivist is called by who has it; nothing else is done by itself."""
    clock = StillClock()
    with closing(open_store(database, clock)) as store:
        assets = Assets(AssetStore(str(home / "assets"), home=home, lineage=store.lineage), store.assets, clock)
        runner = Runner(store=store, clock=clock, incarnation="t", perform=lambda _: None, forget_agents=lambda: None)
        runner.start()
        archivist = Archivist(
            queries=store.queries,
            rows=store.moved_rows,
            files=files(str(database) if "://" in str(database) else f"sqlite:///{database}"),
            assets=assets,
            clock=clock,
            submit=runner.submit,
            cleared_rows=CLEARED_ROWS,
        )
        try:
            yield Life(store=store, runner=runner, archivist=archivist, assets=assets)
        finally:
            archivist.close()
            runner.close()


def fill(store: SqlStore, *, trials: int = 6, reports: int = 50, experiment_id: str = EXPERIMENT_ID) -> None:
    """An experiment that has ended, with metrics of every kind that there are."""
    experiment = an_experiment(
        id=experiment_id,
        status=ExperimentStatus.COMPLETED,
        next_line=10 + trials,
        next_number=trials + 1,
        running_since=None,
        ended_at=START + 5,
        counts={"succeeded": trials},
        tuner_cursor=9 + trials,
        assessor_cursor=9 + trials,
    )
    found = [_trial(experiment_id, number) for number in range(1, trials + 1)]
    metrics = [_metric(experiment_id, n, s) for n in range(1, trials + 1) for s in range(1, reports + 1)]
    ended = [
        an_attempt(experiment_id=experiment_id, number=trial.number, status=AttemptStatus.EXITED) for trial in found
    ]
    blobs = {blob_of(trial.number): str(trial.number).encode() for trial in found}
    kept = [
        a_checkpoint(experiment_id=experiment_id, number=trial.number, digest=blob_of(trial.number), inline=True)
        for trial in found
    ]
    lines = tuple(a_line(experiment_id=experiment_id, line=line) for line in range(1, 10 + trials))
    store.commit(changes_for(*found, experiment=experiment, lines=lines, metrics=metrics, blobs=blobs))
    store.commit(Changes(attempts={attempt.key: attempt for attempt in ended}, checkpoints=kept))


def blob_of(number: int) -> str:
    """Which both experiments name."""
    return f"{number:064x}"


def _trial(experiment_id: str, number: int) -> Trial:
    return a_trial(
        experiment_id=experiment_id,
        number=number,
        status=TrialStatus.SUCCEEDED,
        told_line=5,
        final={"loss": 0.5},
        value=0.5,
        ended_at=START + 1,
    )


def _metric(experiment_id: str, number: int, sequence: int) -> MetricRow:
    value = ODD[sequence % len(ODD)]
    return a_metric(
        experiment_id=experiment_id,
        number=number,
        sequence=sequence,
        line=number + 1,
        step=None if sequence % 10 == 0 else sequence,
        values={"loss": value, "größe \x00": -value},
        first=sequence % 3 != 0,
        objective=None if sequence % 10 == 0 else value,
        at=START + sequence / 7,
    )


def rows_of(store: SqlStore, experiment_id: str = EXPERIMENT_ID) -> list[str]:
    """Every column of every metric, as something that compares NaN as equal."""
    m = tables.metrics
    query = select(m).where(m.c.experiment_id == experiment_id).order_by(m.c.number, m.c.attempt, m.c.sequence)
    with store.queries.reading() as connection:
        return [repr(tuple(row)) for row in connection.execute(query)]


def one_life(database: str, home: str, experiment_id: str, verb: str, *, kill_at: int) -> None:
    """Of a process of its own, which kills itself at its ``kill_at``-th statement."""
    count = 0
    with a_life(database, Path(home), files=WithoutProcess) as life:
        engine = life.store._writer.engine

        def counted(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
            nonlocal count
            count += 1
            if count == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

        event.listen(engine, "before_cursor_execute", counted)
        event.listen(engine, "commit", lambda connection: counted(connection, None, "COMMIT"))
        found = life.store.queries.experiment(experiment_id)
        phase = None if found is None or found.archive is None else found.archive.phase
        if found is not None and phase in {None, ArchivePhase.ARCHIVED}:
            life.ask(verb, experiment_id)
        assert life.archivist.work()

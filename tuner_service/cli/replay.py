"""doctor --replay: are an experiment's suggestions and stops what its algorithms say of the same history?"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tuner_service.cli.context import LAST, database_of
from tuner_service.cli.output.exit_codes import CommandError, ExitCode, say
from tuner_service.cli.output.tables import Column, Row, print_rows
from tuner_service.clock import SystemClock
from tuner_service.config import Settings
from tuner_service.dispatcher.items import Queue
from tuner_service.domain.experiment import Experiment
from tuner_service.domain.trial import TrialStatus
from tuner_service.service.code import unpack_code
from tuner_service.storage.engine import open_queries
from tuner_service.storage.sql_queries import SqlQueries
from tuner_service.workers.messages import initialize
from tuner_service.workers.replay import Progress, RecordedTrial, Replay

PROGRESS_S = 2.0  # between two lines of progress
NEVER = 2**31  # lines between two snapshots, which a replay has no use for
COLUMNS = (
    Column(title="QUEUE", text=lambda r: r["id"]),
    Column(title="STATE", text=lambda r: r["state"]),
    Column(title="LINES", text=lambda r: str(r["lines"]), right=True),
    Column(title="COMPARED", text=lambda r: str(r["compared"]), right=True),
    Column(title="DETAIL", text=lambda r: r["detail"], width=2_000),
)


def replay(settings: Settings, reference: str, *, output: str) -> int:
    """Reads the database only, beside a running service or without one. 0: the same, 1: something differs."""
    with open_queries(database_of(settings)) as queries, tempfile.TemporaryDirectory(prefix="tuner-replay-") as folder:
        experiment = _resolve(queries, reference)
        rows = list(_replayed(queries, experiment, Path(folder)))
    print_rows(rows, output=output, columns=COLUMNS)
    return ExitCode.OK if all(row["state"] == "same" for row in rows) else ExitCode.FAILURE


def _resolve(queries: SqlQueries, reference: str) -> Experiment:
    """As everywhere: an id, a name, a unique prefix, or @last."""
    experiments = list(queries.experiments())
    found = [e for e in experiments if e.id == reference] or experiments[: reference == LAST]
    found = found or [e for e in experiments if e.spec.name == reference]
    found = found or [e for e in experiments if reference and e.id.startswith(reference)]
    if not found:
        raise CommandError(f"there is no experiment {reference!r} in the database", ExitCode.NOT_FOUND)
    if len(found) > 1:
        named = ", ".join(e.id for e in found[:5])
        raise CommandError(f"{reference!r} names {len(found)} experiments: {named}; use an id", ExitCode.USAGE)
    return found[0]


def _replayed(queries: SqlQueries, experiment: Experiment, folder: Path) -> Iterator[Row]:
    spec = experiment.spec
    code_folder = _unpacked_code(queries, experiment, folder)
    command = initialize(experiment.id, spec, code_folder=code_folder, snapshot_every=NEVER, checks_space=False)
    with Replay(command, folder=folder, timeout_s=spec.algorithm_timeout_s, now=SystemClock().now) as asked:
        upto = experiment.tuner_cursor
        items = queries.history(experiment.id, Queue.TUNER, after=0, upto=upto)
        row = _row(Queue.TUNER, _follow(Queue.TUNER, asked.tuner(items), upto))
        if row["state"] != "same" and spec.workers > 1:
            row["detail"] += f" (with workers: {spec.workers}, what was computed side by side depends on timing)"
        yield row
        if spec.assessor is not None:
            upto = experiment.assessor_cursor
            judged = queries.history(experiment.id, Queue.ASSESSOR, after=0, upto=upto)
            steps = asked.assessor(judged, lambda number: _recorded(queries, experiment, number))
            yield _row(Queue.ASSESSOR, _follow(Queue.ASSESSOR, steps, upto))


def _follow(name: Queue, steps: Iterator[Progress], upto: int) -> Progress:
    progress, said_at = Progress(), time.monotonic()
    for progress in steps:
        if time.monotonic() - said_at >= PROGRESS_S:
            said_at = time.monotonic()
            say(f"{name.value}: {progress.lines} lines folded, the journal has {upto}")
    return progress


def _row(name: Queue, progress: Progress) -> Row:
    row: Row = {"id": name.value, "state": "same", "lines": progress.lines, "compared": progress.compared}
    if progress.difference is not None:
        found = progress.difference
        text = f"journal line {found.line}: {found.message}" if found.line else found.message
        return {**row, "state": "DIFFERS", "line": found.line, "detail": text, "traceback": found.detail}
    late = f"; {progress.late_stops} stops were advised after the trial had ended" if progress.late_stops else ""
    what = "suggestions" if name is Queue.TUNER else "batches of reports"
    return {**row, "line": None, "detail": f"all {progress.compared} {what} have the same answer{late}"}


def _recorded(queries: SqlQueries, experiment: Experiment, number: int) -> RecordedTrial:
    """A trial that was given up, or in an experiment without fixed decisions had ended, missed the stop."""
    trial = queries.trial(experiment.id, number)
    if trial is None:
        return RecordedTrial(stop=None, may_miss_stop=True)
    stop = None
    if trial.stopped_at_line is not None and trial.stopped_at_sequence is not None:
        stop = (trial.stopped_at_line, trial.stopped_at_sequence)
    given_up = trial.status not in {TrialStatus.SUCCEEDED, TrialStatus.EARLY_STOPPED, TrialStatus.RUNNING}
    return RecordedTrial(stop=stop, may_miss_stop=given_up or not experiment.spec.deterministic)


def _unpacked_code(queries: SqlQueries, experiment: Experiment, folder: Path) -> str | None:
    """The newest code revision, where a class of a user needs it."""
    digest = experiment.spec.algorithm_code_digest
    if digest is None:
        return None
    data = queries.blob(digest)
    if data is None:
        raise CommandError(f"the code sha256:{digest} of experiment {experiment.id} is not stored", ExitCode.NOT_FOUND)
    target = folder / "code"
    unpack_code(data, target)
    return str(target)

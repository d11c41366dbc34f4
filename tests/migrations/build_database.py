"""Makes the stored database of the newest revision: `python -m tests.migrations.build_database`.

Run it once for every release that has a revision of its own, before the release; older files are never made again.
"""

from __future__ import annotations

import math
from contextlib import closing
from pathlib import Path

from tests.builders import START, StillClock, a_checkpoint, a_line, a_metric, a_spec, a_trial, an_attempt, an_experiment
from trials.wire.plain import to_plain
from trials.wire.records import ExitCause, ExitRecord
from tuner_service.dispatcher.changes import (
    Changes,
    JournalLine,
    SearchSpaceRevision,
    StoredIdempotencyKey,
    StoredSnapshot,
)
from tuner_service.dispatcher.items import Queue
from tuner_service.domain.experiment import AlgorithmSpec
from tuner_service.domain.resources import Holding, QuotaGroup
from tuner_service.domain.trial import AttemptStatus, Trial, TrialOutcome, TrialStatus
from tuner_service.ports import StoredToken
from tuner_service.storage.engine import open_store
from tuner_service.storage.tables import HEAD_REVISION

FOLDER = Path(__file__).parent / "databases"
CODE = b"the code of the experiment"
WEIGHTS = b"the weights of trial 2"

EXPERIMENT = an_experiment(
    spec=a_spec(assessor=AlgorithmSpec(name="median"), trial={"code_digest": "c" * 64}),
    next_line=8,
    next_number=4,
    tuner_cursor=4,
    assessor_cursor=3,
    best_number=1,
    best_value=-math.inf,
    counts={"succeeded": 1, "running": 1, "failed": 1},
)
TOLD = a_trial(number=1, status=TrialStatus.SUCCEEDED, decided_line=1, told_line=4, value=-math.inf, attempts=1)
RUNNING = a_trial(number=2, decided_line=2, last_value=math.nan, last_step=2, reports_line=5, attempts=1)
FAILED = a_trial(number=3, status=TrialStatus.FAILED, decided_line=6, message="exit code 1", attempts=1)
LIVE = an_attempt(number=2, acknowledged=2, holdings=(Holding(agent_id="agent-1", shares={"GPU-1": 0.5}),))
GROUP = QuotaGroup(name="small", gpus=1.5, borrows=False)
CHECKPOINT = a_checkpoint(number=2, sequence=2, step=2, size=len(WEIGHTS))

TOKEN = StoredToken(
    name="gpu-box",
    role="agent",
    sha256="ab" * 32,
    created_at=START,
    agent_id="gpu-box",
    made_by="home",
    expires_at=START + 100.5,
    last_used_at=START + 1.25,
)


def outcome_of(trial: Trial) -> TrialOutcome:
    return TrialOutcome(number=trial.number, status=trial.status, parameters=trial.parameters, value=trial.value)


def lines() -> list[JournalLine]:
    reports = {"attempt": 1, "first": 1}
    return [
        a_line(line=1, payload={"number": 1}),
        a_line(line=2, payload={"number": 2}),
        a_line(line=3, kind="reports", payload=reports | {"number": 1, "last": 1}, queues=(Queue.ASSESSOR,)),
        a_line(line=4, kind="trial_ended", payload={"outcome": to_plain(outcome_of(TOLD))}, queues=tuple(Queue)),
        a_line(line=5, kind="reports", payload=reports | {"number": 2, "last": 2}, queues=(Queue.ASSESSOR,)),
        a_line(line=6, payload={"number": 3}),
        a_line(line=7, kind="trial_ended", payload={"outcome": to_plain(outcome_of(FAILED))}, queues=tuple(Queue)),
    ]


def changes() -> Changes:
    """An experiment in the middle: one trial told, one running, one whose failure was not told."""
    exited = [
        an_attempt(number=n, status=AttemptStatus.EXITED, exit=ExitRecord(cause=ExitCause.EXITED, code=code))
        for n, code in ((1, 0), (3, 1))
    ]
    return Changes(
        experiments={EXPERIMENT.id: EXPERIMENT},
        search_spaces=[
            SearchSpaceRevision(
                experiment_id=EXPERIMENT.id, line=1, search_space=EXPERIMENT.spec.search_space, at=START
            )
        ],
        blobs={"c" * 64: CODE, CHECKPOINT.digest: WEIGHTS},
        trials={(t.experiment_id, t.number): t for t in (TOLD, RUNNING, FAILED)},
        attempts={a.key: a for a in (LIVE, *exited)},
        journal=lines(),
        metrics=[
            a_metric(number=1, line=3, objective=0.5),
            a_metric(number=2, line=5, objective=0.25),
            a_metric(number=2, line=5, sequence=2, step=2, objective=math.nan, values={"loss": math.nan}),
        ],
        checkpoints=[CHECKPOINT],
        snapshots=[StoredSnapshot(experiment_id=EXPERIMENT.id, queue=Queue.TUNER, line=4, state='{"n":1}', at=START)],
        quota_groups={GROUP.name: GROUP},
        idempotency_keys=[StoredIdempotencyKey(key="first", body_digest="d", experiment_id=EXPERIMENT.id, at=START)],
    )


def main() -> None:
    path = FOLDER / f"{HEAD_REVISION}.db"
    path.unlink(missing_ok=True)
    with closing(open_store(path, StillClock())) as store:
        store.commit(changes())
        store.put_token(TOKEN)
    path.with_name(path.name + ".lock").unlink()


if __name__ == "__main__":
    main()

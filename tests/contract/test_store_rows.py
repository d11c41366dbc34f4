"""``ports.Store`` and ``ports.Queries``: rows survive exactly, are listed, and go."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from tests.builders import (
    EXPERIMENT_ID,
    START,
    a_checkpoint,
    a_line,
    a_metric,
    a_spec,
    a_trial,
    an_attempt,
    an_experiment,
)
from tests.contract.stores import INF, NAN, OTHER_ID, changes_for, items, key_of, only, reports_line
from trials.wire.records import ExitCause, ExitRecord, ProcessRecord
from tuner_service.dispatcher.changes import (
    Changes,
    SearchSpaceRevision,
    StoredIdempotencyKey,
    StoredSnapshot,
)
from tuner_service.dispatcher.items import (
    MetricsReported,
    Queue,
)
from tuner_service.domain.archives import Archive, ArchivePhase
from tuner_service.domain.experiment import AlgorithmSpec, ExperimentReason, ExperimentStatus
from tuner_service.domain.trial import (
    EVALUATOR,
    AttemptStatus,
    PendingEnd,
    Report,
    Trial,
    TrialReason,
    TrialStatus,
)
from tuner_service.ports import TrialEntry


# ── rows survive exactly ────────────────────────────────────────────────────────────────────────
def test_an_empty_store_has_no_experiments(store: Any) -> None:
    assert store.load() == ()
    assert list(store.queries.experiments()) == []


def test_every_field_of_an_experiment_survives(store: Any) -> None:
    full = an_experiment(
        spec=a_spec(
            name="naïve\0 \ud800 𝔘\n",
            seed=2**80,
            assessor=AlgorithmSpec(
                class_name="my.module:Assessor", args={"warmup": 3, "nested": {"a": [1, 2.5, None]}}
            ),
            deterministic=True,
            algorithm_timeout_s=1.5,
            budget={"trials": None, "duration_s": 3600.5, "failures": 3},
            trial={
                "code_digest": "c" * 64,
                "environment": {"A": "1"},
                "python": "/usr/bin/python3",
                "heartbeat_s": 2.5,
                "max_attempts": 3,
            },
        ),
        status=ExperimentStatus.STOPPING,
        reason=ExperimentReason.ALGORITHM_FAILED,
        message="it raised \0 at \ud800",
        detail="Traceback (most recent call last):\n  …\n",
        stop_to=ExperimentStatus.FAILED,
        started_at=START + 0.1,
        ended_at=START + 1e-6,
        running_s=0.1 + 0.2,
        running_since=START + 2,
        next_line=7,
        next_number=5,
        tuner_cursor=4,
        assessor_cursor=6,
        free_numbers=(2, 4),
        note="a note",
        tags=("first", "second"),
        priority=-3,
        failures=1,
        first_error="e3b0",
        same_errors=1,
        spared=2,
        exhausted=True,
        tuner_waits=True,
        best_number=3,
        best_value=-0.0,
        counts={"running": 2, "failed": 1},
    )

    store.commit(Changes(experiments={full.id: full}))

    assert key_of(only(store).experiment) == key_of(full)
    assert key_of(store.queries.experiment(full.id)) == key_of(full)


@pytest.mark.parametrize("value", [NAN, INF, -INF, -0.0, 5e-324, 1.7976931348623157e308, 3.0, None])
def test_no_number_is_lost_wherever_it_stands(store: Any, value: float | None) -> None:
    number = value if value is not None else 0.0
    experiment = an_experiment(best_value=value)
    trial = a_trial(
        value=value, last_value=value, best_value=value, final={"loss": number}, last_metrics={"loss": number},
        parameters={"x": value},
    )  # fmt: skip
    metric = a_metric(values={"loss": number}, objective=value)
    checkpoint = a_checkpoint(value=value)
    store.commit(changes_for(trial, experiment=experiment, metrics=[metric], checkpoints=[checkpoint]))

    assert key_of(only(store).experiment) == key_of(experiment)
    assert key_of(only(store).trials) == key_of((trial,))
    assert key_of(only(store).checkpoints) == key_of((checkpoint,))
    assert key_of(store.queries.metrics(EXPERIMENT_ID, 1)[0].values) == key_of(metric.values)


@pytest.mark.parametrize("value", [NAN, INF, -INF, 0.25])
def test_algorithms_see_a_report_as_it_was(store: Any, value: float) -> None:
    metric = a_metric(objective=value, values={"loss": value})
    store.commit(changes_for(a_trial(), lines=(reports_line(2, first=1, last=1),), metrics=[metric]))

    (item,) = items(store, Queue.ASSESSOR)

    assert isinstance(item, MetricsReported)
    assert key_of(item.reports) == key_of((Report(step=1, value=value),))


def test_every_field_of_a_trial_survives(store: Any) -> None:
    full = a_trial(
        status=TrialStatus.STOPPING,
        reason=TrialReason.STOPPED_BY_ASSESSOR,
        message="worse than the median \0",
        source="custom",
        retry_of=1,
        number=2,
        decided_line=3,
        final={"loss": 0.5, "accuracy": 0.9},
        value=0.5,
        last_step=9,
        last_value=0.6,
        last_metrics={"loss": 0.6},
        best_value=0.4,
        reports_line=8,
        stopped_at_line=8,
        stopped_at_sequence=12,
        pending_end=PendingEnd(status=TrialStatus.FAILED, reason=TrialReason.EXIT_CODE, message="exit code 1"),
        attempts=3,
        charged=2,
        deaths_without_progress=1,
        metric_names=("loss", "accuracy"),
        started_at=START + 1,
        ended_at=START + 2,
        running_s=0.75,
        running_since=START + 1.5,
        further_parameters=({"lr": 0.5}, {"lr": [1, None]}),
        further_lines=(4, 6),
        wanted_index=3,
        reported_index=1,
        further_ended=True,
        parameters={"lr": 1, "layers": [{"_name": "conv", "kernel": 3}], "flag": True, "none": None, "x": 1e300},
    )

    store.commit(changes_for(full))

    assert only(store).trials == (full,)
    assert store.queries.trial(EXPERIMENT_ID, 2) == full
    assert repr(store.queries.trial(EXPERIMENT_ID, 2)) == repr(full)


def test_every_field_of_an_attempt_survives(store: Any) -> None:
    full = an_attempt(
        status=AttemptStatus.RUNNING,
        process=ProcessRecord(boot_id="b", pid=4, start_time=2**40),
        acknowledged=17,
        exit=ExitRecord(cause=ExitCause.SIGNALED, signal=9, tail="Killed\0\ud800", peak_memory_bytes=2**50),
        message="killed",
        started_at=START + 1,
        ended_at=START + 2,
        last_heard_at=START + 3,
        restored_step=40,
    )

    store.commit(changes_for(a_trial(), attempts={full.key: full}))

    assert only(store).attempts == (full,)
    assert list(store.queries.attempts(EXPERIMENT_ID, 1)) == [full]


def test_a_row_that_changes_is_replaced(store: Any) -> None:
    store.commit(changes_for(a_trial(value=1.0), attempts={an_attempt().key: an_attempt()}))
    ended = a_trial(status=TrialStatus.SUCCEEDED, value=None)
    gone = an_attempt(status=AttemptStatus.EXITED)
    finished = an_experiment(status=ExperimentStatus.COMPLETED, tuner_cursor=3)

    store.commit(changes_for(ended, experiment=finished, attempts={gone.key: gone}))

    loaded = only(store)
    assert (loaded.experiment, loaded.trials, loaded.attempts) == (finished, (ended,), ())


def test_journal_lines_survive(store: Any) -> None:
    lines = (
        a_line(line=1, kind="experiment_moved", payload={"from": "created", "why": "\ud800\0", "x": INF}, queues=()),
        a_line(line=2, queues=(Queue.TUNER, Queue.ASSESSOR)),
        a_line(line=3, queues=(Queue.ASSESSOR,)),
    )

    store.commit(changes_for(lines=lines))

    assert list(store.queries.journal(EXPERIMENT_ID)) == list(lines)
    assert list(store.queries.journal(EXPERIMENT_ID, after=1, limit=1)) == [lines[1]]


# ── snapshots, keys, spaces, blobs ──────────────────────────────────────────────────────────────
def test_the_newest_snapshot_of_each_queue_is_kept(store: Any) -> None:
    def snapshot(queue: Queue, line: int) -> StoredSnapshot:
        return StoredSnapshot(experiment_id=EXPERIMENT_ID, queue=queue, line=line, state=f'{{"n":{line}}}', at=START)

    store.commit(changes_for(snapshots=[snapshot(Queue.TUNER, 3), snapshot(Queue.TUNER, 5)]))
    store.commit(Changes(snapshots=[snapshot(Queue.ASSESSOR, 4)]))
    store.commit(Changes(snapshots=[snapshot(Queue.TUNER, 9)]))

    assert store.snapshot(EXPERIMENT_ID, Queue.TUNER) == snapshot(Queue.TUNER, 9)
    assert store.snapshot(EXPERIMENT_ID, Queue.ASSESSOR) == snapshot(Queue.ASSESSOR, 4)
    assert store.snapshot(OTHER_ID, Queue.TUNER) is None


def test_an_idempotency_key_is_found_again(store: Any) -> None:
    key = StoredIdempotencyKey(key="k \ud800", body_digest="d", experiment_id=EXPERIMENT_ID, at=START)
    store.commit(changes_for(idempotency_keys=[key]))

    assert store.queries.idempotency_key("k \ud800") == key
    assert store.queries.idempotency_key("k") is None


def test_what_an_evaluator_asked_for_is_found_by_its_token(store: Any) -> None:
    held = an_attempt(number=1, agent_id=EVALUATOR, nonce="token-1")
    told = an_attempt(number=2, agent_id=EVALUATOR, nonce="token-2", status=AttemptStatus.EXITED)
    launched = an_attempt(number=3, nonce="nonce-3")
    trials = [a_trial(number=number) for number in (1, 2, 3)]
    store.commit(changes_for(*trials, attempts={a.key: a for a in (held, told, launched)}))

    found = store.queries.asked_attempt
    assert (found(EXPERIMENT_ID, "token-1"), found(EXPERIMENT_ID, "token-2")) == (held, told)
    assert found(EXPERIMENT_ID, "nonce-3") is None
    assert found(OTHER_ID, "token-1") is None


def test_the_newest_search_space_counts(store: Any) -> None:
    store.commit(changes_for())
    assert store.queries.search_space(EXPERIMENT_ID) == an_experiment().spec.search_space

    for line in (2, 7):
        revision = SearchSpaceRevision(experiment_id=EXPERIMENT_ID, line=line, search_space={"n": line}, at=START)
        store.commit(Changes(search_spaces=[revision]))

    assert store.queries.search_space(EXPERIMENT_ID) == {"n": 7}
    assert store.queries.search_space(OTHER_ID) is None


@pytest.mark.parametrize("size", [0, 1, (1 << 20), (3 << 20) + 1])
def test_bytes_of_any_size_come_back(store: Any, size: int) -> None:
    data = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    store.commit(Changes(blobs={"d": data}))
    store.commit(Changes(blobs={"d": data}))

    assert store.queries.blob("d") == data
    assert store.queries.blob("e") is None


def test_a_dropped_checkpoint_takes_its_bytes_along_unless_another_row_names_them(store: Any) -> None:
    one, same = a_checkpoint(sequence=1), a_checkpoint(sequence=2)
    other = a_checkpoint(sequence=3, digest="b" * 64)
    store.commit(changes_for(a_trial(), blobs={one.digest: b"a", other.digest: b"b"}, checkpoints=[one, same, other]))

    store.commit(Changes(dropped_checkpoints=[one, other]))
    assert (store.queries.blob(one.digest), store.queries.blob(other.digest)) == (b"a", None)
    assert list(store.queries.checkpoints(EXPERIMENT_ID, 1)) == [same]

    store.commit(Changes(dropped_checkpoints=[same]))
    assert store.queries.blob(one.digest) is None


def test_a_checkpoint_whose_bytes_are_some_experiments_code_leaves_them(store: Any) -> None:
    code = an_experiment(spec=a_spec(trial={"code_digest": "a" * 64}))
    store.commit(changes_for(a_trial(), experiment=code, blobs={"a" * 64: b"code"}, checkpoints=[a_checkpoint()]))

    store.commit(Changes(dropped_checkpoints=[a_checkpoint()]))

    assert store.queries.blob("a" * 64) == b"code"


# ── deleting ────────────────────────────────────────────────────────────────────────────────────
def a_full_experiment(experiment_id: str) -> Changes:
    """One row in every table; its code is "shared", its checkpoint and its later code are its own."""
    line = replace(reports_line(2, first=1, last=1), experiment_id=experiment_id)
    attempt = an_attempt(experiment_id=experiment_id)
    checkpoint = a_checkpoint(experiment_id=experiment_id, digest=f"checkpoint of {experiment_id}")
    snapshot = StoredSnapshot(experiment_id=experiment_id, queue=Queue.TUNER, line=1, state="{}", at=START)
    return changes_for(
        a_trial(experiment_id=experiment_id),
        experiment=an_experiment(id=experiment_id, spec=a_spec(trial={"code_digest": "shared"})),
        lines=(line,),
        search_spaces=[SearchSpaceRevision(experiment_id=experiment_id, line=1, search_space={}, at=START)],
        blobs={"shared": b"code", checkpoint.digest: b"weights"},
        attempts={attempt.key: attempt},
        metrics=[a_metric(experiment_id=experiment_id)],
        checkpoints=[checkpoint],
        snapshots=[snapshot],
        idempotency_keys=[
            StoredIdempotencyKey(key=experiment_id, body_digest="d", experiment_id=experiment_id, at=START)
        ],
    )


def test_deleting_an_experiment_removes_all_of_it_and_nothing_else(store: Any) -> None:
    store.commit(a_full_experiment(EXPERIMENT_ID))
    store.commit(a_full_experiment(OTHER_ID))
    kept = [loaded for loaded in store.load() if loaded.experiment.id == OTHER_ID]

    store.commit(Changes(deleted_experiments=[EXPERIMENT_ID]))

    queries = store.queries
    assert list(store.load()) == kept
    assert queries.experiment(EXPERIMENT_ID) is None
    assert [
        list(found)
        for found in (
            queries.trials(EXPERIMENT_ID), queries.attempts(EXPERIMENT_ID), queries.metrics(EXPERIMENT_ID, 1),
            queries.checkpoints(EXPERIMENT_ID, 1), queries.journal(EXPERIMENT_ID), items(store, Queue.ASSESSOR),
        )
    ] == [[]] * 6  # fmt: skip
    assert queries.idempotency_key(EXPERIMENT_ID) is None
    assert store.snapshot(EXPERIMENT_ID, Queue.TUNER) is None
    assert queries.search_space(EXPERIMENT_ID) is None
    assert queries.blob(f"checkpoint of {EXPERIMENT_ID}") is None
    assert queries.blob(f"checkpoint of {OTHER_ID}") == b"weights"
    assert queries.blob("shared") == b"code"


def test_that_an_experiment_is_being_removed_stands_in_its_row_and_in_no_other(store: Any) -> None:
    both = {name: an_experiment(id=name, next_number=4) for name in (EXPERIMENT_ID, OTHER_ID)}
    archive = Archive(phase=ArchivePhase.REMOVING, upto=0, at=START)
    store.commit(Changes(experiments=both))

    store.commit(Changes(removing={EXPERIMENT_ID: archive}))
    store.commit(Changes(experiments={OTHER_ID: replace(both[OTHER_ID], next_number=5)}))

    found = {loaded.experiment.id: loaded.experiment for loaded in store.load()}
    assert found[EXPERIMENT_ID] == replace(both[EXPERIMENT_ID], archive=archive)
    assert found[OTHER_ID] == replace(both[OTHER_ID], next_number=5)


def test_deleting_the_last_experiment_with_some_code_removes_every_revision_of_it(store: Any) -> None:
    store.commit(a_full_experiment(EXPERIMENT_ID))
    revised = an_experiment(spec=a_spec(trial={"code_digest": "revised"}))
    store.commit(changes_for(experiment=revised, blobs={"revised": b"new code"}))

    store.commit(Changes(deleted_experiments=[EXPERIMENT_ID]))

    assert (store.queries.blob("shared"), store.queries.blob("revised")) == (None, None)


def test_what_a_step_writes_about_an_experiment_it_deletes_is_gone_too(store: Any) -> None:
    store.commit(a_full_experiment(EXPERIMENT_ID))
    last = Changes(
        journal=[a_line(line=3)],
        trials={(EXPERIMENT_ID, 2): a_trial(number=2)},
        metrics=[a_metric(number=2)],
        deleted_experiments=[EXPERIMENT_ID, "never"],
    )

    store.commit(last)

    assert store.load() == ()


# ── pages for people ────────────────────────────────────────────────────────────────────────────
def test_trials_are_listed_by_number_in_pages_and_by_status(store: Any) -> None:
    trials = [
        a_trial(number=n, status=TrialStatus.FAILED if n % 3 == 0 else TrialStatus.SUCCEEDED) for n in range(1, 13)
    ]
    store.commit(changes_for(*reversed(trials)))
    queries = store.queries

    assert list(queries.trials(EXPERIMENT_ID)) == trials
    assert list(queries.trials(EXPERIMENT_ID, after=3, limit=2)) == trials[3:5]
    assert [t.number for t in queries.trials(EXPERIMENT_ID, statuses=["failed", "canceled"])] == [3, 6, 9, 12]
    assert list(queries.trials(OTHER_ID)) == []
    assert queries.trial(EXPERIMENT_ID, 99) is None


def times(trial: Trial | TrialEntry) -> tuple[float | None, float | None, float]:
    return trial.started_at, trial.ended_at, trial.running_s


def test_the_entries_of_a_table_say_what_the_trials_say(store: Any) -> None:
    trials = [
        a_trial(number=1, value=math.nan, parameters={"name": "\u2028 ü \ud800"}),
        a_trial(number=2, value=-math.inf, last_step=7, attempts=2, running_s=1.5, started_at=1.0, ended_at=2.5),
        a_trial(number=3, value=None, status=TrialStatus.FAILED, last_value=math.nan),
        a_trial(number=4, value=0.5, further_parameters=({"lr": 0.3}, {"lr": 0.4}), wanted_index=2, reported_index=1),
    ]
    store.commit(changes_for(*trials))

    entries = store.queries.trial_entries(EXPERIMENT_ID)

    told = [
        (e.number, e.status, e.reason, repr((e.value, e.last_value)), e.step, e.attempts, *times(e)) for e in entries
    ]
    assert told == [
        (t.number, t.status.value, t.reason.value, repr((t.value, t.last_value)), t.last_step, t.attempts, *times(t))
        for t in trials
    ]
    assert [json.loads(entry.parameters) for entry in entries] == [trial.result_parameters for trial in trials]
    assert json.loads(entries[3].parameters) == {"lr": 0.3}, "the value was reported with the second of three"
    assert [e.number for e in store.queries.trial_entries(EXPERIMENT_ID, after=1, limit=1)] == [2]
    assert [e.number for e in store.queries.trial_entries(EXPERIMENT_ID, statuses=["failed"])] == [3]


def test_metrics_are_listed_by_attempt_and_sequence_in_pages(store: Any) -> None:
    places = [(1, 1), (1, 2), (2, 1), (2, 2), (10, 1)]
    store.commit(
        changes_for(
            a_trial(),
            metrics=[a_metric(attempt=a, sequence=s, step=None if s == 2 else s) for a, s in reversed(places)],
        )
    )
    queries = store.queries

    assert [(m.attempt, m.sequence) for m in queries.metrics(EXPERIMENT_ID, 1)] == places
    assert [(m.attempt, m.sequence) for m in queries.metrics(EXPERIMENT_ID, 1, after=(1, 2), limit=2)] == places[2:4]
    assert [m.step for m in queries.metrics(EXPERIMENT_ID, 1)] == [1, None, 1, None, 1]


def test_closing_may_be_repeated(store: Any) -> None:
    store.close()
    store.close()


def test_bytes_that_a_report_is_about_to_name_outlive_a_dropped_checkpoint_of_equal_content(store: Any) -> None:
    digest = "b" * 64
    dropped = a_checkpoint(digest=digest)
    store.commit(
        Changes(
            experiments={EXPERIMENT_ID: an_experiment()},
            trials={(EXPERIMENT_ID, 1): a_trial()},
            blobs={digest: b"same"},
            checkpoints=[dropped],
        )
    )

    store.commit(Changes(dropped_checkpoints=[dropped], fresh_blobs={digest}))

    assert store.queries.blob(digest) == b"same"

"""Reports: accepted once, in order; algorithms see the first value of a (trial, metric, step)."""

from __future__ import annotations

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.dispatcher.harness import (
    AGENT,
    EXITED,
    KILLED,
    Harness,
    a_checkpoint_record,
    a_final,
    an_intermediate,
)
from trials.wire.limits import CHECKPOINT_INLINE_BYTES
from trials.wire.messages import Acknowledge, Busy, DeleteCheckpoint, Stop
from trials.wire.records import CooperationRecord, NoticeRecord
from tuner_service.dispatcher import commands as c
from tuner_service.dispatcher import effects as e
from tuner_service.dispatcher import schedule
from tuner_service.dispatcher.items import MetricsReported, Queue
from tuner_service.dispatcher.limits import (
    ASSESSOR_QUEUE_LIMIT,
    FRESH_BLOBS_LIMIT,
    MESSAGE_LIMIT,
    NOTICES_LIMIT,
    REFUSED_REPORTS_RETRY_S,
    REJECTED_RECORDS_LIMIT,
    SPACE_FOR_METRIC_NAMES,
)
from tuner_service.domain.errors import ConflictError
from tuner_service.domain.experiment import AlgorithmSpec, Goal, Objective
from tuner_service.domain.trial import Report, TrialReason, TrialStatus

ASSESSED = AlgorithmSpec(name="median_stop")


def sequences(h: Harness, number: int = 1) -> list[tuple[int, int]]:
    return [(m.attempt, m.sequence) for m in h.store.queries.metrics(h.experiment.id, number)]


def acknowledged(h: Harness) -> list[int]:
    return [order.sequence for order in h.orders(Acknowledge)]


# ── accepted once, in order ─────────────────────────────────────────────────────────────────────
def test_a_batch_is_one_journal_line_its_metric_rows_and_one_acknowledgement(h: Harness) -> None:
    h.run()
    h.report(1, an_intermediate(0, 0.5), an_intermediate(1, 0.4))

    assert acknowledged(h) == [2]
    assert sequences(h) == [(1, 1), (1, 2)]
    assert h.journal("reports") == [{"number": 1, "attempt": 1, "first": 1, "last": 2}]


def test_a_repeated_batch_is_harmless(h: Harness) -> None:
    h.run()
    h.report(1, an_intermediate(0, 0.5), an_intermediate(1, 0.4))
    h.report(1, an_intermediate(0, 0.5), an_intermediate(1, 0.4), first=1)

    assert acknowledged(h) == [2]
    assert h.changes.metrics == []
    assert sequences(h) == [(1, 1), (1, 2)]


def test_of_an_overlapping_batch_only_the_new_records_are_taken(h: Harness) -> None:
    h.run()
    h.report(1, an_intermediate(0, 0.5), an_intermediate(1, 0.4))
    h.report(1, an_intermediate(1, 0.4), an_intermediate(2, 0.3), first=2)

    assert acknowledged(h) == [3]
    assert sequences(h) == [(1, 1), (1, 2), (1, 3)]


def test_after_a_gap_the_missing_records_are_asked_for_again(h: Harness) -> None:
    h.run()
    h.report(1, an_intermediate(0, 0.5))
    h.report(1, an_intermediate(4, 0.1), first=5)

    assert acknowledged(h) == [1]
    assert sequences(h) == [(1, 1)]


@given(
    batches=st.lists(st.tuples(st.integers(1, 12), st.integers(1, 5)), max_size=12),
    restarts=st.sets(st.integers(0, 11)),
)
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # by a machine that is busy
def test_whatever_is_lost_of_a_batch_is_asked_for_again(batches: list[tuple[int, int]], restarts: set[int]) -> None:
    """An agent that sends late, doubled, reordered, and with gaps of every size: what is acknowledged is there."""
    h = Harness()
    h.run()
    known = 0
    for place, (first, count) in enumerate(batches):
        if place in restarts:
            h.restart()
            h.connect(h.observed(1))
        h.report(1, *(an_intermediate(line, float(line)) for line in range(first, first + count)), first=first)
        if first <= known + 1:
            known = max(known, first + count - 1)
        assert h.attempt(1).acknowledged == known
        kept = h.store.queries.metrics(h.experiment.id, 1)
        assert [(m.sequence, m.step) for m in kept] == [(line, line) for line in range(1, known + 1)]
    h.exit(1, last_sequence=known + 1)
    assert h.trial(1).status is TrialStatus.RUNNING, "the exit waits for the last report"
    h.report(1, an_intermediate(known + 1, 0.0), first=known + 1)
    h.exit(1, last_sequence=known + 1)
    assert h.trial(1).status is not TrialStatus.RUNNING
    h.check()


def test_an_empty_batch_changes_nothing(h: Harness) -> None:
    h.run()
    h.report(1)

    assert acknowledged(h) == [0]
    assert not h.changes


def test_reports_of_an_unknown_experiment_are_acknowledged_so_that_the_agent_comes_to_the_exit(h: Harness) -> None:
    h.connect()
    key = h.key(1)
    h.handle(
        c.ReportsReceived(
            at=h.at, agent_id=AGENT, key=key, nonce="n", first_sequence=3, records=(an_intermediate(0, 0.5),)
        )
    )

    assert acknowledged(h) == [3]


def test_reports_from_an_agent_that_does_not_hold_the_attempt_are_not_believed(h: Harness) -> None:
    h.run()
    attempt = h.attempt(1)
    h.handle(
        c.ReportsReceived(
            at=h.at,
            agent_id="impostor",
            key=attempt.key,
            nonce=attempt.nonce,
            first_sequence=1,
            records=(a_final(0.0),),
        )
    )

    assert h.store.queries.metrics(h.experiment.id, 1) == []


# ── what algorithms see ─────────────────────────────────────────────────────────────────────────
def test_the_assessor_sees_the_objective_alone_in_order(h: Harness) -> None:
    h.run(assessor=ASSESSED)
    h.report(1, an_intermediate(0, 0.5, accuracy=0.1), an_intermediate(1, 0.4), a_final(0.3))

    (item,) = h.pending(Queue.ASSESSOR)
    assert isinstance(item, MetricsReported)
    assert item.reports == (Report(step=0, value=0.5), Report(step=1, value=0.4))
    assert item.sequences == (1, 2)


def test_a_step_that_a_new_attempt_reports_again_is_stored_and_not_shown_to_algorithms(h: Harness) -> None:
    h.run(assessor=ASSESSED)
    h.report(1, an_intermediate(0, 0.5), an_intermediate(1, 0.4))
    h.exit(1, KILLED)
    h.report(1, an_intermediate(1, 0.45), an_intermediate(2, 0.3))

    items = [i for i in h.pending(Queue.ASSESSOR) if isinstance(i, MetricsReported)]
    assert [r for i in items for r in i.reports] == [Report(step=n, value=v) for n, v in enumerate((0.5, 0.4, 0.3))]
    rows = h.store.queries.metrics(h.experiment.id, 1)
    assert [(m.attempt, m.step, m.first) for m in rows] == [(1, 0, True), (1, 1, True), (2, 1, False), (2, 2, True)]


def test_a_batch_with_nothing_new_for_algorithms_stands_in_no_queue(h: Harness) -> None:
    h.run(assessor=ASSESSED)
    h.report(1, an_intermediate(0, accuracy=0.5), a_final(0.5))

    assert h.pending(Queue.ASSESSOR) == []
    (line,) = [line for line in h.store.queries.journal(h.experiment.id) if line.kind == "reports"]
    assert line.queues == ()


def test_steps_seen_before_a_restart_are_not_shown_again(h: Harness) -> None:
    h.run(assessor=ASSESSED)
    h.report(1, an_intermediate(0, 0.5))
    h.restart()
    h.connect(h.observed(1))
    h.report(1, an_intermediate(0, 0.9), an_intermediate(1, 0.4))

    items = [i for i in h.pending(Queue.ASSESSOR) if isinstance(i, MetricsReported)]
    assert [r.value for i in items for r in i.reports] == [0.5, 0.4]


def test_without_an_assessor_reports_are_kept_for_people(h: Harness) -> None:
    h.run()
    h.report(1, an_intermediate(0, 0.5))

    assert h.pending(Queue.ASSESSOR) == []
    assert sequences(h) == [(1, 1)]


def test_metrics_alone_ask_nothing_of_the_schedule_and_what_comes_with_them_may(
    h: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    h.run(assessor=ASSESSED)
    asked: list[str] = []
    monkeypatch.setattr(schedule, "advance", lambda _, xs: asked.append(xs.id))

    h.report(1, an_intermediate(0, 0.5), an_intermediate(1, 0.4))
    assert not asked

    h.report(1, an_intermediate(2, 0.3), a_checkpoint_record(2))
    assert asked == [h.experiment.id]


def test_the_trial_shows_its_last_and_its_best_report(h: Harness) -> None:
    h.run()
    h.report(1, an_intermediate(0, 0.3), an_intermediate(1, 0.1, accuracy=0.8), an_intermediate(2, 0.2))

    trial = h.trial(1)
    assert (trial.last_step, trial.last_value, trial.last_metrics) == (2, 0.2, {"loss": 0.2})
    assert trial.best_value == 0.1
    assert trial.metric_names == ("loss", "accuracy")


def test_names_of_metrics_are_remembered_up_to_a_bound(h: Harness) -> None:
    h.run()
    h.report(1, an_intermediate(0, 0.3, **{f"m{n}": 0.0 for n in range(SPACE_FOR_METRIC_NAMES + 5)}))

    assert len(h.trial(1).metric_names) == SPACE_FOR_METRIC_NAMES
    h.report(1, an_intermediate(1, 0.3, another=1.0))
    assert "another" not in h.trial(1).metric_names


def test_nan_and_infinity_reach_the_rows_and_the_assessor_as_they_are(h: Harness) -> None:
    h.run(assessor=ASSESSED)
    h.report(1, an_intermediate(0, math.nan), an_intermediate(1, -math.inf))

    (item,) = h.pending(Queue.ASSESSOR)
    assert isinstance(item, MetricsReported)
    assert math.isnan(item.reports[0].value)
    assert item.reports[1].value == -math.inf
    assert h.trial(1).best_value == -math.inf


def test_that_a_script_asks_for_stops_is_no_report(h: Harness) -> None:
    h.run()
    h.report(1, CooperationRecord(at=h.at))

    assert acknowledged(h) == [1]
    assert h.journal("reports") == []


def test_a_record_that_makes_no_sense_keeps_its_sequence_and_is_written_down(h: Harness) -> None:
    h.run()
    h.report(1, c.RejectedRecord(error="not JSON"), an_intermediate(0, 0.5))

    assert acknowledged(h) == [2]
    assert h.journal("record_rejected") == [{"number": 1, "attempt": 1, "sequence": 1, "error": "not JSON"}]
    (reports,) = h.journal("reports")
    assert (reports["first"], reports["last"]) == (2, 2)
    rows = h.store.queries.metrics(h.experiment.id, 1)
    assert [m.sequence for m in rows] == [2]


def test_rejected_records_of_an_attempt_are_written_down_up_to_a_bound(h: Harness) -> None:
    h.run()
    h.report(1, *[c.RejectedRecord(error="?")] * (REJECTED_RECORDS_LIMIT + 7))

    assert len(h.journal("record_rejected")) == REJECTED_RECORDS_LIMIT
    assert acknowledged(h) == [REJECTED_RECORDS_LIMIT + 7]


def test_the_next_attempt_may_have_as_many_rejected_records_again(h: Harness) -> None:
    h.run()
    h.report(1, *[c.RejectedRecord(error="?")] * (REJECTED_RECORDS_LIMIT + 7))
    h.exit(1, KILLED)
    h.started(1)
    h.report(1, c.RejectedRecord(error="!"))

    assert [line["attempt"] for line in h.journal("record_rejected")] == [1] * REJECTED_RECORDS_LIMIT + [2]


# ── back pressure ───────────────────────────────────────────────────────────────────────────────
def test_past_the_limit_of_the_assessor_queue_reports_are_refused_and_wait_in_their_spool(h: Harness) -> None:
    h.run(assessor=ASSESSED)
    for step in range(ASSESSOR_QUEUE_LIMIT):
        h.report(1, an_intermediate(step, 0.5))
    effects = h.report(1, an_intermediate(ASSESSOR_QUEUE_LIMIT, 0.5))

    nonce = h.attempt(1).nonce
    assert effects == [e.Tell(agent_id=AGENT, message=Busy(nonce=nonce, retry_after_s=REFUSED_REPORTS_RETRY_S))]
    assert not h.changes
    h.take(Queue.ASSESSOR, upto=1)
    h.report(1, an_intermediate(ASSESSOR_QUEUE_LIMIT, 0.5), first=ASSESSOR_QUEUE_LIMIT + 1)
    assert acknowledged(h) == [ASSESSOR_QUEUE_LIMIT + 1]


# ── checkpoints ─────────────────────────────────────────────────────────────────────────────────
def steps_kept(h: Harness) -> list[int]:
    return [k.step for k in h.store.queries.checkpoints(h.experiment.id, 1)]


def reported_with_checkpoints(h: Harness, *losses: float) -> None:
    for step, loss in enumerate(losses):
        h.report(1, an_intermediate(step, loss), a_checkpoint_record(step))


@pytest.mark.parametrize(
    ("keep", "kept"),
    [
        ({"keep_last": 2, "keep_best": 1}, [4, 3, 1]),
        ({"keep_last": 1, "keep_best": 0}, [4]),
        ({"keep_last": 0, "keep_best": 0}, [4]),
        ({"keep_last": 1, "keep_best": 2}, [4, 2, 1]),
        ({"keep_last": 9, "keep_best": 0}, [4, 3, 2, 1, 0]),
    ],
)
def test_the_newest_and_the_best_checkpoints_are_kept(h: Harness, keep: dict[str, int], kept: list[int]) -> None:
    h.run(trial=keep)
    reported_with_checkpoints(h, 0.9, 0.1, 0.2, 0.8, 0.7)

    assert steps_kept(h) == kept


def test_best_follows_the_goal(h: Harness) -> None:
    h.run(objective=Objective(metric="loss", goal=Goal.MAXIMIZE), trial={"keep_last": 1, "keep_best": 1})
    reported_with_checkpoints(h, 0.9, 0.1, 0.2)

    assert steps_kept(h) == [2, 0]


def test_a_checkpoint_without_a_value_counts_as_new_and_never_as_best(h: Harness) -> None:
    h.run(trial={"keep_last": 1, "keep_best": 1})
    h.report(1, a_checkpoint_record(0), an_intermediate(1, 0.5), a_checkpoint_record(1), a_checkpoint_record(2))

    assert steps_kept(h) == [2, 1]


def test_a_dropped_checkpoint_is_deleted_on_its_node(h: Harness) -> None:
    h.run(trial={"keep_last": 1, "keep_best": 0})
    reported_with_checkpoints(h, 0.9, 0.8)

    assert h.orders(DeleteCheckpoint) == [
        DeleteCheckpoint(nonce=h.attempt(1).nonce, name="step-0", saved_at=a_checkpoint_record(0).at)
    ]


def test_large_checkpoints_are_kept_outside_the_database(h: Harness) -> None:
    h.run()
    h.report(
        1,
        a_checkpoint_record(0, size=CHECKPOINT_INLINE_BYTES),
        a_checkpoint_record(1, size=CHECKPOINT_INLINE_BYTES + 1),
    )

    newest, older = h.store.queries.checkpoints(h.experiment.id, 1)
    assert (newest.inline, older.inline) == (False, True)


def test_received_bytes_are_stored_by_their_digest(h: Harness) -> None:
    assert h.handle(c.BlobReceived(at=h.at, digest="ab", data=b"weights")) == []
    assert h.store.queries.blob("ab") == b"weights"


def test_bytes_of_an_agent_without_an_attempt_that_could_name_them_are_not_kept(h: Harness) -> None:
    h.connect()
    for agent_id in (AGENT, "agent-2"):
        with pytest.raises(ConflictError, match=f"agent '{agent_id}' has no attempt that goes on.*it is not kept"):
            h.handle(c.BlobReceived(at=h.at, digest="ab", data=b"weights", agent_id=agent_id))
    h.run()
    with pytest.raises(ConflictError):
        h.handle(c.BlobReceived(at=h.at, digest="ab", data=b"weights", agent_id="agent-2"))
    assert h.store.queries.blob("ab") is None

    h.handle(c.BlobReceived(at=h.at, digest="ab", data=b"weights", agent_id=AGENT))
    assert h.store.queries.blob("ab") == b"weights"

    h.succeed(1)
    with pytest.raises(ConflictError):
        h.handle(c.BlobReceived(at=h.at, digest="cd", data=b"more", agent_id=AGENT))


# ── silence ─────────────────────────────────────────────────────────────────────────────────────
def test_a_trial_that_is_silent_for_its_heartbeat_is_stopped_and_tried_again(h: Harness) -> None:
    h.run(trial={"heartbeat_s": 30.0, "max_attempts": 2})
    h.after(20)
    h.report(1, an_intermediate(0, 0.5))
    h.after(30)
    assert h.trial(1).status is TrialStatus.RUNNING
    h.after(1)
    (stop,) = h.orders(Stop)
    assert stop.reason == "heartbeat_missed"
    h.after(20)
    assert h.orders(Stop) == []

    h.exit(1, KILLED)
    assert (h.trial(1).status, h.trial(1).charged) == (TrialStatus.RUNNING, 1)
    assert h.attempt(1).key.attempt == 2


def test_a_hanging_trial_has_failed_when_its_attempts_are_used_up(h: Harness) -> None:
    h.run(trial={"heartbeat_s": 30.0})
    h.after(31)
    h.exit(1, KILLED)

    assert (h.trial(1).status, h.trial(1).reason.value) == (TrialStatus.FAILED, "heartbeat_missed")
    assert h.trial(1).message == "no report for 30 s"


def test_a_trial_that_finishes_while_it_is_stopped_for_its_silence_has_succeeded(h: Harness) -> None:
    h.run(trial={"heartbeat_s": 30.0})
    h.after(31)
    h.succeed(1)

    assert h.trial(1).status is TrialStatus.SUCCEEDED


def test_the_time_the_service_was_down_is_no_silence(h: Harness) -> None:
    h.run(trial={"heartbeat_s": 30.0})
    h.at += 1000
    h.restart()
    h.connect(h.observed(1))
    h.after(29)
    assert h.orders(Stop) == []
    h.after(2)
    assert len(h.orders(Stop)) == 1


def test_nothing_is_concluded_from_the_silence_of_an_agent_that_is_away(h: Harness) -> None:
    h.run(trial={"heartbeat_s": 30.0})
    h.disconnect()
    h.after(1000)

    assert h.trial(1).status is TrialStatus.RUNNING


def test_bytes_that_no_report_named_yet_outlive_a_dropped_checkpoint_of_the_same_content(h: Harness) -> None:
    h.run(trial={"keep_last": 1, "keep_best": 0})
    for _ in range(2):
        h.handle(c.BlobReceived(at=h.at, digest=f"{0:064x}", data=b"same"))
        h.report(1, a_checkpoint_record(0))
    assert h.store.queries.blob(f"{0:064x}") == b"same"

    h.handle(c.BlobReceived(at=h.at, digest=f"{0:064x}", data=b"same"))
    h.report(1, a_checkpoint_record(7))
    assert h.store.queries.blob(f"{0:064x}") == b"same"


def test_of_digests_that_are_never_named_the_oldest_are_let_go(h: Harness) -> None:
    for number in range(FRESH_BLOBS_LIMIT + 2):
        h.dispatcher.handle(c.BlobReceived(at=h.at, digest=str(number), data=b""))

    fresh = h.dispatcher.state.fresh_blobs
    assert len(fresh) == FRESH_BLOBS_LIMIT
    assert next(iter(fresh)) == "2"


# ── notices ─────────────────────────────────────────────────────────────────────────────────────
def a_notice(message: str = "it takes too long") -> NoticeRecord:
    return NoticeRecord(code="metrics_pattern_too_slow", message=message, at=1.0)


def test_what_an_attempt_has_to_say_is_shown_with_it_and_told_to_no_algorithm(h: Harness) -> None:
    h.run(assessor=ASSESSED)
    h.report(1, a_notice(), an_intermediate(0, 0.5))

    said = "metrics_pattern_too_slow: it takes too long"
    assert h.attempt(1).message == said
    assert h.journal("noticed") == [{"number": 1, "attempt": 1, "notice": said}]
    assert acknowledged(h) == [2]


def test_notices_of_an_attempt_are_kept_up_to_a_bound(h: Harness) -> None:
    h.run()
    h.report(1, *[a_notice(f"{n}\nx" * 2_000) for n in range(NOTICES_LIMIT + 2)])

    lines = h.attempt(1).message.splitlines()
    assert len(lines) == NOTICES_LIMIT
    assert all(len(line) == MESSAGE_LIMIT for line in lines)
    assert len(h.journal("noticed")) == NOTICES_LIMIT


def test_a_trial_that_ends_without_its_metric_names_what_its_attempt_said(h: Harness) -> None:
    h.run()
    h.report(1, a_notice())
    h.exit(1, EXITED)

    assert h.trial(1).reason is TrialReason.NO_FINAL_METRIC
    assert h.trial(1).message.endswith("; metrics_pattern_too_slow: it takes too long")

"""Which checkpoints stay, whose node is told to delete the others, and what a damaged one leads to."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.dispatcher.harness import AGENT, KILLED, Harness, a_checkpoint_record, an_intermediate
from tests.unit.dispatcher.test_advised_trials import Advised
from trials.wire.limits import CHECKPOINT_INLINE_BYTES
from trials.wire.messages import DeleteCheckpoint, Launch
from trials.wire.records import CheckpointDamagedRecord
from tuner_service.dispatcher import commands as c
from tuner_service.dispatcher.items import Queue
from tuner_service.domain.trial import Checkpoint, DecisionKind

LARGE = CHECKPOINT_INLINE_BYTES + 1


def rows(h: Harness) -> list[Checkpoint]:
    return list(h.store.queries.checkpoints(h.experiment.id, 1))


def report_large(h: Harness, step: int, location: str | None) -> None:
    record, attempt = a_checkpoint_record(step, size=LARGE), h.attempt(1)
    first = h.sent_reports.get(attempt.nonce, 0) + 1
    h.sent_reports[attempt.nonce] = first
    h.handle(
        c.ReportsReceived(
            at=h.at,
            agent_id=attempt.agent_id,
            key=attempt.key,
            nonce=attempt.nonce,
            first_sequence=first,
            records=(record,),
            locations={} if location is None else {record.digest: location},
        )
    )


def test_the_best_is_judged_by_the_value_when_it_was_taken_not_when_it_was_written(h: Harness) -> None:
    h.run(trial={"keep_last": 1, "keep_best": 1})
    h.report(
        1,
        an_intermediate(0, 0.1),
        an_intermediate(1, 0.9),  # while the checkpoint of step 0 was being written
        replace(a_checkpoint_record(0), value=0.1),
        replace(a_checkpoint_record(1), value=0.9),
        replace(a_checkpoint_record(2), value=0.8),
    )

    assert [(row.step, row.value) for row in rows(h)] == [(2, 0.8), (0, 0.1)]


def test_a_row_says_where_it_is_who_saved_it_and_what_it_cost(h: Harness) -> None:
    h.run()
    h.report(1, replace(a_checkpoint_record(0), stall_s=0.02, write_s=0.3))
    report_large(h, 1, "s3://bucket/there")

    large, small = rows(h)
    assert (small.agent_id, small.inline, small.location) == (AGENT, True, None)
    assert (small.stall_s, small.write_s) == (0.02, 0.3)
    assert (large.inline, large.location) == (False, "s3://bucket/there")


def test_a_new_attempt_is_told_where_large_ones_are(h: Harness) -> None:
    h.run()
    report_large(h, 0, "s3://bucket/there")
    h.exit(1, KILLED)

    (launch,) = h.orders(Launch)
    assert [ref.path for ref in launch.spec.checkpoints] == ["s3://bucket/there"]


def test_the_file_of_an_earlier_attempt_is_deleted_on_the_node_that_has_it(h: Harness) -> None:
    h.run(trial={"keep_last": 1, "keep_best": 0})
    first = h.attempt(1)
    report_large(h, 0, "/store/0")
    h.connect(agent_id="other", cpus=64)
    h.exit(1, KILLED)
    assert h.attempt(1).agent_id == "other"
    report_large(h, 1, "/store/1")

    assert h.told_to(AGENT, DeleteCheckpoint) == [
        DeleteCheckpoint(nonce=first.nonce, name="step-0", location="/store/0", saved_at=a_checkpoint_record(0).at)
    ]


def test_where_that_node_is_away_the_one_of_the_trial_clears_the_store(h: Harness) -> None:
    h.run(trial={"keep_last": 1, "keep_best": 0})
    first = h.attempt(1)
    report_large(h, 0, "/store/0")
    h.connect(agent_id="other", cpus=64)
    h.exit(1, KILLED)
    h.disconnect()
    report_large(h, 1, "/store/1")

    assert h.told_to("other", DeleteCheckpoint) == [
        DeleteCheckpoint(nonce=first.nonce, name="step-0", location="/store/0", saved_at=a_checkpoint_record(0).at)
    ]


def test_the_file_of_a_checkpoint_that_was_saved_twice_stays_with_its_second_row(h: Harness) -> None:
    """Of the same step and the same bytes: it is one file, here and in the store."""
    h.run(trial={"keep_last": 1, "keep_best": 0})
    for step in (0, 0, 1):
        report_large(h, step, f"/store/{step}")
        kept = [row.step for row in rows(h)]
        assert kept == [step]
        if step == 0:
            assert h.told_to(AGENT, DeleteCheckpoint) == []

    assert [order.name for order in h.told_to(AGENT, DeleteCheckpoint)] == ["step-0"]


def test_a_damaged_checkpoint_is_marked_and_never_given_again(h: Harness) -> None:
    h.run(trial={"keep_last": 3, "keep_best": 0, "max_attempts": 5})
    h.report(1, an_intermediate(0, 0.5), a_checkpoint_record(0), a_checkpoint_record(1))
    told = CheckpointDamagedRecord(step=1, digest=a_checkpoint_record(1).digest, at=h.at)
    h.report(1, told, told, replace(told, digest="of nothing"))

    assert [(row.step, row.damaged) for row in rows(h)] == [(1, True), (0, False)]
    h.exit(1, KILLED)
    (launch,) = h.orders(Launch)
    assert [ref.step for ref in launch.spec.checkpoints] == [0]
    h.restart()
    h.connect()
    (launch,) = h.orders(Launch)
    assert [ref.step for ref in launch.spec.checkpoints] == [0]


def test_damage_of_a_trial_without_checkpoints_is_passed_over(h: Harness) -> None:
    h.run()
    h.report(1, CheckpointDamagedRecord(step=1, digest="of another trial", at=h.at))

    assert rows(h) == []


def test_the_file_of_the_source_is_not_deleted_with_the_row_of_a_fork() -> None:
    h = Advised().begin(trial={"keep_last": 2, "keep_best": 0}, budget={"trials": 3, "parallel": 2})
    h.decide(until_step=1)
    h.started(1)
    h.report(1, an_intermediate(0, 0.5), a_checkpoint_record(0), an_intermediate(1, 0.5), a_checkpoint_record(1))
    h.exit(1)
    h.take(Queue.TUNER)
    h.decide(DecisionKind.FORK, forked_from=1, until_step=9)
    assert [checkpoint.step for checkpoint in h.xs.checkpoints[2]] == [0, 1]
    h.started(2)
    h.report(2, *[record for step in (2, 3) for record in (an_intermediate(step, 0.2), a_checkpoint_record(step))])

    assert [checkpoint.step for checkpoint in h.xs.checkpoints[2]] == [1, 2, 3]
    assert h.orders(DeleteCheckpoint) == []

"""The state machine of a loader with workers: chunks, slots, deaths and the order of delivery."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from trials.data.core.in_order_pipeline import DEPTH, PAUSE, RETRIES, Batch, Death, Pipeline, PipelineSize, Plan
from trials.data.core.worker_messages import Done, Piece, Task

KILLED = Death(9, None)


def plans(batches: int, size: int = 4) -> Iterator[Plan]:
    return (Plan(n * size, (n + 1) * size, list(range(n * size, (n + 1) * size))) for n in range(batches))


def a_pipeline(*, slots: int = 6, ahead: int = 4, chunk: int = 0, batches: int = 1, workers: int = 2) -> Pipeline:
    pipeline = Pipeline(PipelineSize(slots=slots, ahead=ahead, chunk=chunk, batches=batches))
    for worker in range(workers):
        pipeline.worker_started(worker)
    return pipeline


def answer(task: Task) -> Done:
    return Done(task.number, tuple(Piece(p.sequence, p.row, "rows", len(p.items)) for p in task.parts), 0.0, 0.0)


def finish(pipeline: Pipeline, worker: int) -> None:
    pipeline.done(worker, answer(pipeline.outstanding(worker)[0]))


def take(pipeline: Pipeline) -> Batch:
    assert pipeline.next_ready() is not None
    return pipeline.take()


def test_batches_are_delivered_in_their_order_whoever_is_first() -> None:
    pipeline = a_pipeline()
    pipeline.begin(epoch=0, plans=plans(2))
    assert [worker for worker, _ in pipeline.orders()] == [0, 1]

    finish(pipeline, 1)
    assert pipeline.next_ready() is None
    finish(pipeline, 0)

    assert [take(pipeline).plan.begin for _ in range(2)] == [0, 4]
    assert pipeline.ended()


def test_a_batch_in_parts_is_ready_when_the_last_part_is() -> None:
    pipeline = a_pipeline(chunk=3)
    pipeline.begin(epoch=0, plans=plans(1))

    tasks = [task for _, task in pipeline.orders()]
    assert [(part.row, list(part.items)) for task in tasks for part in task.parts] == [(0, [0, 1, 2]), (3, [3])]
    finish(pipeline, 1)
    assert pipeline.next_ready() is None
    finish(pipeline, 0)

    assert take(pipeline).missing == 0


def test_small_batches_share_a_task() -> None:
    pipeline = a_pipeline(slots=8, ahead=8, batches=3)
    pipeline.begin(epoch=0, plans=plans(8))

    assert [len(task.parts) for _, task in pipeline.orders()] == [3, 3]
    finish(pipeline, 0)
    assert not pipeline.orders(), "two batches of credit are left, and three are worth waiting for"
    pipeline.freed(take(pipeline).slot)

    assert [len(task.parts) for _, task in pipeline.orders()] == [2]


def test_no_more_is_asked_for_than_was_taken_and_may_be_ahead() -> None:
    pipeline = a_pipeline(slots=9, ahead=3, workers=4)
    pipeline.begin(epoch=0, plans=plans(20))

    assert len(pipeline.orders()) == 3
    finish(pipeline, 0)
    assert not pipeline.orders()
    take(pipeline)

    assert len(pipeline.orders()) == 1


def test_a_worker_has_one_task_in_work_and_one_waiting() -> None:
    pipeline = a_pipeline(slots=9, ahead=9, workers=1)
    pipeline.begin(epoch=0, plans=plans(9))

    assert len(pipeline.orders()) == DEPTH


def test_a_slot_the_trial_holds_is_not_given_out_again() -> None:
    pipeline = a_pipeline(slots=1, ahead=4)
    pipeline.begin(epoch=0, plans=plans(2))
    pipeline.orders()
    finish(pipeline, 0)
    held = take(pipeline).slot

    assert not pipeline.orders()
    pipeline.freed(held)

    assert [task.parts[0].slot for _, task in pipeline.orders()] == [held]


def test_the_task_of_a_dead_worker_is_tried_again_before_anything_new() -> None:
    pipeline = a_pipeline(slots=9, ahead=9)
    pipeline.begin(epoch=0, plans=plans(9))
    first = pipeline.orders()[0][1]

    pipeline.worker_died(0, KILLED)
    pipeline.worker_started(0)

    # Sample by sample, so that the one which ends a worker is known.
    assert pipeline.orders()[0] == (0, first._replace(singly=True))


def test_a_task_that_ends_its_worker_three_times_is_an_error_in_its_place() -> None:
    pipeline = a_pipeline(workers=1)
    pipeline.begin(epoch=0, plans=plans(3))
    for _ in range(RETRIES + 1):
        pipeline.orders()
        pipeline.worker_died(0, Death(9, None, index=2))
        pipeline.worker_started(0)

    batch = take(pipeline)
    assert batch.death == (Death(9, None, index=2), (2,))
    pipeline.orders()
    finish(pipeline, 0)
    assert take(pipeline).plan.begin == 4


def test_several_batches_of_a_task_are_tried_again_one_by_one() -> None:
    pipeline = a_pipeline(slots=6, ahead=6, batches=3, workers=1)
    pipeline.begin(epoch=0, plans=plans(3))
    pipeline.orders()
    pipeline.worker_died(0, KILLED)
    pipeline.worker_started(0)

    for begin in (0, 4, 8):
        pipeline.orders()
        assert [part.sequence for part in pipeline.outstanding(0)[0].parts] == [begin // 4]
        finish(pipeline, 0)
        assert take(pipeline).death is None


def test_only_the_task_in_work_is_charged_with_a_death() -> None:
    pipeline = a_pipeline(workers=1)
    pipeline.begin(epoch=0, plans=plans(2))
    for _ in range(RETRIES):
        assert len(pipeline.orders()) == 2
        pipeline.worker_died(0, KILLED)
        pipeline.worker_started(0)
    pipeline.orders()
    finish(pipeline, 0)
    pipeline.worker_died(0, KILLED)
    pipeline.worker_started(0)
    pipeline.orders()
    finish(pipeline, 0)

    assert [take(pipeline).death for _ in range(2)] == [None, None]


def test_a_lost_fork_server_is_charged_to_no_task() -> None:
    pipeline = a_pipeline(workers=1)
    pipeline.begin(epoch=0, plans=plans(1))
    for _ in range(RETRIES + 3):
        pipeline.orders()
        pipeline.worker_died(0, None)
        pipeline.worker_started(0)
    pipeline.orders()
    finish(pipeline, 0)

    assert take(pipeline).death is None


def test_a_slot_of_a_batch_given_up_waits_for_those_that_still_write_to_it() -> None:
    pipeline = a_pipeline(slots=1, ahead=1, chunk=2)
    pipeline.begin(epoch=0, plans=plans(2))
    pipeline.orders()
    for _ in range(RETRIES + 1):
        pipeline.worker_died(0, KILLED)
        pipeline.worker_started(0)
        orders = pipeline.orders()
    assert not orders
    take(pipeline)

    assert not pipeline.orders(), "worker 1 may still write to the only slot"
    finish(pipeline, 1)

    assert pipeline.orders()


def test_an_iteration_that_was_dropped_leaves_its_slots_to_those_still_writing() -> None:
    pipeline = a_pipeline(slots=2, ahead=2)
    pipeline.begin(epoch=0, plans=plans(2))
    pipeline.orders()

    pipeline.begin(epoch=1, plans=plans(2))
    assert not pipeline.orders()
    finish(pipeline, 0)
    (order,) = pipeline.orders()

    assert order[1].epoch == 1
    assert order[1].parts[0].sequence == 2, "sequences never repeat"


def test_what_a_sampler_raises_comes_in_its_place() -> None:
    def failing() -> Iterator[Plan]:
        yield from plans(1)
        raise LookupError("the sampler is broken")

    pipeline = a_pipeline()
    pipeline.begin(epoch=0, plans=failing())
    pipeline.orders()
    finish(pipeline, 0)
    assert take(pipeline).error is None

    assert str(take(pipeline).error) == "the sampler is broken"
    assert pipeline.ended()


def test_a_source_without_news_is_asked_again_later() -> None:
    pipeline = a_pipeline()
    pipeline.begin(epoch=0, plans=iter([PAUSE, Plan(0, 1, ["sample"], ready=True)]))

    assert not pipeline.orders()
    assert not pipeline.ended()
    pipeline.orders()

    assert take(pipeline).plan.items == ["sample"]


def test_an_answer_to_another_task_is_an_error() -> None:
    pipeline = a_pipeline()
    pipeline.begin(epoch=0, plans=plans(2))
    pipeline.orders()

    with pytest.raises(RuntimeError, match="answered task 7, not 0"):
        pipeline.done(0, Done(7, (), 0.0, 0.0))


def test_the_worker_of_the_next_batch_is_the_one_that_works_on_it() -> None:
    pipeline = a_pipeline(slots=9, ahead=9)
    pipeline.begin(epoch=0, plans=plans(4))
    pipeline.orders()
    finish(pipeline, 0)
    take(pipeline)

    assert pipeline.workers_of_next() == [1]


def test_a_part_of_a_batch_given_up_is_not_tried_again_when_its_worker_dies_too() -> None:
    """Its slot is free once the error was delivered: whoever loaded the part then would write into another batch."""
    pipeline = a_pipeline(slots=1, ahead=1, chunk=1, workers=3)
    pipeline.begin(epoch=0, plans=plans(1))
    for _ in range(1 + RETRIES):
        pipeline.orders()
        pipeline.worker_died(1, KILLED)
        pipeline.worker_started(1)
    assert pipeline.next_ready() is not None, "given up"

    for worker in (2, 0):
        pipeline.worker_died(worker, None)
        pipeline.worker_started(worker)
    assert take(pipeline).death is not None

    assert pipeline.orders() == []
    assert pipeline.ended()


class PipelineMachine(RuleBasedStateMachine):
    """Workers that answer and die, a trial that takes and frees and begins anew, in any order."""

    @initialize(
        slots=st.integers(1, 6), ahead=st.integers(1, 6), chunk=st.sampled_from([0, 1, 3]), batches=st.integers(1, 3)
    )
    def build(self, slots: int, ahead: int, chunk: int, batches: int) -> None:
        self.slots, self.workers, self.batches = slots, 3, 9
        self.pipeline = a_pipeline(slots=slots, ahead=ahead, chunk=chunk, batches=batches, workers=self.workers)
        self.held: list[int] = []
        self.taken: list[int] = []
        self.epoch = 0
        self.pipeline.begin(epoch=0, plans=plans(self.batches))

    @rule(batches=st.integers(0, 9))
    def begin(self, batches: int) -> None:
        self.epoch += 1
        self.taken, self.batches = [], batches
        self.pipeline.begin(epoch=self.epoch, plans=plans(batches))

    @rule()
    def order(self) -> None:
        self.pipeline.orders()

    @rule(worker=st.integers(0, 2))
    def answer(self, worker: int) -> None:
        if self.pipeline.outstanding(worker):
            finish(self.pipeline, worker)

    @rule(worker=st.integers(0, 2), charged=st.booleans())
    def die(self, worker: int, charged: bool) -> None:
        self.pipeline.worker_died(worker, KILLED if charged else None)
        self.pipeline.worker_started(worker)

    @precondition(lambda self: self.pipeline.next_ready() is not None)
    @rule()
    def take(self) -> None:
        batch = self.pipeline.take()
        assert batch.plan.begin == 4 * len(self.taken)
        self.taken.append(batch.plan.begin)
        if batch.slot >= 0:
            self.held.append(batch.slot)

    @precondition(lambda self: self.held)
    @rule()
    def free(self) -> None:
        self.pipeline.freed(self.held.pop(0))

    @invariant()
    def no_slot_has_two_owners(self) -> None:
        if not hasattr(self, "pipeline"):
            return
        written = {
            (part.slot, entry.task.epoch, part.sequence)
            for entries in self.pipeline._assigned.values()
            for entry in entries
            for part in entry.task.parts
        }
        owners = [slot for slot, _, _ in written] + [slot for slot in self.held if slot not in self.pipeline._free]
        assert len(owners) == len(set(owners)), f"{owners} share a slot"
        assert not set(self.pipeline._free) & set(owners)

    def teardown(self) -> None:
        """Whatever happened, everything comes to an end and every slot is free again."""
        if not hasattr(self, "pipeline"):
            return
        pipeline = self.pipeline
        for slot in self.held:
            pipeline.freed(slot)
        for _ in range(200):
            pipeline.orders()
            while pipeline.next_ready() is not None:
                batch = pipeline.take()
                self.taken.append(batch.plan.begin)
                if batch.slot >= 0:
                    pipeline.freed(batch.slot)
            for worker in range(self.workers):
                if pipeline.outstanding(worker):
                    finish(pipeline, worker)
        assert pipeline.ended()
        assert self.taken == [4 * n for n in range(self.batches)]
        assert sorted(pipeline._free) == list(range(self.slots))


TestAnyOrderOfEvents = PipelineMachine.TestCase
TestAnyOrderOfEvents.settings = settings(deadline=None, max_examples=60, stateful_step_count=40)


def test_a_worker_is_told_whether_anybody_wants_what_it_has_done() -> None:
    pipeline = a_pipeline()
    pipeline.begin(epoch=0, plans=plans(2))
    list(pipeline.orders())

    assert pipeline.done(0, answer(pipeline.outstanding(0)[0])) is True
    pipeline.abandon()
    assert pipeline.done(1, answer(pipeline.outstanding(1)[0])) is False

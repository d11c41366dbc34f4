"""How large a unit of work is."""

from __future__ import annotations

from trials.data.core.chunk_size import HELD, TASK_BATCHES_LIMIT, TASK_BYTES_LIMIT, Asked, pipeline_size


def test_quick_batches_go_together_and_more_of_them_are_fetched_ahead():
    size = pipeline_size(Asked(workers=2, batch_size=64), sample_s=2e-6, slot_size=4096, rows_fit=True)

    assert (size.chunk, size.batches) == (0, TASK_BATCHES_LIMIT)
    assert size.ahead == 2 * 2 * TASK_BATCHES_LIMIT
    assert size.slots == size.ahead + HELD


def test_large_batches_do_not_go_together_however_quick_they_are():
    size = pipeline_size(Asked(workers=2, batch_size=8), sample_s=1e-6, slot_size=TASK_BYTES_LIMIT, rows_fit=True)

    assert (size.chunk, size.batches, size.ahead) == (0, 1, 4)


def test_a_slow_batch_is_cut_into_equal_parts_where_several_workers_may_write_to_it():
    asked = Asked(workers=2, batch_size=32)

    assert pipeline_size(asked, sample_s=0.0015, slot_size=4096, rows_fit=True).chunk == 16
    assert pipeline_size(asked, sample_s=0.5, slot_size=4096, rows_fit=True).chunk == 1
    assert pipeline_size(asked, sample_s=0.0015, slot_size=4096, rows_fit=False).chunk == 0


def test_what_is_asked_for_is_what_is_done():
    asked = Asked(workers=3, batch_size=32, chunk_size=5, prefetch_factor=1)
    several = Asked(workers=1, batch_size=4, chunk_size=12)

    assert pipeline_size(asked, sample_s=1e-6, slot_size=4096, rows_fit=True).chunk == 5
    assert pipeline_size(asked, sample_s=1e-6, slot_size=4096, rows_fit=True).ahead == 3
    assert pipeline_size(several, sample_s=9.0, slot_size=4096, rows_fit=True).batches == 3


def test_batches_are_whole_where_no_sample_could_be_tried():
    size = pipeline_size(Asked(workers=2, batch_size=32), sample_s=0.0, slot_size=4096, rows_fit=False)

    assert (size.chunk, size.batches, size.ahead) == (0, 1, 4)

"""The chunk size: how many samples one task of a worker has, chosen from what the first samples were like.

The bytes of a batch do not depend on it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from trials.data.core.in_order_pipeline import PipelineSize

CHUNK_S = 0.01  # of work that several quick batches make up together, where nobody says how large a chunk is
PART_S = 0.03  # of work that a slow batch is cut into
TASK_BATCHES_LIMIT = 16
TASK_BYTES_LIMIT = 8 << 20
DEFAULT_PREFETCH = 2
HELD = 2  # slots that a trial may hold as batches; past them it gets copies


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the loader was told; None where it may find out."""

    workers: int
    batch_size: int
    chunk_size: int | None = None  # samples
    prefetch_factor: int | None = None  # batches for each worker


def pipeline_size(asked: Asked, *, sample_s: float, slot_size: int, rows_fit: bool) -> PipelineSize:
    """``sample_s``: 0 where it is not known. ``rows_fit``: several workers may write to one batch.

    A batch is cut into equal parts when it is slow, several go together when they are quick; each answer of a worker
    costs the trial some hundred microseconds of a processor that is busy with other things.
    """
    rows = asked.batch_size
    samples = asked.chunk_size or (int(CHUNK_S / sample_s) if sample_s else rows)
    ahead = asked.prefetch_factor or DEFAULT_PREFETCH
    few_bytes = max(1, TASK_BYTES_LIMIT // slot_size)
    batches = max(1, min(samples // rows, TASK_BATCHES_LIMIT, few_bytes))
    if asked.prefetch_factor is None:
        ahead = max(ahead, 2 * batches)
    part = asked.chunk_size or -(-rows // max(1, math.ceil(rows * sample_s / PART_S)))
    return PipelineSize(
        slots=ahead * asked.workers + HELD,
        ahead=ahead * asked.workers,
        chunk=part if rows_fit and part < rows else 0,
        batches=min(batches, ahead),
    )

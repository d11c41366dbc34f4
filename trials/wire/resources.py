"""What an attempt used over time, as its parent writes it: a line ``[at_s, memory_bytes, processor_s, processes]``.

A trial may write into its own folder, so whoever reads such a file reads it as a stranger's.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from trials.wire.limits import RESOURCE_SAMPLES, STEP_MAX

STREAM = "resources"  # as ReadLog and the folder of what was collected name it, beside "stdout" and "stderr"
_LINE_CHARACTERS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceSample:
    """``memory_bytes`` and ``processes``: the most since the sample before; ``processor_s``: since the start."""

    at_s: float
    memory_bytes: int
    processor_s: float
    processes: int


def samples_of(text: str) -> list[ResourceSample]:
    """The samples in ``text``, in order of time and no more than there can be; everything else is passed over."""
    found: list[ResourceSample] = []
    for line in text.split("\n"):
        sample = _sample_of(line) if len(line) <= _LINE_CHARACTERS else None
        if sample is None or (found and not _follows(sample, found[-1])):
            continue
        found.append(sample)
        if len(found) == RESOURCE_SAMPLES:
            break
    return found


def _follows(sample: ResourceSample, last: ResourceSample) -> bool:
    return sample.at_s > last.at_s and sample.processor_s >= last.processor_s


def _sample_of(line: str) -> ResourceSample | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, list) or len(value) != 4 or not all(map(_is_amount, value)):
        return None
    at_s, memory_bytes, processor_s, processes = value
    if at_s == 0:
        return None  # nothing is seen at the very start, and rates are divided by it
    return ResourceSample(
        at_s=float(at_s),
        memory_bytes=int(memory_bytes),
        processor_s=float(processor_s),
        processes=int(processes),
    )


def _is_amount(value: Any) -> bool:
    return type(value) in {int, float} and math.isfinite(value) and 0 <= value <= STEP_MAX

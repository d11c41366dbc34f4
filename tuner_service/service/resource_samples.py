"""What an attempt used over time, from where its logs are."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from trials.wire.limits import RESOURCES_BYTES
from trials.wire.resources import STREAM, ResourceSample, samples_of
from tuner_service.domain.errors import UnavailableError
from tuner_service.domain.trial import Attempt
from tuner_service.service.experiments import Experiments
from tuner_service.service.parts import Printed, part_on
from tuner_service.service.views import View


async def resources_view(experiments: Experiments, attempt: Attempt, *, node: int = 0) -> View:
    """As ``Experiments.read_log``: from the agent of that node, or from what that agent sent when the attempt ended."""
    view: View = {"attempt": attempt.key.attempt, "node": node, "ended": attempt.status.is_final}
    try:
        part = await experiments.read_log(
            attempt, stream=STREAM, offset=0, limit=RESOURCES_BYTES, of=Printed(node=node)
        )
    except UnavailableError:
        if not await asyncio.to_thread(_was_collected, experiments, attempt, node):
            raise
        return view | {"samples": []}
    return view | {"samples": _with_cores(samples_of(part.data))}


def _was_collected(experiments: Experiments, attempt: Attempt, node: int) -> bool:
    """Whether all that there is of it is here: of a short attempt only its logs."""
    of_node = replace(attempt, nonce=part_on(attempt, node).nonce)
    return attempt.status.is_final and experiments.collected(of_node, "stdout") is not None


def _with_cores(samples: Sequence[ResourceSample]) -> list[View]:
    """Each with how many cores it used on average since the one before."""
    found: list[View] = []
    at_s = processor_s = 0.0
    for sample in samples:
        found.append(
            {
                "at_s": sample.at_s,
                "memory_bytes": sample.memory_bytes,
                "cores": round((sample.processor_s - processor_s) / max(sample.at_s - at_s, 0.001), 3),
                "processor_s": sample.processor_s,
                "processes": sample.processes,
            }
        )
        at_s, processor_s = sample.at_s, sample.processor_s
    return found

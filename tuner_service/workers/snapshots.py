"""A snapshot as it is stored: an algorithm's memory, behind the name of the code that has made it.

Other code would go on from what it did not make, or could not read it: it is told the whole story instead, from the
journal, which has all that a snapshot says.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache

from tuner_service.config import package_version
from tuner_service.dispatcher.items import Queue
from tuner_service.domain.experiment import AlgorithmSpec, ExperimentSpec

_version = cache(package_version)


def makers(spec: ExperimentSpec) -> Mapping[Queue, str]:
    """The code of the algorithm of each queue: this package, and for a class of a user theirs as well."""
    return {
        Queue.TUNER: _maker(spec.advisor or spec.tuner, spec),
        Queue.ASSESSOR: _maker(spec.assessor or AlgorithmSpec(), spec),
    }


def sealed(memory: str, maker: str) -> str:
    """What is stored of ``memory``, which is JSON, as this is."""
    return f"{_head(maker)}{memory}}}"


def opened(stored: str, maker: str) -> str | None:
    """The memory; None where other code has made it."""
    head = _head(maker)
    return stored[len(head) : -1] if stored.startswith(head) else None


def _head(maker: str) -> str:
    return f'{{"maker":{json.dumps(maker)},"memory":'


def _maker(algorithm: AlgorithmSpec, spec: ExperimentSpec) -> str:
    package = f"tuner-service {_version()}"
    return package if algorithm.class_name is None else f"{package}, code {spec.algorithm_code_digest}"

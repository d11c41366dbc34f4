"""What a service warns of before it is trouble."""

from __future__ import annotations

from enum import StrEnum


class About(StrEnum):
    """What a warning is about, as ``/readyz`` and the measure ``tuner_warning`` name it."""

    CERTIFICATE = "certificate"  # it ends soon
    DATABASE = "database"  # somebody keeps its server from tidying up

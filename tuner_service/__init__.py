"""Tuner Service from a program: ``quick_start`` starts a search, ``connect`` finds those there are.

The names are imported when they are first used, because every part of the service is below this package. ``aio`` has
the same calls for programs that await. Nothing of the server is imported.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuner_service.program import aio
    from tuner_service.program.errors import (
        ConflictError,
        ExperimentFailedError,
        NotAllowedError,
        NotFoundError,
        TunerError,
        UnreachableError,
        UsageError,
        WaitTimeoutError,
    )
    from tuner_service.program.handles import (
        AskedTrial,
        Experiment,
        Service,
        Trial,
        connect,
        quick_start,
        resume_unfinished,
    )

__all__ = [
    "AskedTrial",
    "ConflictError",
    "Experiment",
    "ExperimentFailedError",
    "NotAllowedError",
    "NotFoundError",
    "Service",
    "Trial",
    "TunerError",
    "UnreachableError",
    "UsageError",
    "WaitTimeoutError",
    "aio",
    "connect",
    "quick_start",
    "resume_unfinished",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'tuner_service' has no attribute {name!r}; it has {', '.join(__all__)}")
    if name == "aio":
        return import_module("tuner_service.program.aio")
    home = "errors" if name.endswith("Error") else "handles"
    return getattr(import_module(f"tuner_service.program.{home}"), name)


def __dir__() -> list[str]:
    return __all__

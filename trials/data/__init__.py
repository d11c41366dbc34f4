"""Loading data into a trial: exact, resumable, and as fast as the machine.

``AsyncDataLoader`` takes the place of torch's ``DataLoader``; ``shared`` loads once for all trials of a node. The names
are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trials.data.async_data_loader import AsyncDataLoader
    from trials.data.errors import (
        BrokenReferenceError,
        DataLoadingError,
        DatasetMismatch,
        LoaderClosed,
        LoaderTimeout,
        SampleError,
        SharingError,
        SourceError,
        StateError,
        WorkerDied,
    )
    from trials.data.reference_files import Reference, references
    from trials.data.sharing.producer_lookup import shared
    from trials.data.sharing.shared_data_loader import SharedDataLoader, Sharing

__all__ = [
    "AsyncDataLoader",
    "BrokenReferenceError",
    "DataLoadingError",
    "DatasetMismatch",
    "LoaderClosed",
    "LoaderTimeout",
    "Reference",
    "SampleError",
    "SharedDataLoader",
    "Sharing",
    "SharingError",
    "SourceError",
    "StateError",
    "WorkerDied",
    "references",
    "shared",
]

_HOMES = {
    "AsyncDataLoader": "async_data_loader",
    "Reference": "reference_files",
    "SharedDataLoader": "sharing.shared_data_loader",
    "Sharing": "sharing.shared_data_loader",
    "references": "reference_files",
    "shared": "sharing.producer_lookup",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'trials.data' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(f"trials.data.{_HOMES.get(name, 'errors')}"), name)

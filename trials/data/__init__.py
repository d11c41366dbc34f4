"""Loading data into a trial."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trials.data.loader import AsyncDataLoader
    from trials.data.shared_loader import SharedDataLoader, Sharing
    from trials.data.shared_sdk import shared

__all__ = ["AsyncDataLoader", "SharedDataLoader", "Sharing", "shared"]

_HOMES = {
    "AsyncDataLoader": "loader",
    "SharedDataLoader": "shared_loader",
    "Sharing": "shared_loader",
    "shared": "shared_sdk",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'trials.data' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(f"trials.data.{_HOMES[name]}"), name)

"""What requests are sent to, and how columns are read: pure functions of the client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

ACCEPTED = 202
_BYTES = "surrogateescape"  # what was typed and is no text goes as its bytes; the service has nothing of that name


def target_of(path: str, query: Mapping[str, Any] | None) -> str:
    return path + ("?" + urlencode(query, doseq=True, errors=_BYTES) if query else "")


def group_path(name: str) -> str:
    return f"/api/v1/quota-groups/{quote(name, safe='', errors=_BYTES)}"


def cells(column: Any) -> list[Any]:
    """Of a column of words each trial's own."""
    if isinstance(column, list):
        return column
    words: list[Any] = [*column["words"], None]  # -1 stands for none
    return [words[code] for code in column["codes"]]


def agent_path(name: str) -> str:
    return f"/api/v1/agents/{quote(name, safe='', errors=_BYTES)}"


def asset_path(reference: str) -> str:
    return f"/api/v1/assets/{quote(reference, safe='@:', errors=_BYTES)}"


def experiment_path(experiment_id: str) -> str:
    return f"/api/v1/experiments/{quote(experiment_id, safe='', errors=_BYTES)}"


def trial_path(experiment_id: str, number: int) -> str:
    return f"/api/v1/trials/{quote(experiment_id, safe='', errors=_BYTES)}/{number}"


def is_done(status: int) -> bool:
    """Of an answer to a change: False where it says that this takes longer."""
    return status != ACCEPTED

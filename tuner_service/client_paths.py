"""What requests are sent to, why one cannot be written, how columns are read: pure functions of the client."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, urlencode

ACCEPTED = 202
MOST_DEEP = 50  # levels in one another, of which a service takes no more
MOST_WHOLE = 10**1_000  # of which a service takes no more digits
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


def token_path(name: str) -> str:
    return f"/api/v1/tokens/{quote(name, safe='', errors=_BYTES)}"


def asset_path(reference: str) -> str:
    return f"/api/v1/assets/{quote(reference, safe='@:', errors=_BYTES)}"


def experiment_path(experiment_id: str) -> str:
    return f"/api/v1/experiments/{quote(experiment_id, safe='', errors=_BYTES)}"


def trial_path(experiment_id: str, number: int) -> str:
    return f"/api/v1/trials/{quote(experiment_id, safe='', errors=_BYTES)}/{number}"


def unwritable(body: Any) -> str:
    """Which number of ``body`` JSON does not have, by its pointer; empty where that is not why it cannot be written."""
    return _unwritable(body, "", set())


def _unwritable(item: Any, pointer: str, seen: set[int]) -> str:
    """``seen``: what was looked into already, by its identity, so that what holds itself has an end."""
    if isinstance(item, float) and not math.isfinite(item):
        return f"{pointer or '/'} is {item}, and a number there is finite"
    if isinstance(item, int) and abs(item) > MOST_WHOLE:
        return f"{pointer or '/'} is a whole number of too many digits"
    parts: Iterable[tuple[Any, Any]] = ()
    if id(item) not in seen and pointer.count("/") < MOST_DEEP:
        parts = item.items() if isinstance(item, Mapping) else enumerate(item) if isinstance(item, list | tuple) else ()
    seen.add(id(item))
    found = (_unwritable(part, f"{pointer}/{name}", seen) for name, part in parts)
    return next(filter(None, found), "")


def is_done(status: int) -> bool:
    """Of an answer to a change: False where it says that this takes longer."""
    return status != ACCEPTED

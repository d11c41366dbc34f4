"""What requests are sent to, why one cannot be written, how columns are read: pure functions of the client."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

ACCEPTED = 202
LOOKED_AT = 100_000  # values of a request that cannot be written, for the one that is why
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


def asset_path(reference: str) -> str:
    return f"/api/v1/assets/{quote(reference, safe='@:', errors=_BYTES)}"


def experiment_path(experiment_id: str) -> str:
    return f"/api/v1/experiments/{quote(experiment_id, safe='', errors=_BYTES)}"


def trial_path(experiment_id: str, number: int) -> str:
    return f"/api/v1/trials/{quote(experiment_id, safe='', errors=_BYTES)}/{number}"


def unwritable(body: Any) -> str:
    """Which number of ``body`` JSON does not have, by its pointer; empty where that is not why it cannot be written."""
    pending, seen = [("", body)], 0
    while pending and seen < LOOKED_AT:
        pointer, item = pending.pop()
        seen += 1
        if isinstance(item, Mapping):
            pending += [(f"{pointer}/{name}", part) for name, part in item.items()]
        elif isinstance(item, list | tuple):
            pending += [(f"{pointer}/{place}", part) for place, part in enumerate(item)]
        elif isinstance(item, float) and not math.isfinite(item):
            return f"{pointer or '/'} is {item}, and a number there is finite"
        elif isinstance(item, int) and abs(item) > MOST_WHOLE:
            return f"{pointer or '/'} is a whole number of too many digits"
    return ""


def is_done(status: int) -> bool:
    """Of an answer to a change: False where it says that this takes longer."""
    return status != ACCEPTED

"""Paths that an experiment file names: made absolute as it is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

KINDS = {"datasets": "dataset", "models": "model"}  # field: what a folder of it is added as


def placed(trial: dict[str, Any], folder: Path) -> dict[str, Any]:
    """``trial`` whose paths are absolute; they were relative to ``folder``."""

    def place(value: Any) -> Any:
        match value:
            case str() if is_path(value):
                return str((folder / Path(value).expanduser()).absolute())
            case {"path": str()}:
                return {**value, "path": str((folder / Path(value["path"]).expanduser()).absolute())}
            case _:
                return value

    found = {
        field: {name: each(value, place) for name, value in trial[field].items()}
        for field in KINDS
        if isinstance(trial.get(field), dict)
    }
    return {**trial, **found}


def is_path(text: str) -> bool:
    """Whether a text means a place here; any other is the name or the digest of an asset."""
    return "/" in text or text.startswith((".", "~"))


def each(value: Any, make: Callable[[Any], Any]) -> Any:
    return [make(one) for one in value] if isinstance(value, list) else make(value)

"""Paths that an experiment file names: made absolute as it is read."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tuner_service.cli.output.exit_codes import CommandError, ExitCode

KINDS = {"datasets": "dataset", "models": "model"}  # field: what a folder of it is added as


def placed(trial: dict[str, Any], folder: Path) -> dict[str, Any]:
    """``trial`` whose paths are absolute; they were relative to ``folder``."""

    def place(what: str, value: Any) -> Any:
        match value:
            case str() if is_path(value):
                return str((folder / local_path(value, what)).absolute())
            case {"path": str()}:
                return {**value, "path": str((folder / local_path(value["path"], what)).absolute())}
            case _:
                return value

    found = {
        field: {name: each(value, partial(place, f"trial.{field}.{name}")) for name, value in trial[field].items()}
        for field in KINDS
        if isinstance(trial.get(field), dict)
    }
    return {**trial, **found}


def local_path(text: str, what: str) -> Path:
    """A path of this machine as it is written, with the home folder that a ~ stands for.

    CommandError names ``what`` it was to be the path of, where no file can have it.
    """
    try:
        if b"\0" not in os.fsencode(text):
            return Path(text).expanduser()
    except UnicodeEncodeError:
        pass
    except RuntimeError as exc:
        message = f"{what}: {text} begins with ~, and there is no such user or home folder; write it in full"
        raise CommandError(message, ExitCode.USAGE) from exc
    raise CommandError(f"{what}: no file has the path {text!r:.200}", ExitCode.USAGE)


def is_path(text: str) -> bool:
    """Whether a text means a place here; any other is the name or the digest of an asset."""
    return "/" in text or text.startswith((".", "~"))


def each(value: Any, make: Callable[[Any], Any]) -> Any:
    return [make(one) for one in value] if isinstance(value, list) else make(value)

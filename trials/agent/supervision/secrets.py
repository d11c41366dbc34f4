"""Secrets of the home folder: one file each, which a trial is given as a variable when it starts, and nothing else has.

A supervisor imports this module when it starts, so the module imports little.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from trials.agent.supervision.starting import LaunchFailedError
from trials.files import is_scarce, read_bytes
from trials.wire.variables import NAME_OF_SECRET


def secret_values(spec: Mapping[str, Any], *, folder: str) -> dict[str, str]:
    """The variables whose values are secrets, from the files of their names in ``folder``. LaunchFailedError.

    OSError where one could be read later, with more descriptors or memory.
    """
    return {variable: _value(name, folder) for variable, name in (spec.get("secrets") or {}).items()}


def _value(name: str, folder: str) -> str:
    if not re.fullmatch(NAME_OF_SECRET, name):
        raise LaunchFailedError(f"{name!r} is no name of a secret")
    try:
        value = read_bytes(f"{folder}/{name}").decode()
    except FileNotFoundError as error:
        raise LaunchFailedError(f"the secret {name} is not set; `tuner secret set {name}` sets it") from error
    except (OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and is_scarce(error):
            raise
        raise LaunchFailedError(f"the secret {name} cannot be read: {error}") from error
    if "\0" in value:
        raise LaunchFailedError(f"the secret {name} holds a zero byte, which no variable can")
    return value

"""NNI's functions outside a trial, where they do what NNI's own do: no parameters, and results as lines."""

from __future__ import annotations

import itertools
import sys
import warnings
from typing import Any

STANDALONE = "STANDALONE"


class _Script:
    """What NNI remembers of a script that runs alone."""

    def __init__(self) -> None:
        self.parameters: dict[str, Any] | None = None
        self.numbers = itertools.count()


_script = _Script()


def get_next_parameter() -> dict[str, Any]:
    """None are chosen: an empty dict, and a RuntimeWarning that says so."""
    warnings.warn("no trial runs here, so there are no parameters; the script goes on with its own", RuntimeWarning, 3)
    _script.parameters = {}
    return _script.parameters


def get_current_parameter(tag: str | None = None) -> Any:
    """None before ``get_next_parameter``; KeyError for any ``tag`` after it."""
    if _script.parameters is None:
        return None
    return _script.parameters if tag is None else _script.parameters[tag]


def report_intermediate_result(metric: Any) -> None:
    sys.stdout.write(f"Intermediate result: {metric}  (Index {next(_script.numbers)})\n")


def report_final_result(metric: Any) -> None:
    sys.stdout.write(f"Final result: {metric}\n")


def get_experiment_id() -> str:
    return STANDALONE


def get_trial_id() -> str:
    return STANDALONE


def get_sequence_id() -> int:
    return 0

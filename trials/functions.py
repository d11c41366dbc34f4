"""Runs a function as a trial: ``python -m trials.functions MODULE:FUNCTION``.

Its arguments are the parameters of their names; one called ``trial`` that is no parameter is the trial itself. What it
returns is reported as the result, unless it reports one itself: a number is the objective, a mapping several metrics.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from trials.session import Trial, init

TRIAL = "trial"


class ArgumentMissingError(TypeError):
    """The function names an argument that is neither a parameter of the search nor has a default."""


def call(function: Callable[..., Any], *, trial: Trial | None = None) -> Any:
    """Call ``function`` once with this process's trial, or ``trial``; what it returns is the result."""
    opened = trial or init()
    finals: list[bool] = []
    opened.on_report(lambda step, _: finals.append(step is None))
    with opened:
        result = function(**arguments_of(function, opened))
        if result is not None and not any(finals):
            opened.report_final(result if isinstance(result, Mapping) else {opened.objective: result})
    return result


def arguments_of(function: Callable[..., Any], trial: Trial) -> dict[str, Any]:
    """ArgumentMissingError names what is wanted and not there."""
    given: dict[str, Any] = {}
    missing: list[str] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            given = {**trial.parameters, **given}
        elif parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            continue
        elif name in trial.parameters and parameter.kind is not inspect.Parameter.POSITIONAL_ONLY:
            given[name] = trial.parameters[name]
        elif name == TRIAL:
            given[name] = trial
        elif parameter.default is inspect.Parameter.empty:
            missing.append(name)
    if missing:
        raise ArgumentMissingError(
            f"{getattr(function, '__name__', 'the function')} wants {', '.join(missing)}; the parameters of the trial "
            f"are {', '.join(trial.parameters) or 'none'}: add the others to the search space, or give them a default"
        )
    return given


def main(arguments: Sequence[str]) -> None:
    if not arguments or ":" not in arguments[0]:
        raise SystemExit("usage: python -m trials.functions MODULE:FUNCTION [NAME=VALUE …]")
    module, _, name = arguments[0].partition(":")
    sys.argv[1:] = arguments[1:]
    call(getattr(import_module(module), name))


if __name__ == "__main__":
    main(sys.argv[1:])

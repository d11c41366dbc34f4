"""NNI's functions for trials, so that its scripts run as they are."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from trials.session import Trial, init


def get_next_parameter() -> dict[str, Any] | None:
    """The parameters of this trial; called again, further ones for the same trial, or None when there are none."""
    parameters = init().first_or_next_parameters()
    return None if parameters is None else dict(parameters)


def get_current_parameter(tag: str | None = None) -> Any:
    """The parameters, or the one named ``tag``."""
    parameters = init().parameters
    return dict(parameters) if tag is None else parameters.get(tag)


def report_intermediate_result(metric: Any) -> None:
    """A number is the objective at the next step; of a dict, ``default`` is, and other numbers keep their names."""
    trial = init()
    trial.report(_named(trial, metric))


def report_final_result(metric: Any) -> None:
    """As report_intermediate_result, for the result."""
    trial = init()
    trial.report_final(_named(trial, metric))


def get_experiment_id() -> str:
    return init().experiment_id


def get_trial_id() -> str:
    trial = init()
    return f"{trial.experiment_id}-{trial.number}"


def get_sequence_id() -> int:
    """The number of the trial, counted from 0 as NNI does."""
    return init().number - 1


def _named(trial: Trial, metric: Any) -> dict[str, Any]:
    if not isinstance(metric, Mapping):
        return {trial.objective: metric}
    if "default" not in metric and trial.objective not in metric:
        raise TypeError(f"a reported dict needs the key 'default' or {trial.objective!r}; it has {sorted(metric)}")
    named = {trial.objective if name == "default" else str(name): value for name, value in metric.items()}
    # NNI shows such extras on its page and nowhere else, so scripts put text among them.
    dropped = [
        name for name, value in named.items() if isinstance(value, str | list | dict) and name != trial.objective
    ]
    if dropped:
        sys.stderr.write(f"not reported, because they are no numbers: {', '.join(dropped)}\n")
    return {name: value for name, value in named.items() if name not in dropped}

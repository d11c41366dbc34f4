"""NNI's functions for trials, so that its scripts run as they are."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trials.nni.folders import FOLDER, LOAD, SAVE, CheckpointFolders
from trials.session import Trial, init
from trials.wire.files import ENV_ATTEMPT_DIR


class _Script:
    """What has to be remembered of the script between its calls."""

    def __init__(self) -> None:
        self._folders: CheckpointFolders | None = None
        self._named: dict[str, str] = {}

    def given(self, trial: Trial, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """With folders of the attempt, where a script for population based training is to find them."""
        attempt = os.environ.get(ENV_ATTEMPT_DIR)
        if attempt is None or not {LOAD, SAVE} <= parameters.keys():
            return dict(parameters)
        if self._folders is None:
            self._folders = CheckpointFolders(Path(attempt) / FOLDER)
            self._named = self._folders.begin(trial)
        return {**parameters, **self._named}

    def save_folders(self, trial: Trial) -> bool:
        """False where the script has none."""
        if self._folders is None:
            return False
        self._folders.save(trial)
        return True


_script = _Script()


def get_next_parameter() -> dict[str, Any] | None:
    """The parameters of this trial; called again, further ones for the same trial, or None when there are none."""
    trial = init()
    parameters = trial.first_or_next_parameters()
    return None if parameters is None else _script.given(trial, parameters)


def get_current_parameter(tag: str | None = None) -> Any:
    """The parameters, or the one named ``tag``."""
    trial = init()
    parameters = _script.given(trial, trial.parameters)
    return parameters if tag is None else parameters.get(tag)


def report_intermediate_result(metric: Any) -> None:
    """A number is the objective at the next step; of a dict, ``default`` is, and other numbers keep their names.

    A script that has NNI's checkpoint folders leaves here (SystemExit) when the trial is to rest or to stop: what it
    saved before is a checkpoint by then.
    """
    trial = init()
    trial.report(_named(trial, metric))
    if _script.save_folders(trial) and trial.should_stop():
        sys.exit(0)


def report_final_result(metric: Any) -> None:
    """As report_intermediate_result, for the result; the script goes on to its end."""
    trial = init()
    _script.save_folders(trial)
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

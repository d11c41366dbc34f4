"""Stands in for NNI: inside a trial of an experiment with ``compat: nni``, and for a script that runs alone.

Which of the two it is, is looked up at each call: this module may have been imported before there was a trial, by the
process that trials are forked from.
"""

import os as _os
from typing import Any as _Any

from trials.wire.files import ENV_ATTEMPT_DIR as _ENV_ATTEMPT_DIR


def _functions() -> _Any:
    if _ENV_ATTEMPT_DIR in _os.environ:
        from trials.nni import calls as functions
    else:
        from trials.nni import alone as functions  # type: ignore[no-redef]  # the same names
    return functions


def get_next_parameter() -> _Any:
    return _functions().get_next_parameter()


def get_current_parameter(tag: str | None = None) -> _Any:
    return _functions().get_current_parameter(tag)


def report_intermediate_result(metric: _Any) -> None:
    _functions().report_intermediate_result(metric)


def report_final_result(metric: _Any) -> None:
    _functions().report_final_result(metric)


def get_experiment_id() -> str:
    return str(_functions().get_experiment_id())


def get_trial_id() -> str:
    return str(_functions().get_trial_id())


def get_sequence_id() -> int:
    return int(_functions().get_sequence_id())


get_next_parameters = get_next_parameter

__all__ = [
    "get_current_parameter",
    "get_experiment_id",
    "get_next_parameter",
    "get_next_parameters",
    "get_sequence_id",
    "get_trial_id",
    "report_final_result",
    "report_intermediate_result",
]

"""Objectives written for Optuna, run as trials. Optuna itself is not needed.

    from trials.integrations.optuna import run

    def objective(trial):
        lr = trial.suggest_float("lr", 1e-4, 1e-1, log=True)
        ...
        return loss

    run(objective)

The search space stands in the experiment file, because the service proposes before the script runs;
``search_space(objective)`` writes it from the ``suggest_…`` calls.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trials.session import Trial, init

PRUNED = "TrialPruned"  # Optuna's exception, known by its name so that Optuna need not be imported
Objective = Callable[["ObjectiveTrial"], "float | Sequence[float] | None"]


class ParameterMissingError(KeyError):
    """The experiment's search space has no such parameter; the text says what to add to it."""

    def __init__(self, name: str, form: Mapping[str, Any]) -> None:
        super().__init__(name)
        self.name, self.form = name, form

    def __str__(self) -> str:
        return (
            f"the trial was given no parameter {self.name!r}; add to search_space: {json.dumps({self.name: self.form})}"
        )


class ParameterOutsideError(ValueError):
    """The experiment's search space is wider than what the objective asks for."""

    def __init__(self, name: str, value: Any, form: Mapping[str, Any]) -> None:
        super().__init__(
            f"{name} is {value!r}, outside of {json.dumps(form)}; make the search space of the experiment so"
        )
        self.name, self.value, self.form = name, value, form


class ObjectiveTrial:
    """What an objective sees: Optuna's calls, answered by the parameters of a trial of ours.

    A script that runs alone, without a parameter, gets the middle of the range, or the first choice.
    """

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._is_alone = trial.experiment_id == "alone"
        self.number = trial.number - 1  # as Optuna counts
        self.params: dict[str, Any] = {}
        self.user_attrs: dict[str, Any] = {}

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        form = {
            "type": "float",
            "low": low,
            "high": high,
            **({"step": step} if step else {}),
            **({"log": True} if log else {}),
        }
        middle = math.sqrt(low * high) if log else (low + high) / 2
        if step:
            middle = low + round((middle - low) / step) * step
        return float(self._given(name, form, middle, fits=lambda value: low <= value <= high))

    def suggest_int(self, name: str, low: int, high: int, *, step: int = 1, log: bool = False) -> int:
        form = {
            "type": "int",
            "low": low,
            "high": high,
            **({"step": step} if step != 1 else {}),
            **({"log": True} if log else {}),
        }
        middle = round(math.sqrt(low * high)) if log else low + (high - low) // 2 // step * step
        return int(self._given(name, form, middle, fits=lambda value: low <= value <= high))

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        form = {"type": "categorical", "choices": list(choices)}
        return self._given(name, form, choices[0], fits=lambda value: value in choices)

    def report(self, value: float, step: int) -> None:
        self._trial.report({self._trial.objective: value}, step=step)

    def should_prune(self) -> bool:
        """Whether the service wants the trial to end: the assessor's verdict, or a stop."""
        return self._trial.should_stop()

    def set_user_attr(self, key: str, value: Any) -> None:
        self.user_attrs[key] = value

    def _given(self, name: str, form: Mapping[str, Any], middle: Any, *, fits: Callable[[Any], bool]) -> Any:
        if name in self._trial.parameters:
            value = self._trial.parameters[name]
            if not fits(value):
                raise ParameterOutsideError(name, value, form)
        elif self._is_alone:
            value = middle
        else:
            raise ParameterMissingError(name, form)
        self.params[name] = value
        return value


def run(
    objective: Objective, *, metrics: Sequence[str] | None = None, trial: Trial | None = None
) -> float | Sequence[float] | None:
    """Call ``objective`` once with this process's trial, or ``trial``; what it returns is reported as the result.

    ``metrics`` names the values of an objective that returns several; without it the one value is the experiment's
    objective. ``optuna.TrialPruned`` ends the trial quietly: it was stopped, and its last report stands.
    """
    with trial or init() as opened:
        try:
            result = objective(ObjectiveTrial(opened))
        except Exception as error:  # Optuna's own is meant, which cannot be named without it
            if not any(kind.__name__ == PRUNED for kind in type(error).__mro__):
                raise
            return None
        if result is None:
            return None
        names = list(metrics or [opened.objective])
        values = list(result) if isinstance(result, Sequence) else [result]
        if len(names) != len(values):
            raise ValueError(
                f"the objective returned {len(values)} values for {len(names)} metrics: {', '.join(names)}"
            )
        opened.report_final(dict(zip(names, values, strict=True)))
        return result


class _Enough(BaseException):
    """The objective began to train: what it suggested until then is its search space."""


class _Recorder(ObjectiveTrial):
    def __init__(self) -> None:
        self.number = 0
        self.params, self.user_attrs = {}, {}
        self.forms: dict[str, Mapping[str, Any]] = {}

    def report(self, value: float, step: int) -> None:
        del value, step
        raise _Enough

    def should_prune(self) -> bool:
        raise _Enough

    def _given(self, name: str, form: Mapping[str, Any], middle: Any, *, fits: Callable[[Any], bool]) -> Any:
        del fits
        self.forms[name] = form
        self.params[name] = middle
        return middle


def search_space(objective: Objective) -> dict[str, Any]:
    """The parameters that ``objective`` asks for before its first report, in the form of an experiment file.

    Runs it with the middle of every range, so parameters behind a condition that the middle does not meet are not
    found.
    """
    recorder = _Recorder()
    with contextlib.suppress(_Enough):
        objective(recorder)
    return {name: dict(form) for name, form in recorder.forms.items()}

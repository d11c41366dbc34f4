"""Objectives written for Optuna, run as trials. Optuna itself is not needed.

    from trials.integrations.optuna import run

    def objective(trial):
        lr = trial.suggest_float("lr", 1e-4, 1e-1, log=True)
        ...
        return loss

    run(objective)

The service proposes before the script runs, so the search space stands in the experiment file: ``explored(objective)``
writes it from the ``suggest_…`` calls of every branch that it sees. With ``trial.define_by_run`` in the file the space
grows by what the objective asks for and was not given.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from trials.session import Trial, init
from trials.wire.growth import GrowthRefusedError, grown, options_of
from trials.wire.values import is_one_of

MOST_RUNS = 1_000  # of an objective whose branches are looked for
LOOK_S = 10.0  # for which no further run of it is begun
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


class _Missing(BaseException):
    """The objective asks for a parameter that it was not given, of an experiment whose search space may grow."""

    def __init__(self, name: str, form: Mapping[str, Any], beside: Mapping[str, Any]) -> None:
        super().__init__(name)
        self.name, self.form, self.beside = name, dict(form), dict(beside)


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
        self._branch: dict[str, Any] = {}  # of ``params`` those that may say in which branch the objective is

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
        return self._given(name, form, choices[0], fits=lambda value: is_one_of(value, choices))

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
        elif self._trial.define_by_run:
            raise _Missing(name, form, self._branch)
        else:
            raise ParameterMissingError(name, form)
        self.params[name] = value
        if value in options_of(form):
            self._branch[name] = value
        return value


def run(
    objective: Objective, *, metrics: Sequence[str] | None = None, trial: Trial | None = None
) -> float | Sequence[float] | None:
    """Call ``objective`` once with this process's trial, or ``trial``; what it returns is reported as the result.

    ``metrics`` names the values of an objective that returns several; without it the one value is the experiment's
    objective. ``optuna.TrialPruned`` ends the trial quietly: it was stopped, and its last report stands.

    Where the search space grows, an objective that asks for what it was not given is called again, from its beginning,
    with parameters that have it.
    """
    with trial or init() as opened:
        try:
            result = _called(objective, opened)
        except Exception as error:  # Optuna's own is meant, which cannot be named without it
            if not _is_pruned(error):
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


def _called(objective: Objective, trial: Trial) -> float | Sequence[float] | None:
    """What it returns; None where the trial is to stop before it has all its parameters."""
    asked: list[tuple[str, Mapping[str, Any]]] = []
    while True:
        try:
            return objective(ObjectiveTrial(trial))
        except _Missing as missing:
            if (missing.name, missing.beside) in asked:  # the space did not grow so; the service has noted why
                raise ParameterMissingError(missing.name, missing.form) from None
            asked.append((missing.name, missing.beside))
            trial.misses_parameters({missing.name: missing.form}, beside=missing.beside)
            if trial.next_parameters() is None:
                if trial.should_stop():
                    return None
                raise ParameterMissingError(missing.name, missing.form) from None


def _is_pruned(error: BaseException) -> bool:
    return any(kind.__name__ == PRUNED for kind in type(error).__mro__)


# ── looking at an objective ─────────────────────────────────────────────────────────────────────
class _Enough(BaseException):
    """The objective began to train: what it suggested until then is its search space."""


@dataclass(frozen=True, kw_only=True)
class Explored:
    """``search_space`` has every parameter of every branch that was seen, with ``when`` it is asked for.

    ``is_whole``: every choice of every parameter with few options was made, and the ends and the middle of the others.
    """

    search_space: dict[str, Any]
    runs: int
    is_whole: bool
    failures: tuple[str, ...] = ()  # of branches that end in an error, which then have no more parameters

    def __str__(self) -> str:
        seen = f"all branches that were seen, in {self.runs} runs up to the first report"
        if not self.is_whole:
            seen += f"; there are more ways through it than {MOST_RUNS} runs or {LOOK_S:g} s show, and maybe parameters"
        failures = [f"; a branch ended with {failure}" for failure in self.failures]
        return seen + "".join(failures)


class _Explorer(ObjectiveTrial):
    """Takes the ways that ``wanted`` says, and beyond them the first of each; notes how many there were."""

    def __init__(self, wanted: Sequence[int]) -> None:
        self.number = 0
        self.params, self.user_attrs = {}, {}
        self.taken: list[int] = []
        self.ways: list[int] = []
        self.asked: list[tuple[str, dict[str, Any], dict[str, Any]]] = []  # name, range, branch
        self._wanted = wanted
        self._branch = {}

    def report(self, value: float, step: int) -> None:
        del value, step
        raise _Enough

    def should_prune(self) -> bool:
        raise _Enough

    def _given(self, name: str, form: Mapping[str, Any], middle: Any, *, fits: Callable[[Any], bool]) -> Any:
        del fits
        if name not in self.params:
            options = options_of(form) or list(dict.fromkeys([middle, *_ends(form)]))
            place = len(self.taken)
            way = (
                self._wanted[place] if place < len(self._wanted) else options.index(middle) if middle in options else 0
            )
            self.taken.append(way)
            self.ways.append(len(options))
            self.asked.append((name, dict(form), dict(self._branch)))
            self.params[name] = options[way]
            if options_of(form):
                self._branch[name] = options[way]
        return self.params[name]


def _ends(form: Mapping[str, Any]) -> Sequence[Any]:
    return (form["low"], form["high"]) if "low" in form else form["choices"]


def explored(objective: Objective) -> Explored:
    """Run ``objective`` up to its first report, again and again, until every branch was taken or the bounds are met.

    What it raises in its first run is raised; later it ends that branch.
    """
    begun = time.monotonic()
    space: dict[str, Any] = {}
    failures: dict[str, None] = {}
    open_ways: deque[list[int]] = deque([[]])
    runs = 0
    while open_ways and runs < MOST_RUNS and (not runs or time.monotonic() - begun < LOOK_S):
        wanted = open_ways.popleft()
        explorer = _Explorer(wanted)
        failure = _run_through(objective, explorer, is_first=not runs)
        runs += 1
        failures |= dict.fromkeys([failure] if failure else [])
        for name, form, branch in explorer.asked:
            try:
                space = grown(space, name, form, branch)
            except GrowthRefusedError as exc:
                failures[str(exc)] = None
        open_ways.extend(_others(explorer, beyond=len(wanted)))
    return Explored(search_space=space, runs=runs, is_whole=not open_ways, failures=tuple(failures))


def _run_through(objective: Objective, explorer: _Explorer, *, is_first: bool) -> str:
    try:
        objective(explorer)
    except _Enough:
        return ""
    except Exception as error:
        if _is_pruned(error):
            return ""
        if is_first:
            raise
        return f"{type(error).__name__}: {error}"[:200]
    return ""


def _others(explorer: _Explorer, *, beyond: int) -> Iterator[list[int]]:
    """The ways that part from this one, each once: at every place that was not wished for."""
    for place in range(beyond, len(explorer.taken)):
        for way in range(explorer.ways[place]):
            if way != explorer.taken[place]:
                yield [*explorer.taken[:place], way]


def search_space(objective: Objective) -> dict[str, Any]:
    """The parameters that ``objective`` asks for before its first report, in the form of an experiment file.

    Those of all branches that ``explored`` sees, each with the condition under which it is asked for.
    """
    return explored(objective).search_space


def main(arguments: Sequence[str]) -> None:
    """``python -m trials.integrations.optuna MODULE:OBJECTIVE`` prints the space, and on standard error what it has."""
    if len(arguments) != 1 or ":" not in arguments[0]:
        raise SystemExit("usage: python -m trials.integrations.optuna MODULE:OBJECTIVE")
    module, _, name = arguments[0].partition(":")
    found = explored(getattr(import_module(module), name))
    sys.stdout.write(json.dumps({"search_space": found.search_space}, indent=2) + "\n")
    sys.stderr.write(f"{found}\n")


if __name__ == "__main__":
    main(sys.argv[1:])

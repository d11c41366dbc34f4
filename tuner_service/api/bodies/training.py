"""A training without a search: an experiment file without ``search_space``. It is one trial, all else the same."""

from __future__ import annotations

from typing import Any

from tuner_service.domain.errors import Fault
from tuner_service.domain.experiment import AlgorithmSpec, Objective

METRIC = "default"  # of a training that names no objective: what the script reports without a name
_TUNERS = (None, "auto", "random")  # those that ask for nothing; the last is what such a file resolves to
TUNER = AlgorithmSpec(name="random", reason="there is no search space: the one trial is the training itself")
OBJECTIVE = Objective(metric=METRIC, is_optional=True)


def is_training(raw: dict[str, Any]) -> bool:
    """A script that says itself what it searches makes a search of a file without a space, too."""
    trial = raw.get("trial")
    is_defined_by_run = isinstance(trial, dict) and trial.get("define_by_run") is True
    return raw.get("search_space") in (None, {}) and not is_defined_by_run


def training_faults(raw: dict[str, Any]) -> list[Fault]:
    """What only a search can have."""
    faults = []
    given = raw.get("tuner")
    name = given.get("name") if isinstance(given, dict) else given
    is_class = isinstance(given, dict) and given.get("class") is not None
    if is_class or (isinstance(name, str | None) and name not in _TUNERS):
        faults.append(_nothing_to("tuner", "choose"))
    faults += [_nothing_to(kind, "judge") for kind in ("assessor", "advisor") if raw.get(kind) not in (None, "auto")]
    if raw.get("warm_start"):
        faults.append(_nothing_to("warm_start", "learn"))
    budget = raw.get("budget")
    trials = budget.get("trials") if isinstance(budget, dict) else None
    if trials not in (None, 1):
        message = (
            f"without search_space there is one trial, not {trials!r:.20}; describe what to search in search_space"
        )
        faults.append(Fault(pointer="/budget/trials", message=message))
    return faults


def search_faults(raw: dict[str, Any]) -> list[Fault]:
    """What a search cannot do without."""
    faults = []
    if raw.get("objective") is None:
        faults.append(Fault(pointer="/objective", message="is missing: what is the search to minimize or maximize?"))
    for place, one in _objectives(raw.get("objective")):
        if one.get("optional") is True:
            message = "only a training without search_space may end without its objective"
            faults.append(Fault(pointer=f"/objective{place}/optional", message=message))
    return faults


def _objectives(given: Any) -> list[tuple[str, dict[str, Any]]]:
    found = [("", given)] if isinstance(given, dict) else []
    if isinstance(given, list):
        found = [(f"/{place}", one) for place, one in enumerate(given) if isinstance(one, dict)]
    return found


def _nothing_to(field: str, verb: str) -> Fault:
    return Fault(pointer=f"/{field}", message=f"there is no search_space, and so nothing to {verb}; leave it out")

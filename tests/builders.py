"""Rows for tests: sensible ones by default, any field by keyword."""

from __future__ import annotations

from typing import Any

from trials.wire.attempt import AttemptKey
from tuner_service.dispatcher.changes import JournalLine, MetricRow
from tuner_service.dispatcher.items import Queue
from tuner_service.domain.experiment import (
    AlgorithmSpec,
    Budget,
    Experiment,
    ExperimentSpec,
    ExperimentStatus,
    Objective,
    TrialTemplate,
)
from tuner_service.domain.trial import Attempt, AttemptStatus, Checkpoint, Trial, TrialStatus

EXPERIMENT_ID = "8f3k2"
START = 1_750_000_000.0  # seconds since the epoch


class StillClock:
    """It stands at ``START``."""

    def now(self) -> float:
        return START


def a_search_space(**overrides: Any) -> dict[str, Any]:
    """Plain JSON, as a person writes it; keywords add or replace parameters."""
    space = {
        "lr": {"type": "float", "low": 0.0001, "high": 0.1, "log": True},
        "batch": {"type": "int", "low": 16, "high": 256},
    }
    return space | overrides


def a_spec(**overrides: Any) -> ExperimentSpec:
    """``budget`` and ``trial`` may be given as dicts of the fields to set."""
    budget = overrides.pop("budget", {})
    template = overrides.pop("trial", {})
    fields: dict[str, Any] = {
        "name": "digits",
        "seed": 7,
        "objective": Objective(metric="loss"),
        "search_space": a_search_space(),
        "tuner": AlgorithmSpec(name="random"),
        "budget": budget if isinstance(budget, Budget) else Budget(**({"trials": 20, "parallel": 2} | budget)),
        "trial": template
        if isinstance(template, TrialTemplate)
        else TrialTemplate(**({"command": ("python", "train.py")} | template)),
    }
    return ExperimentSpec(**(fields | overrides))


def an_experiment(**overrides: Any) -> Experiment:
    """Running unless ``status`` says otherwise; fields of the spec through ``spec=a_spec(...)``."""
    fields: dict[str, Any] = {
        "id": EXPERIMENT_ID,
        "status": ExperimentStatus.RUNNING,
        "created_at": START,
    }
    if "spec" not in overrides:
        overrides["spec"] = a_spec()
    return Experiment(**(fields | overrides))


def a_trial(**overrides: Any) -> Trial:
    fields: dict[str, Any] = {
        "experiment_id": EXPERIMENT_ID,
        "number": 1,
        "status": TrialStatus.RUNNING,
        "parameters": {"lr": 0.01, "batch": 32},
        "created_at": START,
    }
    return Trial(**(fields | overrides))


def an_attempt(**overrides: Any) -> Attempt:
    """``experiment_id``, ``number`` and ``attempt`` make the key."""
    key = AttemptKey(
        experiment_id=overrides.pop("experiment_id", EXPERIMENT_ID),
        number=overrides.pop("number", 1),
        attempt=overrides.pop("attempt", 1),
    )
    fields: dict[str, Any] = {
        "key": key,
        "nonce": f"nonce-{key}",
        "lineage": "memory",
        "agent_id": "agent-1",
        "status": AttemptStatus.RUNNING,
        "created_at": START,
    }
    return Attempt(**(fields | overrides))


def a_line(**overrides: Any) -> JournalLine:
    fields: dict[str, Any] = {
        "experiment_id": EXPERIMENT_ID,
        "line": 1,
        "at": START,
        "kind": "suggestion_requested",
        "payload": {"number": 1},
        "queues": (Queue.TUNER,),
    }
    return JournalLine(**(fields | overrides))


def a_metric(**overrides: Any) -> MetricRow:
    """A report of the objective ``loss`` that algorithms see."""
    fields: dict[str, Any] = {
        "experiment_id": EXPERIMENT_ID,
        "number": 1,
        "attempt": 1,
        "sequence": 1,
        "line": 2,
        "step": 1,
        "values": {"loss": 0.5},
        "first": True,
        "objective": 0.5,
        "at": START,
    }
    return MetricRow(**(fields | overrides))


def a_checkpoint(**overrides: Any) -> Checkpoint:
    fields: dict[str, Any] = {
        "experiment_id": EXPERIMENT_ID,
        "number": 1,
        "attempt": 1,
        "nonce": "nonce-1",
        "sequence": 2,
        "step": 1,
        "name": "step-1.pt",
        "digest": "a" * 64,
        "size": 3,
        "inline": True,
        "at": START,
    }
    return Checkpoint(**(fields | overrides))

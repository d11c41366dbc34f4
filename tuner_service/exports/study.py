"""An experiment as a study of Optuna's, in the form of its journal files, which Optuna's own code writes."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, BinaryIO

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.storages import JournalStorage
from optuna.storages.journal import BaseJournalBackend
from optuna.trial import FrozenTrial, TrialState

from tuner_service.domain.values import flattened

Row = dict[str, Any]
MOST_CHOICES = 1_000  # values of one parameter that is no number; with more it is an attribute of its trials
EXACT_WHOLE = 2**53  # Optuna keeps whole numbers as floats
_STATES = {
    "waiting": TrialState.WAITING,
    "succeeded": TrialState.COMPLETE,
    "early_stopped": TrialState.PRUNED,
    "failed": TrialState.FAIL,
    "canceled": TrialState.FAIL,
}


class _Lines(BaseJournalBackend):
    """Writes each entry as a journal file has it, and keeps it until it was read: by the storage itself, at once."""

    def __init__(self, target: BinaryIO) -> None:
        self._target = target
        self._kept: list[dict[str, Any]] = []
        self._dropped = 0

    def read_logs(self, log_number_from: int) -> Iterable[dict[str, Any]]:
        self._kept = self._kept[log_number_from - self._dropped :]
        self._dropped = log_number_from
        return self._kept

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        for log in logs:
            line = json.dumps(log, separators=(",", ":"))
            self._target.write(line.encode() + b"\n")
            self._kept.append(json.loads(line))


def write_study(head: Row, rows: Callable[[], Iterable[Row]], target: BinaryIO) -> None:
    """``head``: ``id``, ``name``, ``objectives``, and ``ranges``, what is known of parameters. ``rows`` are trials."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")
    distributions = distributions_of(rows(), head["ranges"])
    study = optuna.create_study(
        study_name=head["name"],
        storage=JournalStorage(_Lines(target)),
        directions=[objective["goal"] for objective in head["objectives"]],
    )
    metrics = [objective["metric"] for objective in head["objectives"]]
    study.set_metric_names(metrics)
    study.set_user_attr("experiment", head["id"])
    for row in rows():
        study.add_trial(trial_of(row, metrics, distributions))


def trial_of(row: Row, metrics: list[str], distributions: Mapping[str, BaseDistribution]) -> FrozenTrial:
    """As Optuna would have it: what has no value that Optuna takes for one has failed, and says why."""
    state = _STATES.get(row["status"], TrialState.RUNNING)
    values: list[float] | None = None
    if state is TrialState.COMPLETE:
        values = [float(row["final"].get(metric, "nan")) for metric in metrics]
    elif state is TrialState.PRUNED and len(metrics) == 1 and row["value"] is not None:
        values = [float(row["value"])]
    if values is not None and any(map(math.isnan, values)):
        values = None
        state = TrialState.FAIL if state is TrialState.COMPLETE else state
    started = row["started_at"] or row["created_at"]
    flat = flattened(row["parameters"])
    parameters = {name: _value(flat[name], one) for name, one in distributions.items() if name in flat}
    return FrozenTrial(
        number=-1,  # Optuna counts them by itself
        trial_id=-1,
        state=state,
        value=None,
        values=values,
        datetime_start=None if state is TrialState.WAITING else _moment(started),
        datetime_complete=_moment(row["ended_at"] or started) if state.is_finished() else None,
        params=parameters,
        distributions={name: distributions[name] for name in parameters},
        user_attrs=_attributes(row, {name: value for name, value in flat.items() if name not in parameters}),
        system_attrs={},
        intermediate_values={int(step): float(value) for step, value in row["reports"]},
    )


def _attributes(row: Row, further: Row) -> Row:
    found = {"trial": row["id"], "status": row["status"], "reason": row["reason"], "source": row["source"]}
    found |= {"message": row["message"]} if row["message"] else {}
    found |= {f"final.{name}": value for name, value in row["final"].items()}
    found |= {f"inputs.{name}": value for name, value in row["inputs"].items()}
    return {**found, **{f"parameters.{name}": value for name, value in further.items()}}


def _moment(text: str) -> datetime:
    """Optuna has local times without a zone."""
    return datetime.fromisoformat(text).astimezone().replace(tzinfo=None)


# ── parameters ──────────────────────────────────────────────────────────────────────────────────
@dataclass(kw_only=True)
class _Seen:
    """The values that one parameter had."""

    low: float = math.inf
    high: float = -math.inf
    is_whole: bool = True
    is_number: bool = True
    choices: dict[str, Any] = field(default_factory=dict)

    def take(self, value: Any) -> None:
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= EXACT_WHOLE:
            self.low, self.high = min(self.low, value), max(self.high, value)
            self.is_whole = self.is_whole and isinstance(value, int)
        elif isinstance(value, float) and math.isfinite(value):
            self.low, self.high, self.is_whole = min(self.low, value), max(self.high, value), False
        else:
            self.is_number = False
        if len(self.choices) <= MOST_CHOICES:
            self.choices.setdefault(_spelled(value), value)


def distributions_of(rows: Iterable[Row], ranges: Mapping[str, Row]) -> dict[str, BaseDistribution]:
    """Of each parameter one for all trials, which holds its range and every value that it had.

    A range may have changed meanwhile, and trials may lie outside of it; Optuna has one distribution throughout.
    """
    seen: dict[str, _Seen] = {}
    for row in rows:
        for name, value in flattened(row["parameters"]).items():
            seen.setdefault(name, _Seen()).take(value)
    found = {name: _distribution(one, ranges.get(name, {})) for name, one in seen.items()}
    return {name: one for name, one in found.items() if one is not None}


def _distribution(seen: _Seen, known: Row) -> BaseDistribution | None:
    if seen.is_number and "choices" not in known:
        low, high = min(seen.low, known.get("low", seen.low)), max(seen.high, known.get("high", seen.high))
        if seen.is_whole and known.get("whole", True):
            return IntDistribution(int(low), int(high), log=known.get("log", False) and low >= 1)
        return FloatDistribution(low, high, log=known.get("log", False) and low > 0)
    choices = {_spelled(value): value for value in known.get("choices", ())} | seen.choices
    if len(choices) > MOST_CHOICES:
        return None
    values = list(choices.values())
    # 1, 1.0 and True are one choice to Optuna: as text they are not.
    is_plain = all(value is None or isinstance(value, bool | int | float | str) for value in values)
    if not is_plain or len(set(values)) < len(values):
        return CategoricalDistribution(list(choices))
    return CategoricalDistribution(values)


def _value(value: Any, distribution: BaseDistribution) -> Any:
    match distribution:
        case FloatDistribution():
            return float(value)
        case CategoricalDistribution():
            spelled = _spelled(value)
            is_text = all(isinstance(choice, str) for choice in distribution.choices)
            return spelled if is_text and spelled in distribution.choices else value
        case _:
            return value


def _spelled(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)

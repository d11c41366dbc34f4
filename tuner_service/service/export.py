"""Everything an experiment found, as rows: produced page by page, so that a million of them never meet in memory."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from tuner_service.csv_rows import CsvText
from tuner_service.domain.experiment import ExperimentId
from tuner_service.domain.ranges import Choice, FloatRange, IntRange, NormalRange, QuantizedRange
from tuner_service.domain.search_space import SearchSpace
from tuner_service.domain.trial import Trial
from tuner_service.domain.values import flattened
from tuner_service.ports import Queries
from tuner_service.service.inputs import inputs_view
from tuner_service.service.listed_trials import listed_trials
from tuner_service.service.views import View, moment, plain

TRIALS_PAGE = 1_000
METRICS_PAGE = 1_000  # reports; each may have as many values
CHUNK_BYTES = 64 << 10  # of text that is sent at a time
PLAIN_FIELDS = (
    "number", "id", "status", "reason", "message", "source", "retry_of", "value", "attempts",
    "created_at", "started_at", "ended_at", "running_s",
)  # fmt: skip
PARAMETERS = "parameters."  # begins the columns of parameters
INPUTS = "inputs."  # begins the columns of what trials are given the paths of
METRIC_FIELDS = ("number", "attempt", "sequence", "step", "metric", "value", "first", "at")
to_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


@dataclass(frozen=True, kw_only=True)
class Export:
    """The rows of one experiment. ``now`` is when it was asked for."""

    queries: Queries
    experiment_id: ExperimentId
    now: float

    def trials(self) -> Iterator[View]:
        """As the list of trials has them, by number."""
        inputs = self._inputs()
        for page in self._pages():
            yield from listed_trials(self.queries, self.experiment_id, page, now=self.now, inputs=inputs)

    def metrics(self) -> Iterator[View]:
        """One row for each metric of each report; ``step`` is null for a final one."""
        after = (0, 0, 0)
        while page := self.queries.all_metrics(self.experiment_id, after=after, limit=METRICS_PAGE):
            for number, report in page:
                common = {"number": number, "attempt": report.attempt, "sequence": report.sequence, "step": report.step}
                rest = {"first": report.first, "at": moment(report.at)}
                for name, value in report.values.items():
                    yield {**common, "metric": name, "value": plain(value), **rest}
            number, report = page[-1]
            after = (number, report.attempt, report.sequence)

    def trials_with_reports(self, metric: str) -> Iterator[View]:
        """Each with ``reports``, [step, value] of one metric, by step: those that algorithms saw."""
        of_trials = groupby(self.metrics(), key=lambda row: row["number"])
        reported = next(of_trials, None)
        for view in self.trials():
            reports: dict[int, Any] = {}
            while reported is not None and reported[0] <= view["number"]:
                if reported[0] == view["number"]:
                    seen = (row for row in reported[1] if row["metric"] == metric and row["first"])
                    reports = {row["step"]: row["value"] for row in seen if row["step"] is not None}
                reported = next(of_trials, None)
            yield {**view, "reports": sorted(reports.items())}

    def trial_columns(self) -> list[str]:
        """Of ``flat_trial`` for the trials there are now: fixed ones, then parameters and final metrics by name."""
        parameters: dict[str, None] = {}
        finals: dict[str, None] = {}
        for trial in self._trials():
            parameters |= dict.fromkeys(flattened(trial.result_parameters, PARAMETERS))
            finals |= dict.fromkeys(f"final.{name}" for name in trial.final)
        inputs = [INPUTS + name for name in self._inputs()]
        return [*PLAIN_FIELDS, *parameters, *inputs, *finals, "last.step", "last.metrics"]

    def _inputs(self) -> View:
        """The same for all of its trials."""
        experiment = self.queries.experiment(self.experiment_id)
        return {} if experiment is None else inputs_view(experiment.spec.trial.inputs)

    def _trials(self) -> Iterator[Trial]:
        for page in self._pages():
            yield from page

    def _pages(self) -> Iterator[Sequence[Trial]]:
        after = 0
        while page := self.queries.trials(self.experiment_id, after=after, limit=TRIALS_PAGE):
            yield page
            after = page[-1].number


def flat_trial(view: View) -> dict[str, Any]:
    """One level deep: a nested choice's own parameters stand beside its ``_name``."""
    last = view["last"] or {}
    return {
        **{name: view[name] for name in PLAIN_FIELDS},
        **flattened(view["parameters"], PARAMETERS),
        **{INPUTS + name: shown for name, shown in view.get("inputs", {}).items()},
        **{f"final.{name}": value for name, value in view["final"].items()},
        "last.step": last.get("step"),
        "last.metrics": last.get("metrics"),
    }


def known_ranges(space: SearchSpace) -> dict[str, View]:
    """What a study of Optuna's may know of parameters beside the values they had, by name."""
    found: dict[str, View] = {}
    for parameter in space.parameters:
        match parameter.range:
            case FloatRange(low=low, high=high, log=log) | QuantizedRange(low=low, high=high, log=log):
                found[parameter.name] = {"low": low, "high": high, "log": log, "whole": False}
            case IntRange(low=low, high=high, log=log):
                found[parameter.name] = {"low": low, "high": high, "log": log, "whole": True}
            case NormalRange():
                found[parameter.name] = {"whole": False}
            case Choice(options=options) if all(option.branch is None for option in options):
                found[parameter.name] = {"choices": [option.value for option in options]}
            case _:
                pass  # nested choices, permutations and subsets are known by the values they had
    return found


# ── texts ───────────────────────────────────────────────────────────────────────────────────────
def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """A row's further fields are left out: a trial that ended meanwhile may have some."""
    buffer = CsvText()
    writer = csv.writer(buffer)
    writer.writerow(columns)
    for row in rows:
        writer.writerow([cell(name, row[name]) if name in row else "" for name in columns])
        if buffer.tell() >= CHUNK_BYTES:
            yield buffer.getvalue()
            buffer.seek(0)
            buffer.truncate()
    yield buffer.getvalue()


def cell(name: str, value: Any) -> str:
    """Text that stands for ``value``. A parameter can be read back: text that would be another value is JSON, and so
    is null, for an empty cell stands for a parameter that is not there."""
    if value is None:
        return "null" if name.startswith(PARAMETERS) else ""
    kind = type(value)
    if kind is int or kind is float:  # nearly every cell; as JSON writes it
        return repr(value)
    if not isinstance(value, str):
        return to_json(value)
    if not name.startswith(PARAMETERS):
        return value
    try:
        json.loads(value)
    except ValueError:
        return value or '""'
    return to_json(value)


def json_lines(rows: Iterable[View]) -> Iterator[str]:
    yield from _chunks(to_json(row) + "\n" for row in rows)


def json_array(rows: Iterable[View]) -> Iterator[str]:
    def parts() -> Iterator[str]:
        separator = "[\n"
        for row in rows:
            yield separator + to_json(row)
            separator = ",\n"
        yield "[]\n" if separator == "[\n" else "\n]\n"

    yield from _chunks(parts())


def _chunks(parts: Iterable[str]) -> Iterator[str]:
    waiting: list[str] = []
    size = 0
    for part in parts:
        waiting.append(part)
        size += len(part)
        if size >= CHUNK_BYTES:
            yield "".join(waiting)
            waiting, size = [], 0
    yield "".join(waiting)

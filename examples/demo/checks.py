"""What the demo promises, looked at afterwards: every sentence that turned out wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]
FINAL = frozenset({"succeeded", "failed", "early_stopped", "canceled"})
KEPT = ("status", "parameters", "value", "final", "last", "ended_at")


@dataclass(frozen=True, kw_only=True)
class Before:
    """What was true when the service was killed: every trial, and the processes of those that ran."""

    trials: Sequence[Row]
    pids: Mapping[int, int]  # trial number -> process id


def broken_promises(
    before: Before, experiment: Row, trials: Sequence[Row], attempts: Mapping[int, Sequence[Row]]
) -> Iterator[str]:
    """``trials`` with their metrics; ``attempts`` of the trials that ran when the service was killed."""
    total = experiment["budget"]["trials"]
    if experiment["status"] != "completed":
        yield f"the experiment is {experiment['status']}, not completed: {experiment['message']}"
    numbers = [trial["number"] for trial in trials]
    if numbers != list(range(1, total + 1)):
        yield f"the trials are {numbers}, not 1 to {total} once each"
    for trial in trials:
        if trial["status"] not in {"succeeded", "early_stopped"}:
            yield f"trial {trial['number']} is {trial['status']}: {trial['message']}"
        yield from _lost_reports(trial)
    yield from _changed(before, {trial["number"]: trial for trial in trials})
    for number, pid in before.pids.items():
        seen = [attempt["pid"] for attempt in attempts[number]]
        if seen != [pid]:
            yield f"trial {number} ran as process {pid} when the service was killed; its attempts were {seen}"


def _lost_reports(trial: Row) -> Iterator[str]:
    steps = [metric["step"] for metric in trial["metrics"] if metric["step"] is not None]
    twice = [step for step, count in Counter(steps).items() if count > 1]
    if twice:
        yield f"trial {trial['number']} has two reports of epochs {twice}"
    if sorted(steps) != list(range(1, len(steps) + 1)):
        yield f"trial {trial['number']} lost reports: {sorted(steps)}"


def _changed(before: Before, after: Mapping[int, Row]) -> Iterator[str]:
    for trial in before.trials:
        number = trial["number"]
        names = KEPT if trial["status"] in FINAL else ("parameters",)
        now = after.get(number, {})
        for name in names:
            if now.get(name) != trial[name]:
                yield f"trial {number}: {name} was {trial[name]} before the kill and is {now.get(name)} now"

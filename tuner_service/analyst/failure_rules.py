"""Which parameter makes trials fail, for people: the simplest rule that tells most failures from what went well.

A rule is about one parameter: above a number, below one, or one value of it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LEAST_FAILURES = 5  # that a rule must cover
LEAST_PRECISION = 0.8  # of the trials that it covers, how many failed
MOST_OUTSIDE = 0.5  # of that, the most that may have failed of the trials that it does not cover
PRICE = 2  # failures that one success among the covered ones outweighs

Ended = tuple[Mapping[str, Any], bool]  # parameters by their names, and whether the trial failed


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureRule:
    """Of ``covered`` trials whose ``parameter`` is >, < or "is" ``value``, ``failed`` failed."""

    parameter: str
    relation: str
    value: Any
    covered: int
    failed: int

    @property
    def sentence(self) -> str:
        shown = f"{self.value:.6g}" if isinstance(self.value, float) else json.dumps(self.value)
        condition = f"{self.parameter} {self.relation} {shown}"
        return f"trials with {condition} fail ({self.failed} of {self.covered} did)"


def failure_rule(ended: Sequence[Ended]) -> FailureRule | None:
    """None where no rule holds well enough; of equals the first by the name of the parameter. n log n a parameter."""
    failures = sum(failed for _, failed in ended)
    if failures < LEAST_FAILURES:
        return None
    columns: dict[str, list[tuple[Any, bool]]] = defaultdict(list)
    for parameters, failed in ended:
        for name, value in parameters.items():
            columns[name].append((value, failed))
    best: FailureRule | None = None
    for name in sorted(columns):
        for rule in _rules(name, columns[name]):
            if _holds(rule, failures, len(ended)) and (best is None or _worth(rule) > _worth(best)):
                best = rule
    return best


def _holds(rule: FailureRule, failures: int, ended: int) -> bool:
    precision, outside = rule.failed / rule.covered, ended - rule.covered
    is_sound = rule.failed >= LEAST_FAILURES and precision >= LEAST_PRECISION
    return is_sound and outside > 0 and failures - rule.failed <= MOST_OUTSIDE * precision * outside


def _worth(rule: FailureRule) -> int:
    return rule.failed - PRICE * (rule.covered - rule.failed)


def _rules(name: str, column: list[tuple[Any, bool]]) -> Iterator[FailureRule]:
    counts: dict[str, list[int]] = {}
    values: dict[str, Any] = {}
    for value, failed in column:
        key = json.dumps(value, sort_keys=True)
        values[key] = value
        count = counts.setdefault(key, [0, 0])
        count[0] += 1
        count[1] += failed
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values.values()):
        ordered = sorted((values[key], *count) for key, count in counts.items())
        yield from _beyond(name, ordered, "<")
        yield from _beyond(name, ordered[::-1], ">")
        return
    for key, (covered, failures) in counts.items():
        yield FailureRule(parameter=name, relation="is", value=values[key], covered=covered, failed=failures)


def _beyond(name: str, ordered: Sequence[tuple[Any, int, int]], relation: str) -> Iterator[FailureRule]:
    """The value named is the nearest one that is not covered."""
    covered = failed = 0
    for place, (_, trials, failures) in enumerate(ordered[:-1]):
        covered, failed = covered + trials, failed + failures
        nearest = ordered[place + 1][0]
        yield FailureRule(parameter=name, relation=relation, value=nearest, covered=covered, failed=failed)

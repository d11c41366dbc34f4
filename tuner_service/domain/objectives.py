"""What trials are worth under one objective or several: values, dominance, the front of the undominated ones."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import le

from tuner_service.domain.experiment import ExperimentSpec, FinalFrom, Goal, Objective
from tuner_service.domain.trial import Trial, TrialStatus

Values = tuple[float | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """What a trial said of its objectives: beside the end, and last before it."""

    status: TrialStatus
    final: Mapping[str, float]
    last: Mapping[str, float]


def further_values(trial: Trial, spec: ExperimentSpec) -> Values:
    """Of the objectives after the first, where ``trial.value`` is of that; None where the trial reported none."""
    return tuple(further_value(trial, objective, spec.trial.final) for objective in spec.objective.further)


def further_value(trial: Trial, objective: Objective, source: FinalFrom) -> float | None:
    reported = Reported(status=trial.status, final=trial.final, last=trial.last_metrics)
    return value_of(reported, objective, source)


def value_of(reported: Reported, objective: Objective, source: FinalFrom) -> float | None:
    """Of an early-stopped trial the last that it reported beside the first objective."""
    last = reported.last.get(objective.metric)
    if reported.status is TrialStatus.EARLY_STOPPED:
        return last
    final = reported.final.get(objective.metric)
    if source is FinalFrom.REPORTED:
        return final
    return last if last is not None else final


def losses(objective: Objective, values: Sequence[float | None]) -> tuple[float, ...] | None:
    """Values for minimising every objective; None where one is missing or NaN."""
    if len(values) != len(objective.every):
        return None
    found = []
    for one, value in zip(objective.every, values, strict=True):
        if value is None or math.isnan(value):
            return None
        found.append(-value if one.goal is Goal.MAXIMIZE else value)
    return tuple(found)


def front(points: Sequence[Sequence[float]]) -> list[int]:
    """Indices of the losses that no other dominates, in their order; of equal ones the first.

    Ordered first, so that a point need only be compared with the front so far: about n log n for two objectives and
    for three. With more it is n times the front, which may be nearly all of them.
    """
    if points and len(points[0]) == 1:
        return [min(range(len(points)), key=lambda index: tuple(points[index]))]
    if points and len(points[0]) == 3:
        return _front_of_three(points)
    order = sorted(range(len(points)), key=lambda index: (tuple(points[index]), index))
    kept: list[int] = []
    beside: list[tuple[float, ...]] = []
    for index in order:
        point = tuple(points[index])
        if len(point) == 2 and kept and not point[1] < beside[-1][1]:
            continue
        if len(point) == 2 or not _is_met(point, beside):
            kept.append(index)
            beside.append(point)
    return sorted(kept)


def _is_met(point: tuple[float, ...], others: Sequence[tuple[float, ...]]) -> bool:
    """Whether one of ``others``, none of which is worse in the first objective, is nowhere worse; four or more."""
    second, third, rest = point[1], point[2], point[3:]
    for other in others:  # noqa: SIM110  # so often that a generator would be half of its time
        if other[1] <= second and other[2] <= third and all(map(le, other[3:], rest)):
            return True
    return False


def _front_of_three(points: Sequence[Sequence[float]]) -> list[int]:
    """A point comes after all that are better in the first objective; the front of the other two tells of it."""
    order = sorted(range(len(points)), key=lambda index: (tuple(points[index]), index))
    kept: list[int] = []
    seconds: list[float] = []  # ascending
    thirds: list[float] = []  # beside them, descending
    for index in order:
        _, second, third = points[index]
        place = bisect_right(seconds, second)
        if place and thirds[place - 1] <= third:
            continue
        kept.append(index)
        begin = bisect_left(seconds, second)
        end = begin
        while end < len(thirds) and thirds[end] >= third:
            end += 1
        seconds[begin:end], thirds[begin:end] = [second], [third]
    return sorted(kept)


def hypervolume(points: Sequence[Sequence[float]], reference: Sequence[float]) -> float:
    """The volume that losses ``points`` dominate and that lies below ``reference``, by slicing the last objective.

    While, Bradstreet and Barone, "A fast way of calculating exact hypervolumes", 2012, tells of better ways for many
    objectives; a front of a search is small.
    """
    inside = [tuple(p) for p in points if all(a < b for a, b in zip(p, reference, strict=True))]
    return _volume([inside[index] for index in front(inside)], tuple(reference))


def _volume(points: list[tuple[float, ...]], reference: tuple[float, ...]) -> float:
    if not points:
        return 0.0
    if len(reference) == 1:
        return reference[0] - min(point[0] for point in points)
    points = sorted(points, key=lambda point: point[-1])
    total = 0.0
    for place, point in enumerate(points):
        above = points[place + 1][-1] if place + 1 < len(points) else reference[-1]
        if above > point[-1]:
            below = [other[:-1] for other in points[: place + 1]]
            slices = [below[index] for index in front(below)]
            total += (above - point[-1]) * _volume(slices, reference[:-1])
    return total

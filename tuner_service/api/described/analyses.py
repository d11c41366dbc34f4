"""Answers that are computed of many trials."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from tuner_service.api.described.experiments import Objective, Objectives
from tuner_service.api.described.parts import Count, ExperimentId, Mark, Next, Number, Parameters, Seconds, Shown
from tuner_service.domain.trial import TrialStatus

Numbers = Annotated[list[int], Field(description="of trials", examples=[[1, 2, 5]])]


class Point(Shown):
    number: Count
    value: Number | None
    values: Annotated[list[Number | None], Field(description="of each objective")]
    parameters: Parameters


class History(Shown):
    """The best so far after each trial, in the order in which they ended."""

    numbers: Numbers
    values: Annotated[list[Number | None], Field(examples=[[0.9, 0.5, 0.5]])]


class Outlook(Shown):
    """What more trials may bring."""

    trials: Count
    since_improvement: Annotated[int, Field(examples=[3])]
    improvements_in_later_half: Annotated[int, Field(examples=[2])]
    typical_gain: Number | None
    more_trials: Annotated[int, Field(examples=[40])]
    chance_of_improvement: Annotated[float, Field(examples=[0.83])]
    message: Annotated[str, Field(examples=["worth going on: about 83% for the 40 trials left to beat the best"])]


class BestOf(Shown):
    id: ExperimentId
    objective: Objectives
    trials: Annotated[int, Field(description="that have a value", examples=[12])]
    best: Point | None
    front: Annotated[list[Point], Field(description="of several objectives")]
    history: History
    outlook: Outlook | None


class NumberAndValues(Shown):
    number: Count
    values: list[Number | None]


class Pareto(Shown):
    id: ExperimentId
    objectives: list[Objective]
    front: list[Point]
    left_out: Annotated[int, Field(examples=[0])]
    others: list[NumberAndValues]
    reference: Annotated[list[Number], Field(description="up to which the hypervolume is measured")]
    hypervolume: Number | None


class Slice(Shown):
    """Columns of one length."""

    numbers: Numbers
    parameter: Annotated[list[Any], Field(examples=[[0.1, 0.01, 0.05]])]
    values: Annotated[list[list[Number | None]], Field(examples=[[[0.9], [0.5], [0.7]]])]


class SlicesOfParameters(Shown):
    id: ExperimentId
    objective: Objectives
    slices: Annotated[dict[str, Slice], Field(description="by the parameter's name")]


class FailureRule(Shown):
    parameter: Annotated[str, Field(examples=["lr"])]
    relation: Annotated[str, Field(examples=[">"])]
    value: Annotated[Any, Field(examples=[0.05])]
    covered: Count
    failed: Count
    sentence: Annotated[str, Field(examples=["trials with lr > 0.05 fail (11 of 12 did)"])]


class Failures(Shown):
    id: ExperimentId
    ended: Count
    failed: Annotated[int, Field(examples=[3])]
    rule: FailureRule | None


class ImportanceShares(Shown):
    id: ExperimentId
    metric: Annotated[str, Field(examples=["loss"])]
    importance: Annotated[dict[str, float], Field(description="shares of 1", examples=[{"lr": 0.8, "batch": 0.2}])]
    trials: Count
    message: Annotated[str, Field(description="why nothing is told", examples=[""])]


class Curve(Shown):
    number: Count
    status: TrialStatus
    steps: Annotated[list[int], Field(examples=[[1, 2, 3]])]
    values: Annotated[list[Number], Field(examples=[[0.9, "NaN", 0.7]])]
    complete: Annotated[bool, Field(description="every report was read", examples=[True])]


class LearningCurves(Shown):
    id: ExperimentId
    metric: Annotated[str, Field(examples=["loss"])]
    curves: list[Curve]
    left_out: Annotated[int, Field(description="trials", examples=[0])]


class WordColumn(Shown):
    """A column of words."""

    words: Annotated[list[Any], Field(description="the different ones", examples=[["succeeded", "failed"]])]
    codes: Annotated[list[int], Field(description="of each row its word; -1: none", examples=[[0, 0, 1]])]


Cell = float | Mark | str | dict[str, Any] | None
Columns = Annotated[
    dict[str, list[Cell] | WordColumn],
    Field(
        description="all of one length",
        examples=[{"number": [1, 2, 3], "status": {"words": ["succeeded"], "codes": [0, 0, 0]}}],
    ),
]


class Table(Shown):
    revision: Annotated[str, Field(examples=["1f0c9a3e.7"])]
    since: Annotated[str | None, Field(description="only what changed after it; null: the whole", examples=[None])]
    trials: Annotated[int, Field(description="of the experiment", examples=[3])]
    columns: Columns
    next: Next


class Lane(Shown):
    agent: Annotated[str, Field(examples=["agent-1"])]
    kind: Literal["device", "core"]
    name: Annotated[str, Field(description="of a device its UUID, of a core its place", examples=["1"])]


class TimelineColumns(Shown):
    """All of one length: a row for each lane that an attempt held."""

    number: Numbers
    attempt: Annotated[list[int], Field(examples=[[1, 1, 2]])]
    status: WordColumn
    lane: Annotated[list[int], Field(description="its place in `lanes`", examples=[[0, 1, 0]])]
    share: Annotated[list[float], Field(examples=[[1, 1, 1]])]
    start_s: Annotated[list[float], Field(examples=[[0.0, 0.5, 30.0]])]
    end_s: Annotated[list[float | None], Field(examples=[[29.5, 31.0, None]])]


class Timeline(Shown):
    lanes: list[Lane]
    columns: TimelineColumns
    now_s: Seconds
    left_out: Annotated[bool, Field(description="there were more attempts, earlier ones")]

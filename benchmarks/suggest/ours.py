"""Our tuners and assessors, as the algorithm worker folds and asks them; this process is the worker."""

from __future__ import annotations

import json
import random
import time
from typing import Any

from benchmarks.suggest.space import SPACE, history, loss
from tuner_service.assessors.registry import create_assessor
from tuner_service.dispatcher.items import ResultsImported, Suggested, SuggestionRequested, TrialEnded
from tuner_service.domain.experiment import Objective
from tuner_service.domain.search_space import parse_search_space
from tuner_service.domain.trial import Report, TrialOutcome, TrialStatus
from tuner_service.tuners.registry import create_tuner
from tuner_service.workers.folds.folding import ReportHistory, TunerFold

Times = dict[str, Any]
PART = 1_000  # results imported at a time


def suggestions(name: str, args: dict[str, Any], *, trials: int, asked: int) -> Times:
    """Seconds of each suggestion after ``trials`` outcomes, of telling one more after each, and of the first suggestion
    after a restart.

    The restart loads a snapshot, as a worker does that was killed; ``resumed_s`` is that and one suggestion.
    """
    fold = _fold(name, args)
    _tell(fold, trials)
    asks, tells = zip(*(_one(fold, number) for number in range(1, asked + 2)), strict=True)
    snapshot = json.dumps(fold.state_dict())
    begun = time.perf_counter()
    resumed = _fold(name, args)
    resumed.load_state_dict(json.loads(snapshot))
    _one(resumed, asked + 2)
    return {"first_s": asks[0], "s": asks[1:], "told_s": tells[1:], "resumed_s": time.perf_counter() - begun}


def _fold(name: str, args: dict[str, Any]) -> TunerFold:
    space = parse_search_space(SPACE)
    return TunerFold(create_tuner(name, args, space=space, objective=Objective(metric="loss")), seed=1)


def _tell(fold: TunerFold, trials: int) -> None:
    outcomes = [
        TrialOutcome(number=0, status=TrialStatus.SUCCEEDED, parameters=point, value=value, source="imported")
        for point, value in history(trials)
    ]
    for start in range(0, trials, PART):
        fold.take(ResultsImported(line=start + 1, outcomes=tuple(outcomes[start : start + PART])))


def _one(fold: TunerFold, number: int) -> tuple[float, float]:
    """Seconds of the suggestion, and of telling its outcome."""
    line = 1_000_000 + 2 * number
    begun = time.perf_counter()
    answer = fold.take(SuggestionRequested(line=line, number=number))
    taken = time.perf_counter() - begun
    if not isinstance(answer, Suggested):
        raise TypeError(f"{answer} is no suggestion")
    parameters = answer.parameters
    outcome = TrialOutcome(number=number, status=TrialStatus.SUCCEEDED, parameters=parameters, value=loss(parameters))
    begun = time.perf_counter()
    fold.take(TrialEnded(line=line + 1, outcome=outcome))
    return taken, time.perf_counter() - begun


JUDGED = 10  # of the ended trials, the newest: what an assessor prepares once is ready by then


def decisions(name: str, args: dict[str, Any], *, trials: int, reports: int) -> Times:
    """Seconds of one ``assess`` with ``trials`` ended trials of ``reports`` reports each, at each step of new ones."""
    assessor = create_assessor(name, args, objective=Objective(metric="loss"))
    rng = random.Random(3)
    for number in range(1, trials + 1):
        curve = _curve(rng, reports)
        if assessor.learns_while_assessing or number > trials - JUDGED:
            for length in range(1, reports + 1):
                assessor.assess(number, ReportHistory(curve, length))
        assessor.ended(_ended(number, curve[-1]), curve)
    times: list[float] = []
    for number in range(trials + 1, trials + 51):
        curve = _curve(rng, reports)
        for length in range(1, reports + 1):
            seen = ReportHistory(curve, length)
            begun = time.perf_counter()
            assessor.assess(number, seen)
            times.append(time.perf_counter() - begun)
        assessor.ended(_ended(number, curve[-1]), curve)
    return {"s": times}


def _curve(rng: random.Random, reports: int) -> list[Report]:
    final, speed = rng.random(), rng.uniform(0.1, 1)
    return [Report(step=step, value=final + 1 / (1 + speed * step)) for step in range(1, reports + 1)]


def _ended(number: int, last: Report) -> TrialOutcome:
    return TrialOutcome(number=number, status=TrialStatus.SUCCEEDED, parameters={}, value=last.value, step=last.step)

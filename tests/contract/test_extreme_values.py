"""Whatever the service accepts, every algorithm can be told, and can go on from."""

from __future__ import annotations

import json
import math
import random
import tracemalloc
import warnings
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.contract.extremes import PARAMETERS, RANGES, RESULTS
from tuner_service.advisors.registry import ADVISORS, create_advisor
from tuner_service.assessors.base import Stop
from tuner_service.assessors.registry import ASSESSORS, create_assessor
from tuner_service.dispatcher.items import (
    CustomTrialAdded,
    Decided,
    ResultsImported,
    SearchSpaceUpdated,
    Suggested,
    SuggestionRequested,
    TrialEnded,
)
from tuner_service.domain.errors import InputError, SearchSpaceNotSupportedError
from tuner_service.domain.experiment import Objective
from tuner_service.domain.search_space import SearchSpace, parse_search_space
from tuner_service.domain.trial import Parameters, Report, TrialOutcome, TrialStatus
from tuner_service.domain.values import value_faults
from tuner_service.service.parameters import plain_faults
from tuner_service.tuners.registry import TUNERS, create_tuner
from tuner_service.workers.folds.advisor import AdvisorFold
from tuner_service.workers.folds.folding import TunerFold
from tuner_service.workers.protocol import decode_payload, encode_frame, pack

QUICK = {name: {"n_startup_trials": 2} for name in ("tpe", "gp", "cma_es")}
QUICK |= {name: {"population_size": 3} for name in ("nsga2", "nsga3")}
SLOW = {"gp": 6, "auto": 6, "tpe": 10}  # examples of those that take long
TRIALS = 6
EXAMPLES = 25
SPACES = st.dictionaries(st.sampled_from(["a", "b.c", "d\ne"]), RANGES, min_size=1, max_size=2)
CASES = [("tuner", name) for name in TUNERS] + [("advisor", name) for name in ADVISORS]


def accepted_space(data: Any) -> SearchSpace:
    """What a request with this space would come to; anything else than a refusal is a mistake of ours."""
    try:
        return parse_search_space(data)
    except InputError:
        assume(False)  # Hypothesis' own way to pass over an example
        raise


def fold_of(kind: str, name: str, space: SearchSpace) -> TunerFold | AdvisorFold:
    objective = Objective(metric="loss")
    if kind == "advisor":
        return AdvisorFold(create_advisor(name, {}, space=space, objective=objective), seed=1)
    args = {"parameters": [space.sample(random.Random(n)) for n in range(TRIALS)]} if name == "batch" else {}
    return TunerFold(create_tuner(name, QUICK.get(name, args), space=space, objective=objective), seed=1)


def an_outcome(number: int, parameters: Parameters, value: float | None) -> TrialOutcome:
    status = TrialStatus.FAILED if value is None else TrialStatus.SUCCEEDED
    return TrialOutcome(number=number, status=status, parameters=parameters, value=value)


def told(fold: Any, space: SearchSpace, strange: Parameters, results: list[float | None]) -> None:
    fold.take(CustomTrialAdded(line=1, number=1, parameters=strange))
    fold.take(TrialEnded(line=2, outcome=an_outcome(1, strange, results[0])))
    drawn = [space.sample(random.Random(n)) for n in range(len(results))]
    outcomes = [an_outcome(0, parameters, value) for parameters, value in zip(drawn, results, strict=True)]
    fold.take(ResultsImported(line=3, outcomes=(*outcomes, an_outcome(0, strange, results[-1]))))
    line = 3
    for number in range(2, 2 + TRIALS):
        line += 2
        answer = fold.take(SuggestionRequested(line=line - 1, number=number))
        if not isinstance(answer, Suggested | Decided):
            break
        parameters = answer.parameters if isinstance(answer, Suggested) else answer.decision.parameters
        assert parameters is not None
        assert space.contains(parameters), parameters
        assert not list(value_faults(parameters))
        assert decode_payload(encode_frame([pack(parameters)])[4:]) == [parameters]
        fold.take(TrialEnded(line=line, outcome=an_outcome(number, parameters, results[number % len(results)])))
    fold.take(SearchSpaceUpdated(line=line + 1, search_space=space.raw))
    fold.take(SuggestionRequested(line=line + 2, number=TRIALS + 5))
    json.dumps(fold.state_dict())


@pytest.mark.parametrize(("kind", "name"), CASES, ids=[f"{kind} {name}" for kind, name in CASES])
def test_what_is_accepted_can_be_told_and_suggested_from(kind: str, name: str) -> None:
    @settings(
        max_examples=SLOW.get(name, EXAMPLES), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    @given(data=SPACES, strange=PARAMETERS, results=st.lists(RESULTS, min_size=4, max_size=4))
    def holds(data: Any, strange: Parameters, results: list[float | None]) -> None:
        space = accepted_space(data)
        assume(not plain_faults(strange))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # libraries tell of overflows that they get along with
            try:
                told(fold_of(kind, name, space), space, strange, results)
            except (InputError, SearchSpaceNotSupportedError):
                return  # refused where it was made: the request is answered with it, or the experiment fails at once

    holds()


@pytest.mark.parametrize("name", ASSESSORS)
def test_every_assessor_takes_any_reports(name: str) -> None:
    edges = [math.nan, math.inf, -math.inf, 1.7e308, -1.7e308, 5e-324, 0.0, 1e200, 0.5]
    rng = random.Random(3)
    assessor = create_assessor(name, {}, objective=Objective(metric="loss"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(1, 40):
            reports = [Report(step=rng.choice([step, 2**62 - 20 + step]), value=rng.choice(edges)) for step in range(9)]
            for length in range(1, len(reports) + 1):
                if isinstance(assessor.assess(number, reports[:length]), Stop):
                    break
            assessor.ended(an_outcome(number, {}, rng.choice([None, *edges])), reports[:length])


SPACES_REFUSED: list[Any] = [
    {"_type": "normal", "_value": [1e308, 1e308]},
    {"_type": "normal", "_value": [0, 1e300]},
    {"_type": "lognormal", "_value": [-1e154, 3]},
    {"_type": "uniform", "_value": [-1e308, 1e308]},
    {"_type": "uniform", "_value": [0, 1.7e308]},
    {"type": "float", "low": 0, "high": 10**400},
    {"type": "categorical", "choices": [2**70]},
    {"type": "categorical", "choices": [math.inf]},
    {"type": "categorical", "choices": ["\ud800"]},
    {"type": "categorical", "choices": [{"\ud800": 1}]},
    {"type": "const", "value": ["\0"]},
]


@pytest.mark.parametrize("described", SPACES_REFUSED, ids=repr)
def test_a_range_that_could_not_be_drawn_from_is_refused(described: Any) -> None:
    with pytest.raises(InputError):
        parse_search_space({"x": described})


def test_a_search_over_seeds_does_not_look_at_each_of_them() -> None:
    """Two thousand million integers: one array of them all would be 16 GB."""
    space = parse_search_space({"seed": {"type": "int", "low": 0, "high": 2**31, "step": 2}})
    fold = fold_of("tuner", "gp", space)
    tracemalloc.start()  # NumPy tells it of its arrays
    try:
        told(fold, space, {"seed": 4}, [0.5, 0.4, 0.3, 0.2])
        assert tracemalloc.get_traced_memory()[1] < 256 << 20
    finally:
        tracemalloc.stop()

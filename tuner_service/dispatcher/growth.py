"""The search space of a running experiment becomes another: by a person, or by what its scripts ask for.

A script of Optuna's kind says what it searches while it runs (define-by-run). What it misses becomes part of the space,
by a revision with its own journal line; then the script asks for further parameters, which the tuner chooses in the
space as it is from that line on. So a search that grows is resumed as exactly as any other.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from trials.wire.growth import GrowthRefusedError, grown
from trials.wire.records import ParametersMissingRecord
from trials.wire.values import written_alike
from tuner_service.dispatcher.changes import SearchSpaceRevision
from tuner_service.dispatcher.items import Queue, SearchSpaceUpdated
from tuner_service.dispatcher.routing import LineKind
from tuner_service.dispatcher.state import ExperimentState
from tuner_service.dispatcher.step import Step, TrialStep
from tuner_service.domain.errors import InputError
from tuner_service.domain.space_parsing import parse_parameters

ASKED_AT_ONCE = 10_000  # parameters of a record, times those beside: each is looked at, while other experiments wait
# Of the space that comes of it, as JSON: it is read whole with each parameter that it grows by, and stored twice.
GROWN_BYTES = 512 << 10
GROWING_QUEUE_LIMIT = 10_000  # lines that wait for the tuner, of which each may be such a space


def missed(ts: TrialStep, record: ParametersMissingRecord) -> str:
    """Grow the space by what the script misses; why that is not possible, or nothing.

    What it holds already in that branch makes no revision, so that a record that comes twice is harmless.
    """
    if not ts.spec.trial.define_by_run:
        return "the script asks for parameters that it was not given; trial.define_by_run lets the search space grow"
    asked, beside = len(record.parameters), max(1, len(record.beside))
    if asked * beside > ASKED_AT_ONCE:
        return f"{asked} parameters beside {beside} are too many at once; ask for fewer in each record"
    before = ts.xs.growing_space
    space = before
    if len(ts.xs.queues[Queue.TUNER].pending) >= GROWING_QUEUE_LIMIT:
        return f"{GROWING_QUEUE_LIMIT} lines wait for the tuner, so that the space cannot grow now"
    try:
        for name, form in record.parameters.items():
            if not isinstance(form, dict):
                return f"the range of {name} is no mapping"
            space = grown(space, name, form, record.beside)
        if any(not written_alike(space[name], before.get(name)) for name in record.parameters):
            if len(json.dumps(space)) > GROWN_BYTES:
                return (
                    f"the search space would be larger than {GROWN_BYTES // 1024} KiB; ask for fewer parameters, with "
                    "shorter names and options, or behind fewer choices"
                )
            parse_parameters(space)
            search_from_now_on(ts.step, ts.xs, space)
    except GrowthRefusedError as exc:
        return str(exc)
    except InputError as exc:
        return "; ".join(f"{fault.pointer}: {fault.message}" for fault in exc.faults)
    return ""


def search_from_now_on(step: Step, xs: ExperimentState, space: dict[str, Any]) -> None:
    """``space`` holds for what is asked for from this line on, in any status. The spec keeps the one it began with."""
    line = step.journal(xs, LineKind.SEARCH_SPACE_CHANGED, {"search_space": space})
    step.changes.search_spaces.append(
        SearchSpaceRevision(experiment_id=xs.id, line=line, search_space=space, at=step.at)
    )
    xs.changed_space = space
    step.put_experiment(xs, replace(xs.experiment, exhausted=False, tuner_waits=False))
    step.enqueue(xs, LineKind.SEARCH_SPACE_CHANGED, SearchSpaceUpdated(line=line, search_space=space))

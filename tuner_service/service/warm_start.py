"""What the algorithms of a new experiment begin with: results of earlier ones, as its own space has them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from tuner_service.dispatcher import importing
from tuner_service.dispatcher.items import ImportedLine
from tuner_service.domain.errors import Fault, InputError
from tuner_service.domain.experiment import Experiment, ExperimentId, ExperimentSpec
from tuner_service.domain.objectives import further_values
from tuner_service.domain.search_space import parse_search_space
from tuner_service.domain.trial import SOURCE_IMPORTED, Trial, TrialOutcome, TrialStatus
from tuner_service.ports import Queries

KNOWN_LIMIT = 100_000  # results, of all named experiments together; those that end the list are left out
KNOWN_BYTES = 128 * 2**20  # likewise, in the journal: they are in memory until the tuner has learned them
PAGE_TRIALS = 1_000
_TELLING = (TrialStatus.SUCCEEDED.value, TrialStatus.EARLY_STOPPED.value, TrialStatus.FAILED.value)


def known_lines(queries: Queries, spec: ExperimentSpec) -> tuple[ImportedLine, ...]:
    """Of ``spec.warm_start``, oldest first in the order named: what fits the space, under this objective.

    Parameters that the space does not know are left out, and those with one value only are filled in; what it cannot
    hold even so is passed over, and so is a trial without a value of the objective, unless it failed by its own doing,
    which tells where others would. InputError for an experiment that
    does not exist. Blocking.
    """
    lines: list[ImportedLine] = []
    bytes_ = 0
    for line in importing.lines_of(islice(_outcomes(queries, spec), KNOWN_LIMIT)):
        bytes_ += len(line.encoded)
        if bytes_ > KNOWN_BYTES:
            break
        lines.append(line)
    return tuple(lines)


def _outcomes(queries: Queries, spec: ExperimentSpec) -> Iterator[TrialOutcome]:
    if not spec.warm_start:
        return
    space = parse_search_space(spec.search_space)
    for earlier in _experiments(queries, spec.warm_start):
        knows_further = earlier.spec.objective == spec.objective
        for trial in _trials(queries, earlier.id):
            parameters = space.adapted(trial.result_parameters)
            value = _value_of(trial, earlier, spec)
            if parameters is None or (value is None and not trial.failed_itself):
                continue
            yield TrialOutcome(
                number=0,
                status=trial.status,
                parameters=parameters,
                value=value,
                step=trial.last_step,
                source=SOURCE_IMPORTED,
                further_values=further_values(trial, earlier.spec) if knows_further and value is not None else (),
                own_failure=trial.failed_itself,
            )


def _experiments(queries: Queries, ids: tuple[ExperimentId, ...]) -> list[Experiment]:
    found = [queries.experiment(experiment_id) for experiment_id in ids]
    faults = [
        Fault(pointer=f"/warm_start/{place}", message=f"there is no experiment {ids[place]!r}; `tuner ps` shows all")
        for place, experiment in enumerate(found)
        if experiment is None
    ]
    if faults:
        raise InputError(faults)
    return [experiment for experiment in found if experiment is not None]


def _trials(queries: Queries, experiment_id: ExperimentId) -> Iterator[Trial]:
    after = 0
    while page := queries.trials(experiment_id, after=after, limit=PAGE_TRIALS, statuses=_TELLING):
        yield from page
        after = page[-1].number


def _value_of(trial: Trial, earlier: Experiment, spec: ExperimentSpec) -> float | None:
    """Of an early-stopped trial the last that it reported."""
    metric = spec.objective.metric
    if metric == earlier.spec.objective.metric:
        return trial.value
    return trial.final.get(metric) if trial.status is TrialStatus.SUCCEEDED else trial.last_metrics.get(metric)

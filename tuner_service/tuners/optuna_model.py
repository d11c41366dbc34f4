"""An Optuna study in memory, and suggestions from it that leave it as it was.

Only documented parts of Optuna are used. A sampler may write to the trial that it suggests for, so the study's first
trial is kept for that: it runs for ever, and the sampler passes over the trial it is asked for.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial

from tuner_service.domain.ranges import Choice, FloatRange, IntRange, NormalRange, QuantizedRange, Range
from tuner_service.domain.search_space import Flat, SearchSpace
from tuner_service.domain.trial import Parameters
from tuner_service.tuners.trial_notes import FAILED, FINISHED, PRUNED, RUNNING, TrialNote

STUDY_NAME = "search"
PORTION_MARGIN = 1e-9  # normal ranges are modelled by their quantiles, and 0 and 1 are infinite ones
STATES = {
    RUNNING: TrialState.RUNNING,
    FINISHED: TrialState.COMPLETE,
    PRUNED: TrialState.PRUNED,
    FAILED: TrialState.FAIL,
}


def distribution_for(range_: Range) -> BaseDistribution:
    match range_:
        case FloatRange():
            return FloatDistribution(range_.low, range_.high, log=range_.log, step=range_.step)
        case IntRange():
            return IntDistribution(range_.low, range_.high, log=range_.log, step=range_.step)
        case QuantizedRange(log=True):
            return FloatDistribution(range_.low, range_.high, log=True)
        case QuantizedRange():
            return IntDistribution(0, int(range_.size) - 1)
        case NormalRange():
            return FloatDistribution(PORTION_MARGIN, 1 - PORTION_MARGIN)
        case Choice(ordered=True):
            return IntDistribution(0, len(range_.options) - 1)
        case Choice():
            return CategoricalDistribution(range(len(range_.options)))


def to_model(range_: Range, value: Any) -> Any:
    match range_:
        case FloatRange(step=float()):
            return range_.value_at(range_.index_of(value))
        case QuantizedRange(log=False):
            return range_.index_of(value)
        case NormalRange():
            return min(max(range_.portion(value), PORTION_MARGIN), 1 - PORTION_MARGIN)
        case _:
            return value


def from_model(range_: Range, modelled: Any) -> Any:
    match range_:
        case FloatRange(step=float()):
            return range_.value_at(range_.index_of(modelled))
        case QuantizedRange(log=True):
            return range_.project(modelled)
        case QuantizedRange():
            return range_.value_at(modelled)
        case NormalRange():
            return range_.quantile(modelled)
        case FloatRange():
            return min(max(float(modelled), range_.low), range_.high)
        case _:
            return modelled


class OptunaModel:
    """Trials are added in the order of their notes; ``index`` is a note's place among them."""

    def __init__(self, space: SearchSpace, *, maximize: bool, sampler_options: dict[str, Any]) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)  # it greets every new study
        self._space = space
        self._multivariate = bool(sampler_options.get("multivariate", True))
        self._sampler_options = {"n_startup_trials": 0, **sampler_options}  # start-up is the tuner's
        self._worst = -math.inf if maximize else math.inf
        self._storage = optuna.storages.InMemoryStorage()
        self._study = optuna.create_study(
            study_name=STUDY_NAME,
            storage=self._storage,
            direction="maximize" if maximize else "minimize",
            sampler=optuna.samplers.RandomSampler(seed=0),
        )
        self._study_id = self._storage.get_study_id_from_name(STUDY_NAME)
        self._stored = 0
        self._scratch = self._storage.get_trial(self._store(create_trial(state=TrialState.RUNNING)))
        self._trial_ids: list[int | None] = []
        self._distributions: dict[str, BaseDistribution] = {}

    def add(self, note: TrialNote) -> None:
        """What lies outside the space, and failures, are counted and not modelled."""
        flat = self._space.flatten(note.parameters) if note.state != FAILED else None
        if flat is None:
            self._trial_ids.append(None)
            return
        ranges = self._ranges_of(flat)
        trial = create_trial(
            state=STATES[note.state],
            value=self._value(note) if note.state == FINISHED else None,
            params={path: to_model(ranges[path], value) for path, value in flat.items()},
            distributions={path: self._distribution(path, ranges[path]) for path in flat},
            intermediate_values=self._intermediate(note),
        )
        self._trial_ids.append(self._store(trial))

    def finish(self, index: int, note: TrialNote) -> None:
        """The trial at ``index``, which ran until now, ended as ``note`` says."""
        trial_id = self._trial_ids[index]
        if trial_id is None:
            return
        for step, value in self._intermediate(note).items():
            self._storage.set_trial_intermediate_value(trial_id, step, value)
        values = [self._value(note)] if note.state == FINISHED else None
        self._storage.set_trial_state_values(trial_id, STATES[note.state], values)

    def suggest(self, seed: int) -> Parameters:
        sampler = self._sampler(seed)
        # A new view of the study: a study remembers the trials it saw until its own ask() is called.
        study = optuna.load_study(study_name=STUDY_NAME, storage=self._storage, sampler=sampler)
        together = self._together(sampler, study)
        relative = sampler.sample_relative(study, self._scratch, together) if together else {}

        def choose(path: str, range_: Range) -> Any:
            distribution = self._distribution(path, range_)
            if distribution.single():
                return to_model(range_, _only_value(range_))
            if together.get(path) == distribution and path in relative:
                return from_model(range_, relative[path])
            return from_model(range_, sampler.sample_independent(study, self._scratch, path, distribution))

        return self._space.build(choose)

    def _sampler(self, seed: int) -> optuna.samplers.TPESampler:
        if not (self._space.is_conditional and self._multivariate):
            return optuna.samplers.TPESampler(seed=seed, **self._sampler_options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)  # group is called experimental
            return optuna.samplers.TPESampler(seed=seed, group=True, **self._sampler_options)

    def _together(self, sampler: optuna.samplers.TPESampler, study: optuna.Study) -> dict[str, BaseDistribution]:
        """The parameters that are drawn from one joint model."""
        if not self._multivariate:
            return {}
        if self._space.is_conditional:
            inferred: dict[str, BaseDistribution] = sampler.infer_relative_search_space(study, self._scratch)
            return inferred
        # Every trial has every parameter, so there is nothing to be inferred from the trials.
        every = {p.path: self._distribution(p.path, p.range) for p in self._space.parameters}
        return {path: distribution for path, distribution in every.items() if not distribution.single()}

    def _store(self, trial: FrozenTrial) -> int:
        self._study.add_trial(trial)
        self._stored += 1
        trial_id: int = self._storage.get_trial_id_from_study_id_trial_number(self._study_id, self._stored - 1)
        return trial_id

    def _ranges_of(self, flat: Flat) -> dict[str, Range]:
        ranges: dict[str, Range] = {}

        def note(path: str, range_: Range) -> Any:
            ranges[path] = range_
            return flat[path]

        self._space.build(note)
        return ranges

    def _distribution(self, path: str, range_: Range) -> BaseDistribution:
        if path not in self._distributions:
            self._distributions[path] = distribution_for(range_)
        return self._distributions[path]

    def _value(self, note: TrialNote) -> float:
        return self._worst if note.value is None else note.value

    def _intermediate(self, note: TrialNote) -> dict[int, float]:
        if note.state != PRUNED or note.step is None:
            return {}
        return {note.step: self._value(note)}


def _only_value(range_: Range) -> Any:
    return 0 if isinstance(range_, Choice) else range_.grid_value(0, 1)

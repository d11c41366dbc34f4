"""An Optuna study in memory, and suggestions from it that leave it as it was.

Only documented parts of Optuna are used. A sampler may write to the trial that it suggests for, so it is given one of
another study; and because it passes over the trial of that one's number, the first trial of the study stands for it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from tuner_service.domain.experiment import Goal, Objective
from tuner_service.domain.ranges import (
    Choice,
    FloatRange,
    IntRange,
    NormalRange,
    Permutation,
    QuantizedRange,
    Range,
    Subset,
)
from tuner_service.domain.search_space import Flat, SearchSpace
from tuner_service.domain.trial import Parameters
from tuner_service.tuners.trial_notes import FAILED, FAILED_ITSELF, FINISHED, PRUNED, RUNNING, TrialNote

STUDY_NAME, SCRATCH_NAME = "search", "scratch"
VALUE_LIMIT = 1e150  # of outcomes: samplers square them; what lies beyond stands at it
FINEST_STEPS = 1e7  # of a stepped range, so that a float tells one step from the next; a finer one counts as continuous
PORTION_MARGIN = 1e-9  # normal ranges are modelled by their quantiles, and 0 and 1 are infinite ones
SUCCEEDS, KEPT, BROKEN = "succeeds", -1.0, 1.0  # a constraint is kept by values up to 0
STATES = {
    RUNNING: TrialState.RUNNING,
    FINISHED: TrialState.COMPLETE,
    PRUNED: TrialState.PRUNED,
    FAILED: TrialState.FAIL,
    FAILED_ITSELF: TrialState.PRUNED,  # before its first step: worse than any other
}


class Places(CategoricalDistribution):
    """The places of so many options: what Optuna does by going through all of them, for each trial, is done at once."""

    def __init__(self, count: int) -> None:
        super().__init__(range(count))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Places) and len(self.choices) == len(other.choices)

    __hash__ = CategoricalDistribution.__hash__

    def __deepcopy__(self, memo: dict[int, Any]) -> Places:
        return self  # nobody changes it

    def to_internal_repr(self, param_value_in_external_repr: Any) -> float:
        return float(param_value_in_external_repr)


def distribution_for(range_: Range, *, finest: float = math.inf) -> BaseDistribution:
    """``finest``: a discrete range of more values is modelled as a continuous one."""
    match range_:
        case FloatRange():
            step = None if range_.step is None or is_too_fine(range_, finest) else range_.step
            return FloatDistribution(range_.low, range_.high, log=range_.log, step=step)
        case IntRange() if range_.size > finest:
            return FloatDistribution(range_.low, range_.high, log=range_.log)
        case IntRange():
            return IntDistribution(range_.low, range_.high, log=range_.log, step=range_.step)
        case QuantizedRange(log=True):
            return FloatDistribution(range_.low, range_.high, log=True)
        case QuantizedRange() if range_.size > finest:
            return FloatDistribution(0, range_.size - 1)
        case QuantizedRange():
            return IntDistribution(0, int(range_.size) - 1)
        case NormalRange():
            return FloatDistribution(PORTION_MARGIN, 1 - PORTION_MARGIN)
        case Choice(ordered=True):
            return IntDistribution(0, len(range_.options) - 1)
        case Choice():
            return Places(len(range_.options))
        case Permutation() | Subset():
            raise TypeError(f"{type(range_).__name__} is modelled by its parts")


def is_too_fine(range_: FloatRange, finest: float) -> bool:
    reach = max(abs(range_.low), abs(range_.high), range_.high - range_.low)
    return range_.size > finest or reach > FINEST_STEPS * (range_.step or math.inf)


def to_model(range_: Range, value: Any, distribution: BaseDistribution) -> Any:
    match range_:
        case FloatRange(step=float()) if isinstance(distribution, FloatDistribution):
            # Optuna writes the bounds in decimals, so its highest step may be a little lower.
            return min(max(range_.value_at(range_.index_of(value)), distribution.low), distribution.high)
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
            return range_.value_at(round(modelled))
        case IntRange() if isinstance(modelled, float):
            last = int(range_.size) - 1
            return range_.value_at(min(max(round((modelled - range_.low) / range_.step), 0), last))
        case NormalRange():
            return range_.quantile(modelled)
        case FloatRange():
            return min(max(float(modelled), range_.low), range_.high)
        case _:
            return modelled


def directions_of(objective: Objective) -> list[StudyDirection]:
    by_goal = {Goal.MAXIMIZE: StudyDirection.MAXIMIZE, Goal.MINIMIZE: StudyDirection.MINIMIZE}
    return [by_goal[one.goal] for one in objective.every]


def worst_of(objective: Objective) -> list[float]:
    return [-math.inf if one.goal is Goal.MAXIMIZE else math.inf for one in objective.every]


class Components:
    """The numbers and choices that a sampler sees of a space: permutations and subsets are taken apart."""

    def __init__(self, space: SearchSpace, *, finest: float = math.inf) -> None:
        """``finest``: a discrete range of more values is modelled as a continuous one."""
        self._space, self._finest = space, finest
        self.distributions: dict[str, BaseDistribution] = {}

    def always_there(self) -> dict[str, BaseDistribution]:
        """Of a space without conditions; without those that have one value only."""
        every = {
            name: self._distribution(name, range_)
            for parameter in self._space.parameters
            for name, range_ in _parts(parameter.path, parameter.range)
        }
        return {name: distribution for name, distribution in every.items() if not distribution.single()}

    def of(self, flat: Flat) -> tuple[dict[str, Any], dict[str, BaseDistribution]]:
        """Values and distributions, by name."""
        values: dict[str, Any] = {}

        def note(path: str, range_: Range) -> Any:
            parts = range_.to_parts(flat[path]) if isinstance(range_, Permutation | Subset) else [flat[path]]
            for (name, part), value in zip(_parts(path, range_), parts, strict=True):
                values[name] = to_model(part, value, self._distribution(name, part))
            return flat[path]

        self._space.build(note)
        return values, {name: self.distributions[name] for name in values}

    def build(self, ask: Callable[[str, BaseDistribution], Any]) -> Parameters:
        """Parameters from what ``ask`` answers for each component that has more than one value."""

        def choose(path: str, range_: Range) -> Any:
            answers = []
            for name, part in _parts(path, range_):
                distribution = self._distribution(name, part)
                single = distribution.single()
                answers.append(_only_value(part) if single else from_model(part, ask(name, distribution)))
            return range_.from_parts(answers) if isinstance(range_, Permutation | Subset) else answers[0]

        return self._space.build(choose)

    def _distribution(self, name: str, range_: Range) -> BaseDistribution:
        if name not in self.distributions:
            self.distributions[name] = distribution_for(range_, finest=self._finest)
        return self.distributions[name]


class OptunaModel:
    """A study in memory. ``make_sampler`` gives a new sampler for a seed; it keeps nothing between two suggestions."""

    def __init__(  # noqa: PLR0913  # its options, by keyword
        self,
        space: SearchSpace,
        objective: Objective,
        *,
        make_sampler: Callable[[int], BaseSampler],
        joint: bool,
        of_whole: bool = False,
        finest: float = math.inf,
        constrained: bool = False,
    ) -> None:
        """``joint``: parameters are drawn together, not one by one. ``finest``: as of ``Components``.

        ``of_whole``: the joint model is one of trials that were not stopped early, and cannot be asked before there
        are any. ``constrained``: failures break a constraint.
        """
        optuna.logging.set_verbosity(optuna.logging.WARNING)  # it greets every new study
        self._space, self._objective, self._make_sampler, self._joint = space, objective, make_sampler, joint
        self._of_whole, self._constrained = of_whole, constrained
        self._components = Components(space, finest=finest)
        self._storage = optuna.storages.InMemoryStorage()
        directions = directions_of(objective)
        self._worst = worst_of(objective)
        self._study = self._new_study(STUDY_NAME, directions)
        self._scratch = self._new_study(SCRATCH_NAME, directions)
        self._study_id = self._storage.get_study_id_from_name(STUDY_NAME)
        self._stored = 0
        self._store(create_trial(state=TrialState.RUNNING))
        self._trial_ids: dict[int, int] = {}

    def add(self, index: int, note: TrialNote) -> None:
        """The note at ``index`` is one more. What lies outside the space or says nothing is not modelled."""
        flat = self._space.flatten(note.parameters) if note.state != FAILED else None
        if flat is None:
            return
        trial = frozen(note, self._components.of(flat), self._worst, constrained=self._constrained)
        self._trial_ids[index] = self._store(trial)

    def finish(self, index: int, note: TrialNote) -> None:
        """The note at ``index``, which ran until now, ended as it says. Nothing where it is not modelled."""
        trial_id = self._trial_ids.get(index)
        if trial_id is None:
            return
        for step, value in _intermediate(note, self._worst).items():
            self._storage.set_trial_intermediate_value(trial_id, step, value)
        values = _values(note, self._worst) if note.state == FINISHED else None
        self._storage.set_trial_state_values(trial_id, STATES[note.state], values)

    def suggest(self, seed: int) -> Parameters:
        with warnings.catch_warnings():
            # Some arguments are called experimental, and infinite values are told of and then taken as the worst.
            warnings.simplefilter("ignore")
            return self._suggested(self._make_sampler(seed))

    def _suggested(self, sampler: BaseSampler) -> Parameters:
        # A new view of the study: a study remembers the trials it saw until its own ask() is called.
        study = optuna.load_study(study_name=STUDY_NAME, storage=self._storage, sampler=sampler)
        scratch = self._scratch_trial()
        together = self._together(sampler, study, scratch)
        relative = sampler.sample_relative(study, scratch, together) if together else {}

        def ask(name: str, distribution: BaseDistribution) -> Any:
            if together.get(name) == distribution and name in relative:
                return relative[name]
            return sampler.sample_independent(study, scratch, name, distribution)

        return self._components.build(ask)

    def _together(self, sampler: BaseSampler, study: optuna.Study, scratch: FrozenTrial) -> dict[str, BaseDistribution]:
        """The parameters that are drawn from one joint model."""
        if not self._joint:
            return {}
        if self._space.is_conditional:
            inferred: dict[str, BaseDistribution] = sampler.infer_relative_search_space(study, scratch)
            return inferred
        if self._of_whole and not study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):
            return {}
        # Every trial has every parameter, so there is nothing to be inferred from the trials.
        return self._components.always_there()

    def _scratch_trial(self) -> FrozenTrial:
        """A new study for it each time would leave one behind; its attributes are written over instead."""
        return self._storage.get_all_trials(self._storage.get_study_id_from_name(SCRATCH_NAME), deepcopy=True)[0]

    def _new_study(self, name: str, directions: list[StudyDirection]) -> optuna.Study:
        study = optuna.create_study(
            study_name=name,
            storage=self._storage,
            directions=directions,
            sampler=optuna.samplers.RandomSampler(seed=0),
        )
        if name == SCRATCH_NAME:
            study.add_trial(create_trial(state=TrialState.RUNNING))
        return study

    def _store(self, trial: FrozenTrial) -> int:
        self._study.add_trial(trial)
        self._stored += 1
        trial_id: int = self._storage.get_trial_id_from_study_id_trial_number(self._study_id, self._stored - 1)
        return trial_id


def frozen(
    note: TrialNote,
    components: tuple[dict[str, Any], dict[str, BaseDistribution]],
    worst: list[float],
    *,
    constrained: bool = False,
) -> FrozenTrial:
    """``constrained``: every trial has a constraint, and a failure is a whole trial, the worst, that breaks it."""
    params, distributions = components
    breaks = constrained and note.state == FAILED_ITSELF
    values = worst if breaks else _values(note, worst) if note.state == FINISHED else None
    return create_trial(
        state=TrialState.COMPLETE if breaks else STATES[note.state],
        values=values,
        constraints={SUCCEEDS: BROKEN if breaks else KEPT} if constrained else None,
        params=params,
        distributions=distributions,
        intermediate_values=_intermediate(note, worst),
    )


def _values(note: TrialNote, worst: list[float]) -> list[float]:
    values = [bad if value is None else value for value, bad in zip(note.values, worst, strict=True)]
    return [min(max(v, -VALUE_LIMIT), VALUE_LIMIT) if math.isfinite(v) else v for v in values]


def _intermediate(note: TrialNote, worst: list[float]) -> dict[int, float]:
    if note.state != PRUNED or note.step is None:
        return {}
    return {note.step: _values(note, worst)[0]}


def _parts(path: str, range_: Range) -> Iterator[tuple[str, Range]]:
    if not isinstance(range_, Permutation | Subset):
        yield path, range_
        return
    for index, part in enumerate(range_.parts):
        yield f"{path}#{index}", part


def _only_value(range_: Range) -> Any:
    return 0 if isinstance(range_, Choice | Permutation | Subset) else range_.grid_value(0, 1)

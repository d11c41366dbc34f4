"""What every tuner promises, ours and users' own."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tuner_service.domain.experiment import Objective
from tuner_service.domain.search_space import SearchSpace
from tuner_service.domain.trial import Parameters, TrialOutcome


@dataclass(frozen=True, slots=True)
class NotYet:
    """Nothing to propose before another outcome is known; asked again then."""


@dataclass(frozen=True, slots=True)
class Exhausted:
    """Nothing left to propose, ever; the experiment ends when its trials have."""


Suggestion = Parameters | NotYet | Exhausted


class Tuner(ABC):
    """Proposes parameters. Built as ``Class(space, objective, **args)``, args being those of the experiment.

    A suggestion must be a function of (rng, number, what it was told, in order) and of nothing else: no clock, no
    generator of its own, no file. Then a search that was killed goes on as the search that would have been. Calls
    come one at a time, in journal order. It may raise SearchSpaceNotSupportedError (the experiment fails) and
    TemporarilyUnableError (asked again, a bounded number of times); anything else pauses the experiment.

    ``state_dict() -> dict`` and ``load_state_dict(state)``, both or neither, are optional: with them, in plain JSON
    values, a restart folds only what came after the newest snapshot; without, everything.
    """

    # True: with ``workers: N`` several calls of ``suggest`` may run at a time, none of them told what the others give.
    suggests_in_parallel: ClassVar[bool] = False
    # True: with ``workers: N`` several calls of ``observe`` may run at a time, for trials that ended one right after
    # the other. What it suggests later must not depend on which of these came first.
    observes_in_parallel: ClassVar[bool] = False
    # False: no suggestion depends on an outcome, so that some may be asked for before there is room to run them.
    needs_outcomes: ClassVar[bool] = True
    # True: ``objective.further`` are searched for too. Otherwise an experiment with several objectives fails at once.
    several_objectives: ClassVar[bool] = False
    # True: it may suggest what lies outside the space. Otherwise that pauses the experiment, as an error does.
    may_leave_space: ClassVar[bool] = False
    experiment_seed: int = 0  # set before the first call, for what must be the same in all suggestions of a search

    def __init__(self, space: SearchSpace, objective: Objective) -> None:
        self.space = space
        self.objective = objective

    @abstractmethod
    def suggest(self, number: int, rng: random.Random) -> Suggestion:
        """Parameters for trial ``number``. Must not change the tuner: ``pending`` tells it what was accepted.

        Called again for a trial that runs, where its script asks for further parameters.
        """

    @abstractmethod
    def observe(self, outcome: TrialOutcome) -> None:
        """A trial ended; told once. ``value`` is None where it has none (a failure), and may be NaN or infinite.

        With several objectives ``outcome.values`` has one for each, in the order of ``objective.every``.
        """

    def pending(self, number: int, parameters: Parameters) -> None:  # noqa: B027  # optional, does nothing
        """Trial ``number`` runs with ``parameters``: suggested here, now or before a restart, or chosen by a person.

        Told again for a trial whose script asked for further parameters, which it goes on with.
        """

    def recorded(self, number: int, parameters: Parameters) -> None:
        """As ``pending``, of a suggestion from before a restart: for classes that change when they are asked."""
        self.pending(number, parameters)

    def import_results(self, outcomes: Sequence[TrialOutcome]) -> None:
        """Results from elsewhere; their number is 0."""
        for outcome in outcomes:
            self.observe(outcome)

    def update_search_space(self, space: SearchSpace) -> None:
        """From here on, propose inside ``space``. What was told before may lie outside it."""
        self.space = space


def snapshot_of(algorithm: object) -> dict[str, Any] | None:
    """Its ``state_dict()``; None where it has none."""
    take = getattr(algorithm, "state_dict", None)
    if take is None or not hasattr(algorithm, "load_state_dict"):
        return None
    state = take()
    if not isinstance(state, dict):
        raise TypeError(f"{type(algorithm).__name__}.state_dict() must return a dict, not {type(state).__name__}")
    return state

"""A tuner written for NNI, as one of ours."""

from __future__ import annotations

import copy
import random
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner_service.domain.experiment import Objective
from tuner_service.domain.search_space import SearchSpace
from tuner_service.domain.trial import Parameters, TrialOutcome, TrialStatus
from tuner_service.tuners.base import Exhausted, NotYet, Suggestion, Tuner
from tuner_service.workers.nni.classes import build, drawing, job_id
from tuner_service.workers.nni.names import NoMoreTrialError


@dataclass(frozen=True, slots=True)
class _Given:
    """Parameters of the class, under the number that it knows them by."""

    parameter_id: int
    parameters: Any


class NniTuner(Tuner):
    """Asks an object of NNI's ``class_name`` for parameters, and tells it what NNI would.

    What it gives up of a tuner's promise: NNI's classes change when they are asked. After a restart the class is built
    anew, asked again for every trial that was suggested before, and its answers are left out for those on record. It
    then is what it was if it draws from the global generators, which are seeded before each call, or from one that it
    seeds itself; a class with a generator of its own without a seed, with a clock or with files goes on otherwise. A
    request that it could not answer is not repeated. As with NNI, what it proposes may lie outside the search space.
    """

    may_leave_space = True

    def __init__(  # noqa: PLR0913  # the experiment's args, by keyword
        self,
        space: SearchSpace,
        objective: Objective,
        *,
        class_name: str,
        code_directory: str = ".",
        class_args: Mapping[str, Any] | None = None,
        include_intermediate_results: bool = False,
    ) -> None:
        super().__init__(space, objective)
        self._class = build(
            class_name,
            code_directory=code_directory,
            class_args=class_args,
            begin=lambda made: made.update_search_space(copy.deepcopy(space.raw)),
        )
        self._spaces = 1  # that it was told
        self._tells_stopped = include_intermediate_results
        self._next_id = 0
        self._offer: tuple[int, _Given] | None = None  # generated for a trial, and not accepted yet
        self._ready: deque[_Given] = deque()  # given later than asked for, by NNI's st_callback
        self._running: dict[int, _Given] = {}
        self._of_people: set[int] = set()  # trials whose parameters a person chose

    def suggest(self, number: int, rng: random.Random) -> Suggestion:  # noqa: ARG002  # seeded by what a replay has too
        if self._offer is None or self._offer[0] != number:
            given = self._generated(number)
            if given is None:
                return NotYet() if self._running else Exhausted()
            self._offer = (number, given)
        suggestion: Suggestion = copy.deepcopy(self._offer[1].parameters)
        return suggestion

    def pending(self, number: int, parameters: Parameters) -> None:
        if self._offer is not None and self._offer[0] == number:
            given, self._offer = self._offer[1], None
        else:
            given = _Given(self._new_id(), parameters)
            self._of_people.add(number)
        self._running[number] = _Given(given.parameter_id, parameters)

    def recorded(self, number: int, parameters: Parameters) -> None:
        given = self._generated(number)
        self._running[number] = _Given(self._new_id() if given is None else given.parameter_id, parameters)

    def observe(self, outcome: TrialOutcome) -> None:
        given = self._running.pop(outcome.number, None)
        if given is None:
            return
        succeeded = outcome.status is TrialStatus.SUCCEEDED
        with drawing(self.experiment_seed, "observe", outcome.number):
            if outcome.value is not None and (succeeded or self._tells_stopped):
                self._tell_result(outcome.number, given, outcome)
            self._class.trial_end(given.parameter_id, succeeded)
        self._of_people.discard(outcome.number)

    def import_results(self, outcomes: Sequence[TrialOutcome]) -> None:
        known = [outcome for outcome in outcomes if outcome.value is not None]
        with drawing(self.experiment_seed, "import", len(outcomes)):
            self._class.import_data([{"parameter": copy.deepcopy(o.parameters), "value": o.value} for o in known])

    def update_search_space(self, space: SearchSpace) -> None:
        super().update_search_space(space)
        self._spaces += 1
        with drawing(self.experiment_seed, "space", self._spaces):
            self._class.update_search_space(copy.deepcopy(space.raw))

    # ── what the class is asked and told ────────────────────────────────────────────────────────────────
    def _generated(self, number: int) -> _Given | None:
        """None while the class has nothing to propose."""
        if self._ready:
            return self._ready.popleft()
        parameter_id, further = self._new_id(), number in self._running
        try:
            with drawing(self.experiment_seed, "generate", number, further):
                if further:
                    given = self._class.generate_parameters(parameter_id, trial_job_id=job_id(number))
                    return _Given(parameter_id, given)
                found = self._class.generate_multiple_parameters([parameter_id], st_callback=self._called_back)
        except NoMoreTrialError:
            found = []
        if found:
            return _Given(parameter_id, found[0])
        return self._ready.popleft() if self._ready else None

    def _called_back(self, parameter_id: int, parameters: Any) -> None:
        self._ready.append(_Given(parameter_id, copy.deepcopy(parameters)))

    def _tell_result(self, number: int, given: _Given, outcome: TrialOutcome) -> None:
        told = (given.parameter_id, copy.deepcopy(outcome.parameters), outcome.value)
        if number not in self._of_people:
            self._class.receive_trial_result(*told, customized=False, trial_job_id=job_id(number))
        elif hasattr(self._class, "receive_customized_trial_result"):
            self._class.receive_customized_trial_result(*told)
        elif getattr(self._class, "_accept_customized", False):
            self._class.receive_trial_result(*told, customized=True, trial_job_id=job_id(number))

    def _new_id(self) -> int:
        self._next_id += 1
        return self._next_id - 1

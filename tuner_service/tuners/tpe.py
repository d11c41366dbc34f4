"""``tpe``: the tree-structured Parzen estimator of Optuna, kept a pure function of (generator, number, history).

The tuner's memory is its own list of trials. From it an in-memory study is kept up to date, and each suggestion asks
a new sampler, seeded from the generator that is handed in, about that study. So it makes no difference whether the
list was grown live, folded anew or read from a snapshot. Optuna is imported with the first suggestion that needs it.
"""

from __future__ import annotations

import math
import random
from typing import Any

from tuner_service.domain.experiment import Goal, Objective
from tuner_service.domain.search_space import SearchSpace
from tuner_service.domain.trial import Parameters, TrialOutcome, TrialStatus
from tuner_service.tuners.base import Suggestion, Tuner
from tuner_service.tuners.proposed import ProposedParameters
from tuner_service.tuners.trial_notes import FAILED, FINISHED, PRUNED, RUNNING, TrialNote

MODEL_REDRAWS = 4  # of the model, each of which costs a full suggestion; then
RANDOM_REDRAWS = 20  # of the space


class TpeTuner(Tuner):
    def __init__(self, space: SearchSpace, objective: Objective, **options: Any) -> None:
        super().__init__(space, objective)
        self._startup = int(options.pop("n_startup_trials", 10))
        self._options = options
        self._notes: list[TrialNote] = []
        self._running: dict[int, int] = {}  # trial number -> index in the notes
        self._forget_model()

    # ── the port ────────────────────────────────────────────────────────────────────────────────
    def suggest(self, number: int, rng: random.Random) -> Suggestion:  # noqa: ARG002  # the generator knows it
        first: Parameters | None = None
        if self._modelled >= self._startup:
            for _ in range(1 + MODEL_REDRAWS):
                parameters = self._ask_model(rng)
                if parameters not in self._proposed or self._proposed.fills_the_space:
                    return parameters
                first = first or parameters
        for _ in range(1 + RANDOM_REDRAWS):
            parameters = self.space.sample(rng)
            if parameters not in self._proposed or (first is None and self._proposed.fills_the_space):
                return parameters
        return self._proposed.unproposed(rng) or first or parameters

    def pending(self, number: int, parameters: Parameters) -> None:
        self._give_up(number)
        self._running[number] = len(self._notes)
        self._note(TrialNote(number=number, parameters=parameters))

    def observe(self, outcome: TrialOutcome) -> None:
        state, value = self._judged(outcome)
        known = self._running.get(outcome.number)
        if known is not None and self._notes[known].parameters != outcome.parameters:
            self._give_up(outcome.number)
        index = self._running.pop(outcome.number, None)
        if index is None:
            self._note(
                TrialNote(
                    number=outcome.number, parameters=outcome.parameters, state=state, value=value, step=outcome.step
                )
            )
            return
        note = self._notes[index]
        note.state, note.value, note.step = state, value, outcome.step
        self._modelled += self._is_modelled(note)
        if self._model is not None:
            self._model.finish(index, note)

    def update_search_space(self, space: SearchSpace) -> None:
        """What no longer fits is left out of the model (and comes back with a space that it fits)."""
        super().update_search_space(space)
        self._forget_model()

    def state_dict(self) -> dict[str, Any]:
        notes = [[n.number, n.parameters, n.state, n.value, n.step] for n in self._notes]
        return {"version": 1, "notes": notes}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._notes = [
            TrialNote(number=number, parameters=parameters, state=trial_state, value=value, step=step)
            for number, parameters, trial_state, value, step in state["notes"]
        ]
        self._running = {note.number: i for i, note in enumerate(self._notes) if note.state == RUNNING}
        self._forget_model()

    # ── the notes ───────────────────────────────────────────────────────────────────────────────
    def _judged(self, outcome: TrialOutcome) -> tuple[str, float | None]:
        """Its state in the model, and its value there: None (the worst) for NaN and infinities."""
        value = outcome.value if outcome.value is not None and math.isfinite(outcome.value) else None
        if outcome.status is TrialStatus.EARLY_STOPPED and outcome.step is not None:
            return PRUNED, value
        # A failure says nothing of how good its parameters are; a trial that a person stopped with a value does.
        if outcome.status is TrialStatus.FAILED or outcome.value is None:
            return FAILED, None
        return FINISHED, value

    def _note(self, note: TrialNote) -> None:
        self._notes.append(note)
        self._proposed.add(note.parameters)
        self._modelled += self._is_modelled(note)
        if self._model is not None:
            self._model.add(note)

    def _give_up(self, number: int) -> None:
        """The trial goes on with other parameters: nothing will be known of those it ran with until now."""
        index = self._running.pop(number, None)
        if index is not None:
            self._notes[index].state = FAILED
            if self._model is not None:
                self._model.finish(index, self._notes[index])

    def _is_modelled(self, note: TrialNote) -> bool:
        return note.state in {FINISHED, PRUNED} and self.space.contains(note.parameters)

    def _forget_model(self) -> None:
        self._model: Any = None
        self._proposed = ProposedParameters(self.space)
        for note in self._notes:
            self._proposed.add(note.parameters)
        self._modelled = sum(map(self._is_modelled, self._notes))

    def _ask_model(self, rng: random.Random) -> Parameters:
        if self._model is None:
            from tuner_service.tuners.optuna_model import OptunaModel

            self._model = OptunaModel(
                self.space, maximize=self.objective.goal is Goal.MAXIMIZE, sampler_options=self._options
            )
            for note in self._notes:
                self._model.add(note)
        parameters: Parameters = self._model.suggest(rng.getrandbits(32))
        return parameters

"""What tuners that learn from outcomes have in common: their memory, their beginning, and no repetitions.

The memory is a list of notes about trials. What else such a tuner keeps (a model, a population) is made from the notes
and can be dropped at any time: so it makes no difference whether they were gathered live, folded anew or read from a
snapshot.
"""

from __future__ import annotations

import math
import random
from abc import abstractmethod
from typing import Any

from tuner_service.domain.experiment import Objective
from tuner_service.domain.search_space import SearchSpace
from tuner_service.domain.trial import Parameters, TrialOutcome, TrialStatus
from tuner_service.tuners.base import Suggestion, Tuner
from tuner_service.tuners.chances import Chances
from tuner_service.tuners.proposed import ProposedParameters
from tuner_service.tuners.trial_notes import (
    FAILED,
    FAILED_ITSELF,
    FINISHED,
    PRUNED,
    RUNNING,
    TrialNote,
    note_from_plain,
)

MODEL_REDRAWS = 4  # of the model, each of which may cost a full suggestion; then
RANDOM_REDRAWS = 20  # of the space
SNAPSHOT_VERSION = 2


class ModelTuner(Tuner):
    """``startup``: ended trials before the model is asked; until then, random draws.

    What is proposed and drawn is weighed by the probability that such a trial succeeds, once some have failed by their
    own doing (``Chances``).
    """

    model_redraws = MODEL_REDRAWS
    proposes_likely = False  # True: ``_propose`` does that itself

    def __init__(self, space: SearchSpace, objective: Objective, *, startup: int) -> None:
        super().__init__(space, objective)
        self._startup = startup
        self.notes: list[TrialNote] = []
        self._running: dict[int, int] = {}  # trial number -> index in the notes
        self._ended = 0
        self._count_again()

    # ── for the algorithm ───────────────────────────────────────────────────────────────────────
    @abstractmethod
    def _propose(self, rng: random.Random) -> Parameters:
        """A point of the space by the model; asked once ``startup`` trials have ended. It may break constraints."""

    @abstractmethod
    def _forget(self) -> None:
        """Drop everything that was made from the notes: they, or the space, are others now."""

    def _noted(self, index: int) -> None:  # optional, does nothing
        """Note ``index`` is new: it runs, or it came with its outcome."""

    def _finished(self, index: int) -> None:  # likewise
        """Note ``index``, which ran until now, has its outcome."""

    def _derived_state(self) -> dict[str, Any]:
        """JSON values of what would take long to be made from the notes again; for a snapshot."""
        return {}

    def _load_derived(self, state: dict[str, Any]) -> None:  # optional, does nothing
        """What ``_derived_state`` gave, after ``_forget``; the notes are there already."""

    @property
    def modelled(self) -> list[TrialNote]:
        """The notes with an outcome that a model can learn from, inside the space, in the order in which they ended."""
        return self._modelled

    @property
    def taught(self) -> list[TrialNote]:
        """The same, and with them the notes of trials that failed by their own doing."""
        return self._taught

    # ── the port ────────────────────────────────────────────────────────────────────────────────
    def suggest(self, number: int, rng: random.Random) -> Suggestion:  # noqa: ARG002  # the generator knows it
        first: Parameters | None = None
        filled = self._proposed.fills_the_space
        if len(self._modelled) >= self._startup:
            for _ in range(1 + self.model_redraws):
                parameters = self._propose(rng) if self.proposes_likely else self._chances.likely(self._propose, rng)
                if not self.space.admits(parameters):
                    continue
                if filled or parameters not in self._proposed:
                    return parameters
                first = first or parameters
        for _ in range(1 + RANDOM_REDRAWS):
            parameters = self._chances.likely(self.space.sample, rng)
            if parameters not in self._proposed or (first is None and filled):
                return parameters
        return self._proposed.unproposed(rng) or first or parameters

    def pending(self, number: int, parameters: Parameters) -> None:
        self._give_up(number)
        self._running[number] = len(self.notes)
        self._note(TrialNote(number=number, parameters=parameters))

    def observe(self, outcome: TrialOutcome) -> None:
        state, values = self._judged(outcome)
        known = self._running.get(outcome.number)
        if known is not None and self.notes[known].parameters != outcome.parameters:
            self._give_up(outcome.number)
        index = self._running.pop(outcome.number, None)
        if index is None:
            note = TrialNote(number=outcome.number, parameters=outcome.parameters, state=state, values=values)
            note.step, note.place = outcome.step, self._next_place()
            self._note(note)
            return
        note = self.notes[index]
        note.state, note.values, note.step, note.place = state, values, outcome.step, self._next_place()
        self._count(note)
        self._finished(index)

    def update_search_space(self, space: SearchSpace) -> None:
        """What no longer fits is left out of the model (and comes back with a space that it fits)."""
        super().update_search_space(space)
        self._count_again()
        self._forget()

    def state_dict(self) -> dict[str, Any]:
        notes = [note.to_plain() for note in self.notes]
        return {
            "version": SNAPSHOT_VERSION,
            "notes": notes,
            "ended": self._ended,
            "derived": self._derived_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["version"] != SNAPSHOT_VERSION:
            raise ValueError(f"a snapshot of version {state['version']}; this is version {SNAPSHOT_VERSION}")
        self.notes = [note_from_plain(plain) for plain in state["notes"]]
        self._ended = state["ended"]
        self._running = {note.number: i for i, note in enumerate(self.notes) if note.state == RUNNING}
        self._count_again()
        self._forget()
        self._load_derived(state["derived"])

    # ── the notes ───────────────────────────────────────────────────────────────────────────────
    def _judged(self, outcome: TrialOutcome) -> tuple[str, tuple[float | None, ...]]:
        """Its state in the model, and its values there: None (the worst) for NaN and infinities."""
        values = tuple(
            value if value is not None and math.isfinite(value) else None
            for value in (outcome.value, *outcome.further_values)
        )
        if outcome.own_failure:
            return FAILED_ITSELF, ()
        if self.objective.further:
            # What counts as the worst has no place on a front.
            whole = len(values) == len(self.objective.every) and None not in values
            stopped = outcome.status in {TrialStatus.FAILED, TrialStatus.EARLY_STOPPED}
            return (FINISHED, values) if whole and not stopped else (FAILED, ())
        if outcome.status is TrialStatus.EARLY_STOPPED and outcome.step is not None:
            return PRUNED, values[:1]
        # A failure says nothing of how good its parameters are; a trial that a person stopped with a value does.
        if outcome.status is TrialStatus.FAILED or outcome.value is None:
            return FAILED, ()
        return FINISHED, values[:1]

    def _next_place(self) -> int:
        self._ended += 1
        return self._ended

    def _note(self, note: TrialNote) -> None:
        self.notes.append(note)
        self._proposed.add(note.parameters)
        self._count(note)
        self._noted(len(self.notes) - 1)

    def _give_up(self, number: int) -> None:
        """The trial goes on with other parameters: nothing will be known of those it ran with until now."""
        index = self._running.pop(number, None)
        if index is not None:
            self.notes[index].state, self.notes[index].place = FAILED, self._next_place()
            self._finished(index)

    def _count(self, note: TrialNote) -> None:
        if note.state not in {FINISHED, PRUNED, FAILED_ITSELF} or not self.space.contains(note.parameters):
            return
        self._chances.tell(note.parameters, succeeded=note.state != FAILED_ITSELF)
        self._taught.append(note)
        if note.state != FAILED_ITSELF:
            self._modelled.append(note)

    def _count_again(self) -> None:
        self._proposed = ProposedParameters(self.space)
        for note in self.notes:
            self._proposed.add(note.parameters)
        self._modelled: list[TrialNote] = []
        self._taught: list[TrialNote] = []
        self._chances = Chances(self.space)
        for note in sorted((n for n in self.notes if n.place is not None), key=lambda n: n.place or 0):
            self._count(note)

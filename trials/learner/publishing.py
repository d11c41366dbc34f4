"""Hooks that give weights to others and take them from others."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from trials.arguments import whole_number
from trials.compression import compressor as compressor_named
from trials.learner.builtin_hooks import PUBLISH
from trials.learner.hooks import Hook, When
from trials.learner.training_loop import Stateful, TrainingLoop
from trials.learner.weights import KEPT, WeightsReader, publish_weights

EVERY_STEPS = 100  # iterations from one publication, or look for one, to the next, where nobody says how often
PUBLISHED = When(every_steps=EVERY_STEPS, on_stop=True)
LOOKED_FOR = When(every_steps=EVERY_STEPS)


class PublishWeights(Hook):
    """Publishes weights to one or several places: before the first iteration, and when ``when`` says so (left out:
    every 100 iterations, and after the last one).

    ``weights`` is a name in the learner's state, or a function that gives what is to be published. The version is the
    number of the iteration. Only the process with rank 0 does it.
    """

    priority = PUBLISH
    on_every_rank = False

    def __init__(
        self,
        to: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        when: When = PUBLISHED,
        weights: str | Callable[[], Any] = "model",
        keep: int = KEPT,
        compressor: str = "none",
    ) -> None:
        keep = whole_number(keep, what="keep", least=1)
        compressor_named(compressor)  # what cannot be had is said now
        self.when = when
        self._places = [to] if isinstance(to, str | os.PathLike) else list(to)
        self._weights = weights
        self._keep = keep
        self._compressor = compressor

    def before_run(self, learner: TrainingLoop) -> None:
        self._publish(learner)

    def after_iteration(self, learner: TrainingLoop) -> None:
        self._publish(learner)

    def _publish(self, learner: TrainingLoop) -> None:
        weights = self._weights
        state = weights() if callable(weights) else _part(learner, weights, what="weights").state_dict()
        publish_weights(state, version=learner.step, to=self._places, keep=self._keep, compressor=self._compressor)


class LoadWeights(Hook):
    """Loads weights that somebody else publishes: the newest before the first iteration, newer ones when ``when`` says
    so (left out: every 100 iterations).

    What comes from outside is in no checkpoint before it is loaded, so a trial with it does not resume exactly.
    """

    priority = 10

    def __init__(
        self,
        source: str | os.PathLike[str],
        *,
        when: When = LOOKED_FOR,
        into: str = "model",
        first_within_s: float = 0.0,
    ) -> None:
        self.when = when
        self._reader = WeightsReader(source)
        self._into = into
        self._first_within_s = first_within_s

    def before_run(self, learner: TrainingLoop) -> None:
        """With ``first_within_s``, TimeoutError when nothing was published by then."""
        found = self._reader.wait(self._first_within_s) if self._first_within_s else self._reader.poll()
        self._load(learner, found)

    def after_iteration(self, learner: TrainingLoop) -> None:
        self._load(learner, self._reader.poll())

    def _load(self, learner: TrainingLoop, found: Any) -> None:
        if found is not None:
            _part(learner, self._into, what="into").load_state_dict(found)


def _part(learner: TrainingLoop, name: str, *, what: str) -> Stateful:
    if name not in learner.state:
        raise KeyError(
            f"{what}={name!r} is none of the learner's state, which has {', '.join(learner.state) or 'nothing'}"
        )
    return learner.state[name]

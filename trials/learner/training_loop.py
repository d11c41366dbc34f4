"""What a hook sees of the training loop that calls it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from trials.session import Trial

ASKED_TO_STOP = "asked to stop"  # the reason of a loop that goes on in a later attempt


class LoopStopped(Exception):  # noqa: N818  # no error: the loop ends well by it
    """Raised by whoever gives the batches, in the place of one: the loop ends here, and the epoch does not."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Stateful(Protocol):
    """A model, an optimiser, a scheduler, a generator: whatever has to go on where it was."""

    def state_dict(self) -> Any: ...

    def load_state_dict(self, state: Any, /) -> Any: ...


@dataclass(slots=True, kw_only=True)
class Times:
    """Seconds of this run, on the clock of the wall. Where a device works on its own, ``training_s`` is what the
    process waited for it."""

    waiting_s: float = 0.0  # for batches
    training_s: float = 0.0  # in the step
    hooks_s: float = 0.0  # in before_iteration and after_iteration


class TrainingLoop(Protocol):
    """The Learner, as the hooks that come with it know it: a file of hooks need not import the loop that calls them."""

    trial: Trial
    rank: int
    step: int  # iterations done, those of earlier attempts included
    batch: Any
    metrics: dict[str, Any]
    times: Times
    stop_reason: str | None
    state: dict[str, Stateful]

    @property
    def epoch(self) -> int:
        """Times the batches were gone through to their end."""
        ...

    def stop(self, reason: str) -> None:
        """End the loop after this iteration and its hooks."""
        ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Any) -> None: ...

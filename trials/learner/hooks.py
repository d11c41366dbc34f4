"""What a hook is, when it is due, and how hooks are called."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trials.arguments import number, whole_number

POSITIONS = ("before_run", "before_iteration", "after_iteration", "after_run")
DEFAULT_PRIORITY = 50
GOALS = ("minimize", "maximize")


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """How often a hook is called in the loop: whenever one of these says so.

    ``every_steps`` and ``every_s`` count iterations and seconds of the run. ``on_improvement`` names a metric: due when
    the iteration has it and it is better than at every iteration before, those of earlier attempts included; NaN never
    is. ``on_stop``: due after the last iteration, whatever ended the loop but an error.
    """

    every_steps: int | None = None
    every_s: float | None = None
    on_improvement: str | None = None
    goal: str = "minimize"
    on_stop: bool = False

    def __post_init__(self) -> None:
        if self.every_steps is not None:
            whole_number(self.every_steps, what="every_steps", least=1)
        if self.every_s is not None and not number(self.every_s, what="every_s") > 0:
            raise ValueError(f"every_s is more than 0 seconds, not {self.every_s}")
        if self.on_improvement is not None and not isinstance(self.on_improvement, str):
            raise TypeError(f"on_improvement is the name of a metric, not {self.on_improvement!r:.60}")
        if self.goal not in GOALS:
            raise ValueError(f"goal is one of {', '.join(GOALS)}, not {self.goal!r}")


class Hook:
    """Something done at positions of the loop. Subclass it, and write the positions you need.

    Hooks are called in the order of ``priority``, lower first, and among equals in the order they were given.
    ``when`` holds for ``before_iteration`` and ``after_iteration``; ``before_run`` and ``after_run`` are called once.
    What a hook has to remember over a restart goes through ``state_dict`` and ``load_state_dict``, and is saved with
    every checkpoint. An exception ends the trial, and names the hook.

    The positions are given the ``Learner``. Their parameter is not typed here, so that a hook may annotate it with
    ``Learner`` or with a part of it: a narrower type than a base class's would be refused.
    """

    priority: int = DEFAULT_PRIORITY
    when: When = When(every_steps=1)
    on_every_rank: bool = True  # False: only the process with rank 0 calls it

    @property
    def name(self) -> str:
        """One of a learner's hooks; a later one of the same name takes the place of the earlier."""
        return type(self).__name__

    def before_run(self, learner: Any) -> None:
        """Once, before the first iteration."""

    def before_iteration(self, learner: Any) -> None:
        """The batch is there (``learner.batch``), ``learner.step`` iterations are done."""

    def after_iteration(self, learner: Any) -> None:
        """``learner.metrics`` are those of the iteration, which is number ``learner.step``, counted from 1."""

    def after_run(self, learner: Any) -> None:
        """Once, after the last iteration; not where an error ended the loop."""

    def state_dict(self) -> dict[str, Any]:
        """What it has to remember, as plain values; empty where there is nothing."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what ``state_dict`` gave."""


class HookError(RuntimeError):
    """A hook raised; the trial ends with this."""

    def __init__(self, hook: str, position: str, error: BaseException) -> None:
        super().__init__(f"hook {hook!r} failed in {position}: {type(error).__name__}: {error}")
        self.hook, self.position = hook, position


class Due:
    """When one hook is due next. ``now`` are seconds of a clock that only goes forward."""

    def __init__(self, when: When, *, now: float) -> None:
        self._when = when
        self._called_at = now
        self.called_step = -1  # of the last time it was due after an iteration
        self.best: float | None = None

    def before_iteration(self, step: int) -> bool:
        """Of the iteration after ``step``; seconds and metrics are looked at afterwards only."""
        every = self._when.every_steps
        return every is not None and step % every == 0

    def after_iteration(self, step: int, metrics: Mapping[str, Any], *, now: float) -> bool:
        """Asked once for every iteration: it remembers the best value."""
        every, seconds = self._when.every_steps, self._when.every_s
        due = self._has_improved(metrics)
        due |= every is not None and step % every == 0
        due |= seconds is not None and now - self._called_at >= seconds
        if due:
            self._called_at, self.called_step = now, step
        return due

    def at_the_end(self, step: int) -> bool:
        return self._when.on_stop and self.called_step != step

    def _has_improved(self, metrics: Mapping[str, Any]) -> bool:
        name = self._when.on_improvement
        if name is None or name not in metrics:
            return False
        value = float(metrics[name])
        if math.isnan(value):
            return False
        if self.best is not None and not (value < self.best if self._when.goal == "minimize" else value > self.best):
            return False
        self.best = value
        return True

"""The training loop: batches in, one step each, hooks around it, and a state from which it goes on exactly."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from trials.arguments import number
from trials.learner.batch_stream import BatchStream
from trials.learner.builtin_hooks import default_hooks
from trials.learner.hooks import POSITIONS, Due, Hook, HookError
from trials.learner.priorities import report_priorities, sampler_of
from trials.learner.training_loop import LoopStopped, Stateful, Times
from trials.session import Trial

STATE_KEY = "learner"  # of the loop's own part in a checkpoint
STATE_METHODS = ("state_dict", "load_state_dict")
_END = object()


class Learner:
    """Runs ``step(batch)`` over ``batches`` until it is done or asked to stop.

    ``step`` trains on one batch and returns its metrics, a mapping of names to numbers, or None. ``state`` names
    everything with ``state_dict`` and ``load_state_dict`` that training changes; a checkpoint holds that, the position
    in the batches, the hooks' states and the random generators. After a restart the loop goes on with the batch, the
    weights and the random numbers it would have had. ``hooks`` come on top of ``default_hooks()``; one of the same
    name takes the place of a default one.
    """

    def __init__(
        self,
        trial: Trial,
        *,
        step: Callable[[Any], Mapping[str, Any] | None],
        batches: Iterable[Any],
        state: Mapping[str, Stateful],
        hooks: Hook | Sequence[Hook] = (),
    ) -> None:
        _require_parts(step, batches, state)
        self.trial = trial
        self.rank = int(os.environ.get("RANK", "0"))
        self.step = 0  # iterations done, those of earlier attempts included
        self.batch: Any = None
        self.metrics: dict[str, Any] = {}
        self.times = Times()
        self.stop_reason: str | None = None
        self.state: dict[str, Stateful] = dict(state)
        self._train = step
        self._batches = batches
        self._stream = BatchStream(batches)
        self._priorities_to: Any = None
        self._hooks = {hook.name: hook for hook in default_hooks()}
        self._dues: dict[str, Due] = {}
        self._begun_at = 0
        for hook in [hooks] if isinstance(hooks, Hook) else hooks:
            self.add(hook)

    @property
    def epoch(self) -> int:
        """Times the batches were gone through to their end."""
        return self._stream.epoch

    # ── hooks ───────────────────────────────────────────────────────────────────────────────────
    @property
    def hooks(self) -> list[Hook]:
        """In the order they are called."""
        return sorted(self._hooks.values(), key=lambda hook: hook.priority)

    def add(self, hook: Hook) -> None:
        """From the next run on; it takes the place of one with the same name."""
        if not isinstance(hook, Hook):
            made = f": give {hook.__name__}(…), an object" if isinstance(hook, type) else ""
            raise TypeError(f"a hook is an object of a class derived from Hook, not {hook!r:.60}{made}")
        self._hooks.pop(hook.name, None)
        self._hooks[hook.name] = hook

    def remove(self, name: str) -> None:
        """KeyError names the hooks there are."""
        if name not in self._hooks:
            raise KeyError(f"no hook {name!r}; there are {', '.join(self._hooks)}")
        del self._hooks[name]

    # ── the loop ────────────────────────────────────────────────────────────────────────────────
    def run(self, *, steps: int | None = None, epochs: int | None = None) -> bool:
        """Until so many iterations or epochs were done in all, earlier attempts included, or ``stop`` was called.

        True when it came to its end, False when it was stopped. HookError when a hook raised; whatever ``step`` or
        the batches raise comes through as it is.
        """
        if steps is None and epochs is None:
            raise ValueError("say when the loop ends: run(steps=…) or run(epochs=…)")
        for what, bound in (("steps", steps), ("epochs", epochs)):
            if bound is not None and number(bound, what=what) < 0:
                raise ValueError(f"{what} is at least 0, not {bound}")
        self.stop_reason = None
        now = time.perf_counter()
        self._dues = {hook.name: Due(hook.when, now=now) for hook in self.hooks}
        self._call("before_run")
        self._begun_at = self.step
        while self.stop_reason is None and not self._is_done(steps, epochs):
            batch = self._next_batch()
            if batch is not _END:
                self._iterate(batch)
        if self.step > self._begun_at:
            self._call_at_the_end()
        self.batch = None
        self._call("after_run")
        return self.stop_reason is None

    def stop(self, reason: str) -> None:
        """End the loop after this iteration and its hooks. TypeError for a reason that is no text."""
        if not isinstance(reason, str):
            raise TypeError(f"stop takes the reason as text, as stop('converged'), not {reason!r:.60}")
        self.stop_reason = self.stop_reason or reason or "stopped"

    def report_priorities(self, samples: Sequence[Any], priorities: Sequence[float]) -> None:
        """Tell the batches' sampler, or one that reads the file of TUNER_PRIORITIES, about samples of this iteration.

        The numbers may be a tensor or an array. TypeError when nobody wants them.
        """
        if self._priorities_to is None:
            self._priorities_to = sampler_of(self._batches)
        report_priorities(self._priorities_to, samples, priorities, step=self.step)

    def _is_done(self, steps: int | None, epochs: int | None) -> bool:
        return (steps is not None and self.step >= steps) or (epochs is not None and self.epoch >= epochs)

    def _next_batch(self) -> Any:
        begun = time.perf_counter()
        try:
            there, batch = self._stream.next()
        except LoopStopped as stopped:
            self.stop(stopped.reason)
            there, batch = False, None
        self.times.waiting_s += time.perf_counter() - begun
        return batch if there else _END

    def _iterate(self, batch: Any) -> None:
        begun = time.perf_counter()
        self.batch, self.metrics = batch, {}
        self._call("before_iteration")
        before = time.perf_counter()
        found = self._train(batch)
        trained = time.perf_counter()
        if found is not None and not isinstance(found, Mapping):
            raise TypeError(f"step returned {type(found).__name__}; return the metrics of the batch as a dict, or None")
        self.metrics = dict(found or {})
        self.step += 1
        self._call("after_iteration")
        self.times.training_s += trained - before
        self.times.hooks_s += before - begun + time.perf_counter() - trained

    # ── calling hooks ───────────────────────────────────────────────────────────────────────────
    def _call(self, position: str) -> None:
        assert position in POSITIONS
        for hook in self.hooks:
            if (hook.on_every_rank or self.rank == 0) and self._is_due(hook, position):
                self._run_hook(hook, position)

    def _call_at_the_end(self) -> None:
        for hook in self.hooks:
            due = self._dues.get(hook.name)
            if due is not None and due.at_the_end(self.step) and (hook.on_every_rank or self.rank == 0):
                self._run_hook(hook, "after_iteration")

    def _is_due(self, hook: Hook, position: str) -> bool:
        due = self._dues.get(hook.name)
        if due is None:
            return False  # it was added while the loop runs
        if position == "before_iteration":
            return due.before_iteration(self.step)
        if position == "after_iteration":
            return due.after_iteration(self.step, self.metrics, now=time.perf_counter())
        return True

    def _run_hook(self, hook: Hook, position: str) -> None:
        try:
            getattr(hook, position)(self)
        except HookError:
            raise
        except Exception as error:
            raise HookError(hook.name, position, error) from error

    # ── going on ────────────────────────────────────────────────────────────────────────────────
    def state_dict(self) -> dict[str, Any]:
        """What the loop needs to go on exactly, but for the random generators, which every checkpoint has."""
        hooks = {}
        for hook in self.hooks:
            due = self._dues.get(hook.name)
            hooks[hook.name] = {"state": hook.state_dict(), "best": None if due is None else due.best}
        own = {"step": self.step, "batches": self._stream.state_dict(), "hooks": hooks}
        return {STATE_KEY: own, **{name: part.state_dict() for name, part in self.state.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """ValueError when the checkpoint has other parts than ``state`` names."""
        if set(state) != {STATE_KEY, *self.state}:
            raise ValueError(
                f"the checkpoint holds {', '.join(sorted(map(str, state)))}, and the learner wants "
                f"{', '.join(sorted({STATE_KEY, *self.state}))}; was it saved by another version of this script?"
            )
        for name, part in self.state.items():
            part.load_state_dict(state[name])
        own = state[STATE_KEY]
        self.step = own["step"]
        for hook in self.hooks:
            if hook.name in own["hooks"]:
                saved = own["hooks"][hook.name]
                hook.load_state_dict(saved["state"])
                if hook.name in self._dues:
                    self._dues[hook.name].best = saved["best"]
        # The stream goes last: passing over batches draws random numbers, after which it puts the generators back.
        self._stream.load_state_dict(own["batches"])


def _require_parts(step: Any, batches: Any, state: Any) -> None:
    """What would fail at the first checkpoint, a minute into the training, is refused before it begins."""
    if not callable(step):
        raise TypeError(f"step is a function of a batch, as step=train, not {step!r:.60}")
    if not isinstance(batches, Iterable) and not hasattr(batches, "__getitem__"):
        raise TypeError(f"batches is a loader, a list or another iterable, not a {type(batches).__name__}")
    if not isinstance(state, Mapping):
        raise TypeError(f"state is a mapping, as {{'model': model}}, not a {type(state).__name__}")
    if STATE_KEY in state:
        raise ValueError(f"state: the name {STATE_KEY!r} is the loop's own; choose another")
    for name, part in state.items():
        missing = [method for method in STATE_METHODS if not callable(getattr(part, method, None))]
        if missing or isinstance(part, type):
            raise TypeError(
                f"state: {name!r} is {part!r:.60}, a {type(part).__name__}, which has no {' and '.join(missing)}; "
                "name what has both, as a model or an optimiser does"
                if missing
                else f"state: {name!r} is the class {part.__name__}; give an object of it"
            )

"""Hooks that every training loop wants: restore, report, save, log, stop."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from trials.arguments import number, whole_number
from trials.learner.hooks import Hook, When
from trials.learner.training_loop import ASKED_TO_STOP, TrainingLoop

SAVE_EVERY_S = 60.0
LOG_EVERY_S = 10.0
# Reports before the checkpoint that knows of them; the question whether to stop last.
RESTORE, REPORT, LOG, PUBLISH, SAVE, STOP = 0, 20, 30, 40, 80, 100


def default_hooks() -> list[Hook]:
    """Restore, report every iteration, save every minute and at the end, stop when asked."""
    return [Restore(), Report(), SaveCheckpoint(every_s=SAVE_EVERY_S), StopWhenAsked()]


class Restore(Hook):
    """Goes on from the trial's newest intact checkpoint, if there is one; on every rank from the same.

    A loop that has done something already goes on from that.
    """

    priority = RESTORE

    def before_run(self, learner: TrainingLoop) -> None:
        if learner.step:
            return
        state = learner.trial.restore()
        if state is not None:
            learner.load_state_dict(state)


class Report(Hook):
    """Reports the metrics of the iteration, or with ``average`` their means since the last report.

    ``names`` chooses among them. A mean costs a look at each value, for which a device is waited for.
    """

    priority = REPORT
    on_every_rank = False

    def __init__(self, *, every_steps: int = 1, names: Sequence[str] | None = None, average: bool = False) -> None:
        self.when = When(every_steps=1 if average else every_steps)
        self._every = whole_number(every_steps, what="every_steps", least=1)
        self._names = (names,) if isinstance(names, str) else names
        self._average = average
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = {}

    def after_iteration(self, learner: TrainingLoop) -> None:
        chosen = {n: v for n, v in learner.metrics.items() if self._names is None or n in self._names}
        if self._average:
            self._add(chosen)
            chosen = self._take_means() if learner.step % self._every == 0 else {}
        if chosen:
            learner.trial.report(chosen, step=learner.step)

    def after_run(self, learner: TrainingLoop) -> None:
        if self._counts and learner.stop_reason is None:  # a trial that goes on later adds to them
            learner.trial.report(self._take_means(), step=learner.step)

    def state_dict(self) -> dict[str, Any]:
        return {"sums": dict(self._sums), "counts": dict(self._counts)} if self._average else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._sums, self._counts = dict(state.get("sums", {})), dict(state.get("counts", {}))

    def _add(self, metrics: dict[str, Any]) -> None:
        for name, value in metrics.items():
            self._sums[name] = self._sums.get(name, 0.0) + float(value)
            self._counts[name] = self._counts.get(name, 0) + 1

    def _take_means(self) -> dict[str, float]:
        means = {name: total / self._counts[name] for name, total in self._sums.items()}
        self._sums, self._counts = {}, {}
        return means


class ReportFinal(Hook):
    """Reports the newest values of these metrics as the trial's result, once the loop has come to its end."""

    priority = REPORT
    on_every_rank = False

    def __init__(self, *names: str) -> None:
        if not names:
            raise ValueError("ReportFinal needs the names of the metrics that are the result")
        for name in names:
            if not isinstance(name, str):
                raise TypeError(f"ReportFinal takes names, as ReportFinal('loss', 'accuracy'), not {name!r:.60}")
        self._names = names
        self._newest: dict[str, float] = {}

    def after_iteration(self, learner: TrainingLoop) -> None:
        for name in self._names:
            if name in learner.metrics:
                self._newest[name] = learner.metrics[name]

    def after_run(self, learner: TrainingLoop) -> None:
        missing = [name for name in self._names if name not in self._newest]
        if learner.stop_reason is not None:
            return  # the trial goes on later, or was given up
        if missing:
            raise KeyError(f"no iteration had the metric {', '.join(missing)}")
        learner.trial.report_final(self._newest)

    def state_dict(self) -> dict[str, Any]:
        return {name: float(value) for name, value in self._newest.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._newest = dict(state)


class SaveCheckpoint(Hook):
    """Saves what the loop needs to go on, by steps, by seconds, on improvement of a metric, and at the end."""

    priority = SAVE
    on_every_rank = False

    def __init__(
        self,
        *,
        every_steps: int | None = None,
        every_s: float | None = None,
        on_improvement: str | None = None,
        goal: str = "minimize",
        on_stop: bool = True,
    ) -> None:
        self.when = When(
            every_steps=every_steps, every_s=every_s, on_improvement=on_improvement, goal=goal, on_stop=on_stop
        )

    def after_iteration(self, learner: TrainingLoop) -> None:
        learner.trial.save_checkpoint(learner.state_dict(), step=learner.step)


class LogThroughput(Hook):
    """Writes a line with the rate of steps and the share of time spent waiting for batches, and reports both.

    The metrics are ``steps_per_s`` and ``data_wait_share``, of the time since the last line; with ``count``, a function
    that says how many samples a batch has, ``samples_per_s`` as well.
    """

    priority = LOG
    on_every_rank = False

    def __init__(
        self, *, every_s: float = LOG_EVERY_S, count: Callable[[Any], int] | None = None, report: bool = True
    ) -> None:
        self._every_s = number(every_s, what="every_s")
        self._count = count
        self._report = report
        self._samples = 0
        self._step = 0
        self._waited = 0.0
        self._at = 0.0

    def before_run(self, learner: TrainingLoop) -> None:
        self._begin(learner, time.perf_counter())

    def after_iteration(self, learner: TrainingLoop) -> None:
        if self._count is not None:
            self._samples += self._count(learner.batch)
        if time.perf_counter() - self._at >= self._every_s:
            self._log(learner)

    def after_run(self, learner: TrainingLoop) -> None:
        if learner.step > self._step:
            self._log(learner)

    def _log(self, learner: TrainingLoop) -> None:
        now = time.perf_counter()
        seconds = max(now - self._at, 1e-9)
        found = {
            "steps_per_s": (learner.step - self._step) / seconds,
            "data_wait_share": (learner.times.waiting_s - self._waited) / seconds,
        }
        if self._count is not None:
            found["samples_per_s"] = self._samples / seconds
        sys.stdout.write(
            f"step {learner.step} of epoch {learner.epoch}: {found['steps_per_s']:.4g} steps/s, "
            f"{found['data_wait_share']:.1%} of the time waiting for data\n"
        )
        sys.stdout.flush()
        if self._report:
            learner.trial.report(found, step=learner.step)
        self._begin(learner, now)

    def _begin(self, learner: TrainingLoop, now: float) -> None:
        self._at, self._step, self._waited, self._samples = now, learner.step, learner.times.waiting_s, 0


class StopWhenAsked(Hook):
    """Ends the loop when the trial is asked to stop. Where torch.distributed runs, all ranks stop at the same step."""

    priority = STOP

    def __init__(self, *, every_steps: int = 1) -> None:
        self.when = When(every_steps=every_steps)

    def after_iteration(self, learner: TrainingLoop) -> None:
        if _agreed(asked=learner.trial.should_stop()):
            learner.stop(ASKED_TO_STOP)


def _agreed(*, asked: bool) -> bool:
    """Whether any rank was asked: one that stopped alone would leave the others waiting for it."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return asked
    device = "cuda" if torch.distributed.get_backend() == "nccl" else "cpu"
    flag = torch.tensor([int(asked)], device=device)
    torch.distributed.all_reduce(flag, op=torch.distributed.ReduceOp.MAX)
    return bool(flag.item())

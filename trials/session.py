"""The object a training script works with, attached to an attempt or alone."""

from __future__ import annotations

import json
import operator
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self, SupportsIndex

from trials.checkpoints.restoring import (
    CheckpointMissingError,
    NoOtherTrials,
    OtherTrials,
    describe_trial,
    restored,
    trial_named,
)
from trials.checkpoints.saving import BackgroundSaver, CheckpointNotSavedError, SavingSteps
from trials.checkpoints.stores import AloneCheckpoints, AttemptCheckpoints, CheckpointStore, Entry, first_intact
from trials.parameters import from_arguments
from trials.phases import AlonePhases, AttemptPhases, Phases
from trials.reports.sinks import OtherRankSink, Sink, SpoolSink, TerminalSink, numbers
from trials.reports.spool_writer import ReportsLostError
from trials.stop_signal import StopSignal
from trials.wire.files import (
    ENV_ATTEMPT,
    ENV_ATTEMPT_DIR,
    ENV_EXPERIMENT_ID,
    ENV_OBJECTIVE,
    ENV_SEED,
    ENV_TRIAL_NUMBER,
    ENV_WAKE_SOCKET,
    FILE_ATTEMPT,
    FILE_INPUTS,
    FILE_PARAMETERS,
    FILE_STOP,
)
from trials.wire.limits import STEP_MAX

ALONE_CHECKPOINTS = "checkpoints"
Listener = Callable[[int | None, Mapping[str, float]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialParts:
    """What a Trial is made of."""

    parameters: Mapping[str, Any]
    defaults: Mapping[str, Any]  # part of ``parameters`` already, and of further ones
    sink: Sink
    checkpoints: CheckpointStore
    others: OtherTrials | NoOtherTrials
    phases: Phases
    stop_file: Path | None
    until_step: int | None = None  # where the service wants it to rest
    define_by_run: bool = False
    is_apart: bool = False  # its processes are on several nodes


class Trial:
    """One trial as its script sees it. Made by ``trials.init()``; usable with ``with`` or without."""

    def __init__(self, parts: TrialParts, *, environ: Mapping[str, str]) -> None:
        self.parameters: Mapping[str, Any] = MappingProxyType(dict(parts.parameters))
        self.seed = int(environ.get(ENV_SEED, "0"))
        self.number = int(environ.get(ENV_TRIAL_NUMBER, "1"))
        self.attempt = int(environ.get(ENV_ATTEMPT, "1"))
        self.experiment_id = environ.get(ENV_EXPERIMENT_ID, "alone")
        self.objective = environ.get(ENV_OBJECTIVE, "default")
        self._defaults = parts.defaults
        self._phases = parts.phases
        self._index = 0  # of ``parameters``
        self._given_first = False
        self._sink = parts.sink
        self._checkpoints = parts.checkpoints
        steps = SavingSteps(sync_reports=parts.sink.sync, write=parts.checkpoints.write, offer=parts.sink.checkpoint)
        self._saver = BackgroundSaver(steps)
        self._others = parts.others
        self._is_apart = parts.is_apart
        self._last_value: float | None = None  # of the objective
        self._stop = StopSignal(parts.stop_file, on_first_ask=self._announce_cooperation)
        self._next_step = 0
        self._until_step = parts.until_step
        self.define_by_run = parts.define_by_run  # whether the search space grows by what the script asks for
        self._came_to_rest = False
        self._stop_told = False
        self._closed = False
        self._listeners: list[Listener] = []

    @property
    def next_step(self) -> int:
        """Of a report that names none: 0 at first, after ``restore`` the one after the checkpoint's."""
        return self._next_step

    def on_report(self, listener: Listener) -> None:
        """Call ``listener(step, values)`` after each report, with a step of None after a final one.

        For what should see the metrics too, such as TensorBoard. What it raises is the script's own error.
        """
        if not callable(listener):
            raise TypeError(f"a listener is a function of a step and its values, not {listener!r:.60}")
        self._listeners.append(listener)

    def fill_in(self, defaults: Mapping[str, Any]) -> None:
        """Further defaults, for parameters that there are none of yet."""
        self._defaults = {**defaults, **self._defaults}
        self.parameters = MappingProxyType({**defaults, **self.parameters})

    def report(
        self, values: Mapping[str, Any] | None = None, /, *, step: SupportsIndex | None = None, **metrics: Any
    ) -> None:
        """Report intermediate metrics at ``step``; without one, at the step after the last.

        ``values`` is for names that are no Python names: ``report({"val/loss": 0.3}, step=1)``.
        The report survives this process when this returns; it waits for no network. It waits only when the service
        has left 256 MiB of earlier reports untaken.
        """
        self._require_open()
        checked = numbers(_together(values, metrics), objective=self.objective)
        step = self._step(step, default=self._next_step)
        self._sink.metrics(step=step, values=checked, final=False)
        for listener in self._listeners:
            listener(step, checked)
        self._next_step = step + 1
        if self._until_step is not None and step >= self._until_step and self.objective in checked:
            self._came_to_rest = True
        self._last_value = checked.get(self.objective, self._last_value)

    def report_beside(self, values: Mapping[str, Any]) -> None:
        """Report what is no result of the trial, such as where its time went, at the step reported last."""
        if not self._closed:
            self._sink.metrics(step=max(0, self._next_step - 1), values=numbers(values), final=False)

    def report_final(self, values: Mapping[str, Any] | None = None, /, **metrics: Any) -> None:
        """Report the trial's result. The last call counts."""
        self._require_open()
        checked = numbers(_together(values, metrics), objective=self.objective)
        self._sink.metrics(step=None, values=checked, final=True)
        for listener in self._listeners:
            listener(None, checked)

    def save_checkpoint(self, state: Any, *, step: SupportsIndex | None = None, sharded: bool = False) -> None:
        """Save what the trial needs to continue, with the states of the random generators.

        When this returns, ``state`` may be changed: it was copied. It is written in the background, and never half a
        file, whatever dies; a trial that dies meanwhile has the one before. The next call, ``close`` and the end of
        the interpreter wait until it is on the disk; what went wrong is raised by the next call of the thread that
        saved or by ``close``.
        ``step`` defaults to the last reported one. TypeError when ``state`` could not be read back as it is.

        ``sharded``: every rank of the default process group calls this with the same step and its part of the state;
        it returns, on all, when all of it is on the disk.
        """
        self._require_open()
        step = self._step(step, default=max(0, self._next_step - 1))
        if isinstance(self._sink, OtherRankSink) and not sharded:
            self._sink.say_dropped("save_checkpoint(), unless it is sharded,")
        elif sharded:
            self._save_sharded(state, step)
        else:
            self._saver.save(state, step=step, index=self._index, value=self._last_value)

    def wait_for_checkpoint(self) -> None:
        """Until the checkpoint that is being written is on the disk. CheckpointNotSavedError when it was not saved."""
        self._saver.finish()

    def _save_sharded(self, state: Any, step: int) -> None:
        begun = time.perf_counter()

        def settle() -> None:
            nonlocal begun
            self._saver.finish()
            begun = time.perf_counter()
            self._sink.sync()

        record = self._checkpoints.write_sharded(state, step=step, index=self._index, before=settle)
        if record is not None:
            took = time.perf_counter() - begun
            self._sink.checkpoint(replace(record, value=self._last_value, stall_s=took, write_s=took))

    def restore(
        self,
        default: Any = None,
        *,
        from_trial: SupportsIndex | str | None = None,
        step: SupportsIndex | None = None,
        into: Any = None,
    ) -> Any:
        """The newest checkpoint whose digest verifies, or ``default``.

        Sets the random generators back to it, and ``parameters`` to those it was saved under. ``from_trial``, ``step``:
        the newest one of another trial of the experiment, or the one of that step, fetched from wherever it lies;
        CheckpointMissingError when there is none. A trial is named by its number, as ``"8f3k2/3"``, or as ``"best"``,
        the best so far; anything else is a TypeError or ValueError. ``into``: the state to fill with what was saved
        ``sharded``, on every rank of the default process group, of which there may be more or fewer than then; it is
        returned.
        """
        number = None if from_trial is None else trial_named(from_trial, experiment_id=self.experiment_id)
        at = None if step is None else self._step(step, default=0)
        of_other = number is not None or at is not None
        choose = partial(self._first_intact, number, at) if of_other else self._own_intact
        found = restored(choose, into=into, is_apart=self._is_apart)
        if found is None:
            return default
        self._next_step = found.step + 1
        further = self._phases.known(found.index) if found.index and number in (None, self.number) else None
        if further is not None:
            self._go_on_with(found.index, further)
        return found.state

    def next_parameters(self) -> Mapping[str, Any] | None:
        """Further parameters for this trial, from the tuner, which ``parameters`` are from then on.

        Waits until they are chosen. None when there are none, or the trial is asked to stop; alone there are none.
        An attempt that begins anew is given the same ones in the same order.
        """
        self._require_open()
        further = self._phases.wait_for(self._index + 1, is_stopping=self._was_told)
        if further is None:
            return None
        self._go_on_with(self._index + 1, further)
        return self.parameters

    def misses_parameters(self, parameters: Mapping[str, Any], *, beside: Mapping[str, Any]) -> None:
        """Have the search space grow by ``parameters``, each a range as a search space has it; for define-by-run.

        ``beside`` are those asked for before, which may say in which branch the script is. They are part of what
        ``next_parameters()`` is given from then on.
        """
        self._require_open()
        self._phases.miss(parameters, beside)

    def first_or_next_parameters(self) -> Mapping[str, Any] | None:
        """NNI's order: ``parameters`` at the first call, ``next_parameters()`` at each further one."""
        if not self._given_first:
            self._given_first = True
            return self.parameters
        return self.next_parameters()

    def should_stop(self) -> bool:
        """Whether to save and leave now. Cheap enough for every step.

        Also where the trial has come to the step to which it was to run: it may be let go on from there later.
        From the first call on, a stop is told by this first and by SIGTERM only later. Before it says yes, the
        checkpoint that is being written is on the disk. A final metric after that is no result of the trial: it
        goes on where it left, unless it was to be stopped for good.
        """
        stopping = self._stop.is_set() or self._came_to_rest
        if stopping:
            self._saver.wait()
            self._note_told()
        return stopping

    def close(self) -> None:
        """Wait for the checkpoint that is being written, and let go of the files.

        Calling it is optional, and it may be called again. CheckpointNotSavedError when one was not saved of which no
        call has told yet.
        """
        if not self._closed:
            self._closed = True
            try:
                self._saver.finish_all()
            finally:
                self._sink.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        try:
            self.close()
        except (CheckpointNotSavedError, ReportsLostError):
            if error is None:
                raise  # else the script's own error says more, and this one is on standard error already

    def _go_on_with(self, index: int, further: Mapping[str, Any]) -> None:
        self._index = index
        self.parameters = MappingProxyType({**self._defaults, **further})

    def _own_intact(self) -> Entry | None:
        self._saver.finish()  # here, where the other ranks are told when it fails
        return first_intact(self._checkpoints.entries(), on_damaged=self._tell_damaged)

    def _first_intact(self, number: int | None, step: int | None) -> Entry:
        """Of another trial, or of another step than the newest."""
        self._saver.finish()
        number = self.number if number is None else number
        entries = self._others.entries(number, step=step, is_stopping=self._was_told)
        found = first_intact(entries, on_damaged=self._tell_damaged)
        if found is None:
            raise CheckpointMissingError(
                f"no checkpoint of {describe_trial(number)} could be had; standard error says why"
            )
        return found

    def _tell_damaged(self, entry: Entry) -> None:
        self._sink.damaged(step=entry["step"], digest=entry["digest"])

    def _was_told(self) -> bool:
        """For what waits on behalf of the script, and ends its waiting with a yes."""
        told = self._stop.was_told()
        if told:
            self._note_told()
        return told

    def _note_told(self) -> None:
        if not self._stop_told and not self._closed:
            self._stop_told = True
            self._sink.stop_told()

    def _announce_cooperation(self) -> None:
        if not self._closed:
            self._sink.cooperates()

    def _require_open(self) -> None:
        if self._closed:
            raise RuntimeError("the trial was closed; report and save inside its `with` block")

    @staticmethod
    def _step(step: SupportsIndex | None, *, default: int) -> int:
        if step is None:
            return default
        if isinstance(step, bool) or not hasattr(step, "__index__"):
            raise TypeError(f"step is a whole number, not {step!r:.60}, a {type(step).__name__}")
        number = operator.index(step)
        if not 0 <= number <= STEP_MAX:
            raise ValueError(f"step is between 0 and {STEP_MAX}, not {number if abs(number) < 2**70 else 'beyond it'}")
        return number


def _together(values: Mapping[str, Any] | None, metrics: Mapping[str, Any]) -> Mapping[str, Any]:
    if values is None:
        return metrics
    if not isinstance(values, Mapping):
        raise TypeError(
            f"a metric has a name, as in report(loss=0.2) or report({{'val/loss': 0.2}}); it is {values!r:.60}"
        )
    return {**values, **metrics}


def open_trial(
    *, environ: Mapping[str, str], arguments: Sequence[str], defaults: Mapping[str, Any] | None = None
) -> Trial:
    """The trial that ``environ`` names, or one that runs alone with parameters from ``arguments``."""
    folder = environ.get(ENV_ATTEMPT_DIR)
    parts = _alone(arguments, defaults or {}) if folder is None else _attached(Path(folder), environ, defaults or {})
    return Trial(parts, environ=environ)


def _attached(folder: Path, environ: Mapping[str, str], defaults: Mapping[str, Any]) -> TrialParts:
    given = json.loads((folder / FILE_PARAMETERS).read_bytes())
    try:
        inputs = json.loads((folder / FILE_INPUTS).read_bytes())
    except FileNotFoundError:
        inputs = {}
    spec = _spec(folder)
    is_apart = spec.get("nodes", 1) > 1
    sink = _sink(folder, environ, is_of_several_nodes=is_apart)
    return TrialParts(
        parameters={**defaults, **given},
        defaults={**defaults, **inputs},  # of the paths, so that they stay where further parameters are given
        sink=sink,
        checkpoints=AttemptCheckpoints(folder, is_apart=is_apart),
        is_apart=is_apart,
        others=OtherTrials(folder, wake=sink.wake),
        phases=AttemptPhases(folder, sink),
        stop_file=folder / FILE_STOP,
        until_step=spec.get("until_step"),
        define_by_run=spec.get("define_by_run", False),
    )


def _sink(folder: Path, environ: Mapping[str, str], *, is_of_several_nodes: bool) -> SpoolSink:
    rank, wake = environ.get("RANK", "0"), environ.get(ENV_WAKE_SOCKET)
    node = environ.get("NODE_RANK", "0")
    if is_of_several_nodes and (rank != "0" or node != "0"):
        return OtherRankSink(folder, wake, rank=rank if rank != "0" else f"0 of node {node}")
    return SpoolSink(folder, wake)


def _spec(folder: Path) -> dict[str, Any]:
    """What the service asked for, as far as this attempt knows."""
    try:
        attempt = json.loads((folder / FILE_ATTEMPT).read_bytes())
    except FileNotFoundError:
        return {}
    spec: dict[str, Any] = attempt.get("spec", {})
    return spec


def _alone(arguments: Sequence[str], defaults: Mapping[str, Any]) -> TrialParts:
    parameters = from_arguments(arguments, defaults)
    return TrialParts(
        parameters=parameters,
        defaults=defaults,
        sink=TerminalSink(),
        # Where the script was started: it may work in other folders later, and is started there again.
        checkpoints=AloneCheckpoints(Path(ALONE_CHECKPOINTS).absolute(), parameters),
        others=NoOtherTrials(),
        phases=AlonePhases(),
        stop_file=None,
    )


class _CurrentTrial:
    """The one trial of this process, made when it is first asked for."""

    def __init__(self) -> None:
        self._trial: Trial | None = None

    def get(self, defaults: Mapping[str, Any] | None) -> Trial:
        if self._trial is None:
            self._trial = open_trial(environ=os.environ, arguments=sys.argv[1:], defaults=defaults)
        elif defaults:
            self._trial.fill_in(defaults)
        return self._trial


_CURRENT = _CurrentTrial()


def init(defaults: Mapping[str, Any] | None = None) -> Trial:
    """The trial of this process; further calls return the same one.

    ``defaults`` are parameters for those that neither the service nor the command line gives, nor an earlier call.
    """
    if defaults is not None and not isinstance(defaults, Mapping):
        raise TypeError(f"defaults are a mapping of parameters, as init({{'lr': 0.1}}), not {defaults!r:.60}")
    return _CURRENT.get(defaults)

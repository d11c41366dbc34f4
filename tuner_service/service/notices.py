"""What a person is told of without asking: an experiment that ended, paused by itself, or has trials that fail. Pure.

What was told last is a mark of each experiment; what is to be told follows from the mark and the experiment's row. So
whoever compares the two after a crash finds what was missed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from tuner_service.domain.experiment import Experiment, ExperimentReason, ExperimentStatus

TEXT_LIMIT = 4_000  # characters of what a command gets
_PART_LIMIT = 1_500  # of a message or a traceback in it


class Event(StrEnum):
    """The names by which the home's file and an experiment's ask for them."""

    END = "on_end"  # completed, stopped or failed
    PAUSE = "on_pause"  # by the service: a person who pauses an experiment knows
    FAILURES = "on_failures"  # the first trial that failed, and then whenever twice as many have


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What was told of one experiment."""

    ended_at: float | None = None
    paused: bool = False
    failed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One thing to tell. ``mark`` holds once it was told."""

    event: Event
    experiment_id: str
    names: tuple[str, ...]  # commands that the experiment itself asks for
    text: str
    mark: Mark = field(default_factory=Mark)


def mark_of(experiment: Experiment) -> Mark:
    """As if everything about the experiment had been told."""
    return Mark(
        ended_at=experiment.ended_at if experiment.status.has_ended else None,
        paused=_is_paused(experiment),
        failed=experiment.counts.get("failed", 0),
    )


def notices_of(mark: Mark, experiment: Experiment) -> tuple[list[Notice], Mark]:
    """What is to be told now, in order, and the mark from which to go on."""
    found: list[Notice] = []

    def tell(event: Event, then: Mark) -> Mark:
        names = getattr(experiment.spec, event.value)
        text = text_of(event, experiment)
        found.append(Notice(event=event, experiment_id=experiment.id, names=names, text=text, mark=then))
        return then

    failed = experiment.counts.get("failed", 0)
    if failed >= max(1, 2 * mark.failed):
        mark = tell(Event.FAILURES, replace(mark, failed=failed))
    if mark.paused != _is_paused(experiment):
        then = replace(mark, paused=not mark.paused)
        mark = tell(Event.PAUSE, then) if then.paused else then
    if experiment.status.has_ended and experiment.ended_at != mark.ended_at:
        mark = tell(Event.END, replace(mark, ended_at=experiment.ended_at))
    return found, mark


def _is_paused(experiment: Experiment) -> bool:
    return experiment.status is ExperimentStatus.PAUSED and experiment.reason is not ExperimentReason.REQUESTED


def text_of(event: Event, experiment: Experiment) -> str:
    """For a mail or a message: the first line says it all. What a trial wrote cannot steer a terminal."""
    counts = ", ".join(f"{count} {status}" for status, count in experiment.counts.items() if count) or "none"
    failed = experiment.counts.get("failed", 0)
    first = f"experiment {experiment.id} ({experiment.spec.name}) is {experiment.status.value}"
    lines = [first + (f" ({experiment.reason.value})" if experiment.reason is not ExperimentReason.NONE else "")]
    if event is Event.FAILURES:
        lines[0] = f"{failed} trial{'s' * (failed != 1)} of experiment {experiment.id} ({experiment.spec.name}) failed"
    lines += [part[-_PART_LIMIT:] for part in (experiment.message, experiment.detail) if part]
    lines.append(f"trials: {counts}")
    if experiment.best_number is not None:
        metric = experiment.spec.objective.metric
        lines.append(f"best {metric}: {experiment.best_value!r} by trial {experiment.id}/{experiment.best_number}")
    lines.append(f"look at it: tuner show {experiment.id}")
    text = "\n".join(lines)
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)[:TEXT_LIMIT] + "\n"

"""Asking an experiment's algorithms everything again: the same worker, the same lines, and nothing recorded told.

The queues are folded anew from their first lines in a process of its own. Every suggestion is asked for again and
compared with the recorded one, every report judged again and compared with the recorded stops.
"""

from __future__ import annotations

import json
import queue
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from tuner_service.dispatcher.commands import AlgorithmFaulted, QueueAnswered, WorkerDied, WorkerEvent
from tuner_service.dispatcher.items import (
    Answer,
    Decided,
    MetricsReported,
    NoMoreSuggestions,
    NoSuggestionYet,
    Queue,
    QueueItem,
    StopAdvised,
    Suggested,
    SuggestionRequested,
)
from tuner_service.domain.trial import Decision
from tuner_service.workers.link import WorkerLink
from tuner_service.workers.messages import Initialize

WINDOW = 1_000  # lines that the worker is ahead of the comparison, at most
END_TIMEOUT_S = 5.0  # for the worker to end once everything is compared

Stop = tuple[int, int]  # the journal line of the reports and the spool sequence of the last one judged


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first line at which an algorithm says something else than it did; ``detail`` is a traceback, if any."""

    line: int
    message: str
    detail: str = ""


@dataclass(slots=True, kw_only=True)
class Progress:
    """``late_stops``: a trial had ended before its stop was advised, so that none was recorded."""

    lines: int = 0
    compared: int = 0
    late_stops: int = 0
    difference: Difference | None = None


@dataclass(frozen=True, kw_only=True)
class RecordedTrial:
    """``stop``: where the assessor stopped it. ``may_miss_stop``: it may have ended before a stop that was advised."""

    stop: Stop | None
    may_miss_stop: bool


class Replay:
    """One worker, started by ``__init__`` and ended by ``close``; use it in a ``with``."""

    def __init__(self, command: Initialize, *, folder: Path, timeout_s: float, now: Callable[[], float]) -> None:
        """``folder`` takes the worker's log. ``timeout_s`` is for one answer. OSError where no process starts."""
        self._timeout_s = timeout_s
        self._events: queue.SimpleQueue[WorkerEvent] = queue.SimpleQueue()
        self._faults: dict[Queue, Difference] = {}
        self._link = WorkerLink(
            experiment_id=command.experiment_id,
            generation=1,
            log_path=folder / "replay.log",
            now=now,
            on_event=self._events.put,
        )
        self._link.start(command, snapshots={}, history={})

    def __enter__(self) -> Replay:
        return self

    def __exit__(self, *_: object) -> None:
        self._link.kill()
        self._link.join(END_TIMEOUT_S)

    def tuner(self, items: Iterable[QueueItem]) -> Iterator[Progress]:
        """After every few lines how far it is; the last one says whether there was a difference."""
        return self._run(Queue.TUNER, iter(items), _compare_suggestion)

    def assessor(self, items: Iterable[QueueItem], recorded: Callable[[int], RecordedTrial]) -> Iterator[Progress]:
        """Likewise. ``recorded`` gives what is known of a trial by its number."""

        def compare(item: QueueItem, answer: Answer, progress: Progress) -> Difference | None:
            if not isinstance(item, MetricsReported):
                return None
            return _compare_verdict(item, answer, recorded(item.number), progress)

        return self._run(Queue.ASSESSOR, iter(items), compare)

    def _run(self, name: Queue, items: Iterator[QueueItem], compare: _Compare) -> Iterator[Progress]:
        progress = Progress()
        waiting: deque[QueueItem] = deque()
        while progress.difference is None:
            progress.difference = self._faults.get(name)
            for item in islice(items, WINDOW - len(waiting)):
                waiting.append(item)
                self._link.tell(name, _unanswered(item))
            if not waiting or progress.difference is not None:
                break
            yield progress
            self._take(name, waiting, compare, progress)
        yield progress

    def _take(self, name: Queue, waiting: deque[QueueItem], compare: _Compare, progress: Progress) -> None:
        """Compare what comes next."""
        try:
            event = self._events.get(timeout=self._timeout_s)
        except queue.Empty:
            message = f"the {name.value} did not answer within {self._timeout_s:g} s"
            progress.difference = Difference(line=waiting[0].line, message=message)
            return
        match event:
            case QueueAnswered():
                for answer in event.answers:
                    item = waiting.popleft()
                    progress.lines += 1
                    progress.compared += isinstance(item, SuggestionRequested | MetricsReported)
                    progress.difference = compare(item, answer, progress)
                    if progress.difference is not None:
                        return
            case AlgorithmFaulted():  # of the other queue perhaps, whose turn comes
                message = f"the {event.queue.value} raised {event.message}"
                self._faults[event.queue] = Difference(line=event.line, message=message, detail=event.traceback)
            case WorkerDied():
                progress.difference = Difference(line=waiting[0].line, message=event.detail)
            case _:
                return  # it is ready, or keeps a snapshot that nobody wants


_Compare = Callable[[QueueItem, Answer, Progress], Difference | None]


def _unanswered(item: QueueItem) -> QueueItem:
    return replace(item, recorded=None, decision=None) if isinstance(item, SuggestionRequested) else item


def _compare_suggestion(item: QueueItem, answer: Answer, _: Progress) -> Difference | None:
    if not isinstance(item, SuggestionRequested):
        return None
    if item.decision is not None:
        if isinstance(answer, Decided) and _decision_text(answer.decision) == _decision_text(item.decision):
            return None
        now = _decision_text(answer.decision) if isinstance(answer, Decided) else f"{answer}"
        return Difference(line=item.line, message=f"it decided {_decision_text(item.decision)}, and {now} now")
    match answer:
        case Suggested():
            if _text(answer.parameters) == _text(item.recorded):
                return None
            said = f"it suggests {_text(answer.parameters)} now"
        case NoSuggestionYet():
            said = "it waits for another outcome now"
        case NoMoreSuggestions():
            said = "it has nothing left to suggest now"
        case _:
            said = f"it answers {answer} now"
    what = f"trial {item.number}" + (f", parameters {item.index}" if item.index else "")
    return Difference(line=item.line, message=f"{what}: {_text(item.recorded)} was suggested, and {said}")


def _compare_verdict(
    item: MetricsReported, answer: Answer, trial: RecordedTrial, progress: Progress
) -> Difference | None:
    at_this_line = trial.stop if trial.stop is not None and trial.stop[0] == item.line else None
    advised = (answer.line, answer.sequence) if isinstance(answer, StopAdvised) else None
    if advised == at_this_line:
        return None
    if advised is None:
        message = f"trial {item.number} was stopped at these reports, and the assessor lets it go on now"
    elif at_this_line is not None:
        message = f"trial {item.number} was stopped at report {at_this_line[1]}, and is stopped at {advised[1]} now"
    elif trial.may_miss_stop:
        progress.late_stops += 1
        return None
    else:
        message = f"trial {item.number} went on after report {advised[1]}, and the assessor stops it there now"
    return Difference(line=item.line, message=message)


def _decision_text(decision: Decision) -> str:
    whole = "to its end" if decision.until_step is None else f"to step {decision.until_step}"
    parts = [f"{decision.kind.value} trial {decision.number} {whole}"]
    parts += [f"from trial {decision.forked_from}"] if decision.forked_from is not None else []
    parts += [f"with {_text(decision.parameters)}"] if decision.parameters is not None else []
    parts += [f"and end {list(decision.dropped)}"] if decision.dropped else []
    return " ".join(parts)


def _text(parameters: Any) -> str:
    return json.dumps(parameters, sort_keys=True, ensure_ascii=False)

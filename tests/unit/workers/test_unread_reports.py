"""Reports that stay in their rows are read when their line is sent, and where something is advised there."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.workers.test_progress_told import a_link
from tuner_service.dispatcher.items import MetricsReported, PauseAdvised, Queue, StopAdvised, Taken
from tuner_service.domain.errors import RowsDamagedError
from tuner_service.domain.trial import Report
from tuner_service.workers.link import WorkerLink
from tuner_service.workers.messages import Answered, Initialized, Told, command_from_wire
from tuner_service.workers.protocol import read_frame


class Rows:
    """Line N holds a report of step N."""

    def __init__(self) -> None:
        self.read: list[int] = []

    def reports_on(self, line: int) -> MetricsReported:
        self.read.append(line)
        return reports(line)


def reports(line: int) -> MetricsReported:
    return MetricsReported(line=line, number=1, reports=(Report(step=line, value=0.5),), sequences=(line,))


def unread(line: int) -> MetricsReported:
    return MetricsReported(line=line, number=1, reports=(), sequences=(), unread=1)


def told(link: WorkerLink, *items: MetricsReported) -> list[list[Any]]:
    """The batches in which a worker that is ready is told ``items``."""
    for item in items:
        link.tell(Queue.ASSESSOR, item)
    batches = []
    while any(map(link._sendable, Queue)):
        stream = io.BytesIO()
        link._send(stream, list(map(link._whole, link._next_batch())))
        stream.seek(0)
        sent = map(command_from_wire, read_frame(stream) or [])
        batches.append([command.item for command in sent if isinstance(command, Told)])
    return batches


@pytest.fixture
def rows() -> Rows:
    return Rows()


@pytest.fixture
def events() -> list[Any]:
    return []


@pytest.fixture
def link(tmp_path: Path, rows: Rows, events: list[Any]) -> WorkerLink:
    link = a_link(tmp_path, events.append, reports_on=rows.reports_on)
    link._hear(Initialized())
    events.clear()
    return link


def test_a_worker_is_told_all_reports_in_their_order_and_those_of_one_line_are_read_at_a_time(
    link: WorkerLink, rows: Rows
) -> None:
    batches = told(link, reports(2), unread(3), unread(4), reports(5))

    assert batches == [[reports(2), reports(3)], [reports(4)], [reports(5)]]
    assert rows.read == [3, 4]


@pytest.mark.parametrize("advised", [StopAdvised, PauseAdvised])
def test_who_hears_what_is_advised_at_such_a_line_has_its_reports(
    link: WorkerLink, rows: Rows, events: list[Any], advised: Callable[..., Any]
) -> None:
    told(link, unread(2), unread(3), reports(4))
    rows.read.clear()
    answers = (
        Taken(line=2),
        advised(line=3, sequence=3, message="hopeless"),
        advised(line=4, sequence=4, message="hopeless"),
    )
    link._hear(Answered(queue=Queue.ASSESSOR, answers=answers))

    (event,) = events
    assert event.answers == answers
    assert event.read == (reports(3),), "it has those of the other line itself"


def test_a_worker_whose_reports_are_damaged_ends_and_says_so(
    link: WorkerLink, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(_: int) -> MetricsReported:
        raise RowsDamagedError("line 2 is damaged")

    monkeypatch.setattr(link, "_reports_on", damaged)
    with pytest.raises(RowsDamagedError):
        told(link, unread(2))

"""What waits for a worker, and what it holds unanswered, has a bound."""

from __future__ import annotations

import io
from functools import partial
from pathlib import Path

import pytest

from tuner_service.dispatcher.items import Queue, ResultsImported, SearchSpaceUpdated, SuggestionRequested
from tuner_service.domain.errors import LimitExceededError
from tuner_service.workers import link as module
from tuner_service.workers.link import UNANSWERED_LIMIT, WorkerLink
from tuner_service.workers.protocol import read_frame


@pytest.fixture
def link(tmp_path: Path) -> WorkerLink:
    return WorkerLink(
        experiment_id="e", generation=1, log_path=tmp_path / "log", now=lambda: 0.0, on_event=lambda _: None
    )


def test_so_many_items_wait_for_a_worker_and_one_more_is_refused(
    link: WorkerLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PENDING_LIMIT", 2)
    for line in (1, 2):
        link.tell(Queue.TUNER, SuggestionRequested(line=line, number=line))

    with pytest.raises(LimitExceededError):
        link.tell(Queue.TUNER, SuggestionRequested(line=3, number=3))
    assert [item.line for item in link._pending[Queue.TUNER]] == [1, 2]


def test_a_worker_is_sent_no_more_than_it_may_hold_unanswered(link: WorkerLink) -> None:
    link._ready = True
    for line in range(1, UNANSWERED_LIMIT + 3):
        link.tell(Queue.TUNER, SuggestionRequested(line=line, number=line))
    sent = 0
    while link._sendable(Queue.TUNER):
        sent += len(link._next_batch())
    assert sent == UNANSWERED_LIMIT

    link._answered(Queue.TUNER, 1)
    assert link._sendable(Queue.TUNER) == 1


def test_results_and_spaces_go_in_frames_of_their_own(link: WorkerLink) -> None:
    """No other thread of the service runs while a frame is encoded, and each of these may be a megabyte."""
    link._ready = True
    link.tell(Queue.TUNER, SuggestionRequested(line=1, number=1))
    link.tell(Queue.TUNER, SuggestionRequested(line=2, number=2))
    link.tell(Queue.TUNER, ResultsImported(line=3, outcomes=()))
    link.tell(Queue.TUNER, SearchSpaceUpdated(line=4, search_space={}))
    link.tell(Queue.TUNER, SuggestionRequested(line=5, number=3))
    stream = io.BytesIO()
    link._send(stream, link._next_batch())

    stream.seek(0)
    frames = iter(partial(read_frame, stream), None)
    assert [[told["line"] for told in frame] for frame in frames] == [[1, 2], [3], [4], [5]]

"""A snapshot that is of no use is no fault of the algorithm: what it holds can be told."""

from __future__ import annotations

import queue
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tuner_service.dispatcher.items import Queue, SuggestionRequested
from tuner_service.domain.experiment import AlgorithmSpec, Objective
from tuner_service.workers.building import build_tuner_fold
from tuner_service.workers.messages import HistoryEnd, Initialize, LoadSnapshot, SnapshotMade, SnapshotRefused, Told
from tuner_service.workers.protocol import FrameError
from tuner_service.workers.worker import QueueThread, _snapshot_text


def a_thread(command: Initialize, outbox: Any, *, on_ready: Callable[[Any], None] = lambda _: None) -> QueueThread:
    return QueueThread(Queue.TUNER, outbox, build=lambda: build_tuner_fold(command), on_ready=on_ready, command=command)


@pytest.mark.parametrize("state", ['{"search_space":null,"tuner":{"version":0}}', "{}", "no JSON"])
def test_a_snapshot_that_cannot_be_loaded_is_refused_and_nothing_else_is_said(state: str) -> None:
    tuner = AlgorithmSpec(name="tpe")
    command = Initialize(
        experiment_id="e1", search_space={"x": {"type": "bool"}}, objective=Objective(metric="m"), seed=7, tuner=tuner
    )
    said: queue.SimpleQueue[Any] = queue.SimpleQueue()

    class Said:
        def send(self, *messages: Any) -> None:
            for message in messages:
                said.put(message)

    thread = a_thread(command, Said(), on_ready=lambda _: said.put("ready"))
    thread.commands.put(LoadSnapshot(queue=Queue.TUNER, line=8, state=state))
    thread.commands.put(HistoryEnd(queue=Queue.TUNER))
    thread.start()

    refused = said.get(timeout=60)
    assert isinstance(refused, SnapshotRefused)
    assert (refused.queue, refused.line) == (Queue.TUNER, 8)
    assert "Error" in refused.why
    assert said.empty()


def test_a_snapshot_whose_keys_would_come_back_as_texts_is_none() -> None:
    class Counts:
        def state_dict(self) -> dict[str, Any]:
            return {"tuner": {"arms": [{"pulls": {3: 1}}]}}

    with pytest.raises(TypeError, match=r"the key 3, and keys in JSON are texts: use str\(3\)"):
        _snapshot_text(Counts(), of_user=True)  # type: ignore[arg-type]


def test_no_snapshot_is_taken_while_what_was_begun_ahead_may_be_in_the_tuner() -> None:
    """It would hold more than its line, and what came after that line would be told twice."""
    command = Initialize(
        experiment_id="e1",
        search_space={"x": {"type": "bool"}},
        objective=Objective(metric="m"),
        seed=7,
        tuner=AlgorithmSpec(name="random"),
        workers=3,
        snapshot_every=1,
    )
    made: queue.SimpleQueue[SnapshotMade] = queue.SimpleQueue()

    class Said:
        def send(self, *messages: Any) -> None:
            for message in messages:
                if isinstance(message, SnapshotMade):
                    made.put(message)

    thread = a_thread(command, Said())
    thread.commands.put(HistoryEnd(queue=Queue.TUNER))
    for line in (1, 2, 3):
        thread.commands.put(Told(queue=Queue.TUNER, item=SuggestionRequested(line=line, number=line)))
    thread.start()

    assert made.get(timeout=60).line == 3


def test_a_snapshot_that_fits_in_no_frame_is_the_last_that_is_written_out() -> None:
    """Of an assessor that knows many reports that takes several times the memory of what it knows."""
    command = Initialize(
        experiment_id="e1", search_space={}, objective=Objective(metric="m"), seed=7, tuner=AlgorithmSpec(name="random")
    )

    class Full:
        def send(self, *_: Any) -> None:
            raise FrameError("67108865 bytes are more than a frame may have")

    class Large:
        def state_dict(self) -> dict[str, Any]:
            return {"means": []}

    thread = a_thread(command, Full())
    thread._take_snapshot(Large())  # type: ignore[arg-type]
    assert thread._next_snapshot == sys.maxsize

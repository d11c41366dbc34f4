from __future__ import annotations

import io
import math
from dataclasses import asdict, is_dataclass, replace
from typing import Any, get_type_hints

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trials.wire.plain import _is_free
from tuner_service.dispatcher.items import (
    AlgorithmFault,
    CustomTrialAdded,
    Decided,
    MetricsReported,
    NoMoreSuggestions,
    NoSuggestionYet,
    PauseAdvised,
    Queue,
    QueueItem,
    ResultsImported,
    SearchSpaceUpdated,
    StopAdvised,
    Suggested,
    SuggestionRequested,
    Taken,
    TrialEnded,
    TrialRested,
)
from tuner_service.domain.experiment import AlgorithmSpec, Goal, Objective
from tuner_service.domain.trial import Decision, DecisionKind, Report, TrialOutcome, TrialStatus
from tuner_service.workers.faults import Faulted
from tuner_service.workers.messages import (
    _KINDS,
    Answered,
    Choosing,
    Folded,
    FromWorker,
    HistoryEnd,
    Initialize,
    Initialized,
    LoadSnapshot,
    Ping,
    Pong,
    QueueFaulted,
    SnapshotMade,
    SnapshotRefused,
    Terminate,
    Told,
    ToWorker,
    command_from_wire,
    command_to_wire,
    message_to_wire,
    messages_from_wire,
)
from tuner_service.workers.protocol import FrameError, encode_frame, read_frame

TUNER = Queue.TUNER
OUTCOME = TrialOutcome(
    number=3,
    status=TrialStatus.EARLY_STOPPED,
    parameters={"x": (1, math.inf), "__y": None},
    value=0.5,
    step=9,
    further_values=(2.0, None),
)
WITHOUT_VALUE = TrialOutcome(number=4, status=TrialStatus.FAILED, parameters={}, value=None, source="custom")
FORK = Decision(
    kind=DecisionKind.FORK, number=5, parameters={"x": (1, None)}, until_step=9, forked_from=3, dropped=(1, 2)
)
ITEMS: list[tuple[Queue, QueueItem, str]] = [
    (Queue.TUNER, SuggestionRequested(line=1, number=0, decision=FORK), "RequestTrialJobs"),
    (Queue.TUNER, TrialRested(line=8, number=2, step=27), "TrialRested"),
    (Queue.TUNER, SuggestionRequested(line=1, number=2), "RequestTrialJobs"),
    (Queue.TUNER, SuggestionRequested(line=1, number=2, recorded={"x": 1.5}), "RequestTrialJobs"),
    (Queue.ASSESSOR, SuggestionRequested(line=1, number=2), "RequestTrialJobs"),
    (
        Queue.ASSESSOR,
        MetricsReported(
            line=2, number=2, reports=(Report(step=1, value=-math.inf), Report(step=2, value=3)), sequences=(4, 6)
        ),
        "ReportMetricData",
    ),
    (Queue.TUNER, TrialEnded(line=3, outcome=OUTCOME), "TrialEnd"),
    (Queue.ASSESSOR, TrialEnded(line=3, outcome=OUTCOME), "TrialEnd"),
    (Queue.TUNER, TrialEnded(line=4, outcome=WITHOUT_VALUE), "TrialEnd"),
    (Queue.TUNER, ResultsImported(line=5, outcomes=(OUTCOME, WITHOUT_VALUE)), "ImportData"),
    (Queue.TUNER, CustomTrialAdded(line=6, number=8, parameters={"x": [1]}), "AddCustomizedTrialJob"),
    (Queue.TUNER, SearchSpaceUpdated(line=7, search_space={"x": {"type": "bool"}}), "UpdateSearchSpace"),
]
COMMANDS: list[ToWorker] = [
    Initialize(
        experiment_id="e1",
        search_space={"x": {"type": "bool"}},
        objective=Objective(metric="accuracy", goal=Goal.MAXIMIZE, further=(Objective(metric="seconds"),)),
        seed=2**62,
        tuner=AlgorithmSpec(name="grid", args={"points": 3}),
        assessor=AlgorithmSpec(class_name="mine:Own"),
        deterministic=True,
        code_folder="/code",
        snapshot_every=9,
    ),
    Initialize(
        experiment_id="e1",
        search_space={},
        objective=Objective(metric="loss"),
        seed=0,
        tuner=AlgorithmSpec(name="random"),
    ),
    Initialize(
        experiment_id="e1",
        search_space={},
        objective=Objective(metric="loss"),
        seed=0,
        tuner=AlgorithmSpec(),
        advisor=AlgorithmSpec(name="pbt", args={"interval": 2}),
    ),
    LoadSnapshot(queue=Queue.ASSESSOR, line=17, state="{}"),
    HistoryEnd(queue=Queue.TUNER),
    Ping(),
    Terminate(),
]
MESSAGES: list[FromWorker] = [
    Initialized(),
    Initialized(asks_ahead=True),
    Folded(queue=Queue.TUNER, count=12),
    Answered(
        queue=Queue.TUNER,
        answers=(
            Taken(line=1),
            Taken(line=3),
            Suggested(line=4, parameters={"x": (1,)}),
            Taken(line=5),
            NoSuggestionYet(line=6),
            NoMoreSuggestions(line=7),
        ),
    ),
    Folded(queue=Queue.ASSESSOR, count=1),
    Answered(
        queue=Queue.TUNER,
        answers=(
            Decided(line=8, decision=FORK),
            Decided(line=9, decision=Decision(kind=DecisionKind.PROMOTE, number=1)),
            PauseAdvised(line=10, sequence=4, message="enough"),
        ),
    ),
    Answered(queue=Queue.ASSESSOR, answers=(StopAdvised(line=9, sequence=4, message="slow"),)),
    QueueFaulted(
        queue=Queue.ASSESSOR,
        faulted=Faulted(line=8, fault=AlgorithmFault.TEMPORARY, message="m", traceback="t"),
    ),
    SnapshotMade(queue=Queue.TUNER, line=8, state='{"a":NaN}'),
    SnapshotRefused(queue=Queue.TUNER, line=8, why="KeyError: 'x'"),
    Choosing(text="tpe: 301 results"),
    Pong(),
]


def journey(objects: list[Any]) -> list[Any]:
    frame = read_frame(io.BytesIO(encode_frame(objects)))
    assert frame is not None
    return frame


@pytest.mark.parametrize(("queue", "item", "name"), ITEMS)
def test_every_item_has_a_command_and_comes_back_as_it_was(queue: Queue, item: QueueItem, name: str) -> None:
    (wire,) = journey([command_to_wire(Told(queue=queue, item=item))])
    assert wire["kind"] == name
    assert command_from_wire(wire) == Told(queue=queue, item=item)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: type(command).__name__)
def test_every_command_comes_back_as_it_was(command: ToWorker) -> None:
    assert command_from_wire(journey([command_to_wire(command)])[0]) == command


def test_all_messages_of_one_frame_come_back_as_they_were() -> None:
    objects = [wire for message in MESSAGES for wire in message_to_wire(message)]
    assert messages_from_wire(journey(objects)) == MESSAGES


EXACT = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from([np.float32(0.1), np.int64(3), np.bool_(True)]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text() | st.integers(), inner, max_size=3)
    ),
    max_leaves=10,
)


def alike(one: Any, other: Any) -> bool:
    """Equal, of the same types throughout, and bit for bit: NaN is NaN, -0.0 is not 0.0, and True is not 1."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, dict):
        keys = len(one) == len(other) and all(map(alike, one, other))
        return keys and all(map(alike, one.values(), other.values()))
    return repr(one) == repr(other)


@given(values=st.dictionaries(st.text(), EXACT, max_size=3), value=st.floats() | st.none())
def test_parameters_and_results_come_back_exactly(values: dict[str, Any], value: float | None) -> None:
    outcome = TrialOutcome(
        number=1, status=TrialStatus.SUCCEEDED, parameters=values, value=value, further_values=(value, None)
    )
    said: list[QueueItem] = [
        SuggestionRequested(line=1, number=1, recorded=values, decision=replace(FORK, parameters=values)),
        TrialEnded(line=1, outcome=outcome),
        ResultsImported(line=1, outcomes=(outcome,)),
        CustomTrialAdded(line=1, number=1, parameters=values),
        SearchSpaceUpdated(line=1, search_space=values),
    ]
    heard = [command_from_wire(wire) for wire in journey([command_to_wire(Told(queue=TUNER, item=i)) for i in said])]
    assert alike(
        [asdict(one) for one in heard if isinstance(one, Told)], [asdict(Told(queue=TUNER, item=i)) for i in said]
    )

    answers = Answered(queue=TUNER, answers=(Suggested(line=1, parameters=values),))
    (answered,) = messages_from_wire(journey(message_to_wire(answers)))
    assert isinstance(answered, Answered)
    assert alike(asdict(answered), asdict(answers))


def test_what_no_type_describes_stands_in_fields_of_its_own() -> None:
    """Only there ``pack`` marks it; deeper down a tuple would come back as a list."""
    classes = [cls for cls in _KINDS if is_dataclass(cls)]
    for cls in [*classes, TrialOutcome, Decision, AlgorithmSpec, Objective]:
        for name, hint in get_type_hints(cls).items():
            assert "Any" not in str(hint) or _is_free(hint), f"{cls.__name__}.{name}"


def test_lines_that_were_only_taken_travel_together() -> None:
    many = Answered(queue=Queue.TUNER, answers=tuple(Taken(line=line) for line in range(500)))
    assert len(message_to_wire(many)) == 1


@pytest.mark.parametrize(
    "wire",
    [
        None,
        [],
        {},
        {"kind": 3},
        {"kind": "Sudo", "queue": "tuner", "line": 1},
        {"kind": "RequestTrialJobs", "queue": "kitchen", "line": 1, "number": 1},
        {"kind": "RequestTrialJobs", "queue": "tuner", "line": "1", "number": 1},
        {"kind": "RequestTrialJobs", "queue": "tuner", "line": 1, "number": 1, "recorded": [1]},
        {"kind": "TrialEnd", "queue": "tuner", "line": 1, "outcome": {"number": 1, "status": "lost"}},
        {"kind": "Initialize", "protocol": 99},
        {
            "kind": "ReportMetricData", "queue": "assessor", "line": 1, "number": 1,
            "steps": [1, 2], "values": [0.5], "sequences": [1],
        },
        {
            "kind": "ReportMetricData", "queue": "assessor", "line": 1, "number": 1,
            "steps": [1], "values": ["0.5"], "sequences": [1],
        },
    ],
)  # fmt: skip
def test_what_is_no_command_is_refused(wire: Any) -> None:
    with pytest.raises(FrameError):
        command_from_wire(wire)


@pytest.mark.parametrize(
    "wire",
    [
        None,
        {"kind": "Sudo", "line": 3},
        {"kind": "NewTrialJob", "queue": "tuner", "line": 1, "parameters": [1]},
        {"kind": "Acknowledged", "queue": "tuner", "lines": ["1"]},
        {"kind": "Error", "queue": "tuner", "line": 1, "fault": "mine", "message": "", "traceback": ""},
    ],
)
def test_what_is_no_answer_is_refused(wire: Any) -> None:
    with pytest.raises(FrameError):
        messages_from_wire([wire])

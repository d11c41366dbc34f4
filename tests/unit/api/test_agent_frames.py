"""Frames of an agent that would keep everybody waiting: not read, and the agent goes on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.api.test_agent_channel import KEY, Script, a_hello, greeted, welcome
from trials.wire.encoding import encode, require_few_values
from trials.wire.limits import FRAME_VALUES_LIMIT, REPORT_BATCH_BYTES, REPORT_BATCH_LINES
from trials.wire.messages import Refused, Reports
from trials.wire.plain import ProtocolError
from tuner_service.dispatcher.commands import ReportsReceived

FRAME = 8 << 20  # characters


def filled(head: str, piece: str, tail: str, *, joined: str = ",") -> str:
    return head + joined.join([piece] * ((FRAME - len(head) - len(tail)) // (len(piece) + len(joined)))) + tail


HEAVY = {
    "a list of numbers": filled("[", "0", "]"),
    "lists in lists": filled('{"kind":"pong","x":[', "[[]]", "]}"),
    "empty objects": filled('{"kind":"pong","x":[', "{}", "]}"),
    "empty texts": filled('{"kind":"reports","lines":[', '""', "]}"),
    "texts that end in a backslash": filled('{"kind":"pong","x":[', r'"\\"', "]}"),
    "keys": '{"kind":"pong",' + ",".join(f'"{place:x}":0' for place in range(FRAME // 10)) + "}",
    "spaces between": filled("[", "0", "]", joined=" , "),
}


@pytest.mark.parametrize("frame", HEAVY.values(), ids=HEAVY)
def test_a_frame_of_very_many_small_values_is_not_read_and_the_next_one_is(frame: str) -> None:
    reports = encode(Reports(key=KEY, nonce="n", first_sequence=1, lines=("{}",)))
    script = Script([frame, reports], welcome)
    script.run(a_hello())

    assert sum(isinstance(command, ReportsReceived) for command in script.commands) == 1
    (answer,) = [message for message in script.sent if message["kind"] == "not_understood"]
    assert f"it may have {FRAME_VALUES_LIMIT}" in answer["reason"]


def test_a_hello_of_very_many_small_values_is_refused() -> None:
    answer = greeted('{"kind":"hello","x":[' + ",".join("0" * (FRAME_VALUES_LIMIT + 1)) + "]}")

    assert isinstance(answer, Refused)


@pytest.mark.parametrize("text", ['{"a":[0,{},"x"],', ',,,,::::[[[[{{{{""""', '\\"\\\\', "\\" * 500, "é\u2028\u0000"])
def test_the_most_that_an_agent_sends_at_once_is_read_whatever_a_script_wrote(text: str) -> None:
    each = REPORT_BATCH_BYTES // REPORT_BATCH_LINES
    lines = tuple((text * (each // len(text)))[:each] for _ in range(REPORT_BATCH_LINES))
    script = Script([encode(Reports(key=KEY, nonce="n", first_sequence=1, lines=lines))], welcome)
    script.run(a_hello())

    (taken,) = [command for command in script.commands if isinstance(command, ReportsReceived)]
    assert len(taken.records) == REPORT_BATCH_LINES


def test_lines_of_more_bytes_than_an_agent_sends_are_not_taken() -> None:
    line = json.dumps({"kind": "metric", "step": 1, "values": {f"m{n}": 0.5 for n in range(300)}, "at": 1.0})
    lines = (line,) * (REPORT_BATCH_BYTES // len(line) + 1)
    script = Script([encode(Reports(key=KEY, nonce="n", first_sequence=1, lines=lines))], welcome)
    script.run(a_hello())

    assert not any(isinstance(command, ReportsReceived) for command in script.commands)
    (answer,) = [message for message in script.sent if message["kind"] == "not_understood"]
    assert f"at most {REPORT_BATCH_BYTES} are taken" in answer["reason"]


@pytest.mark.parametrize("values", [FRAME_VALUES_LIMIT // 2, FRAME_VALUES_LIMIT + 2])
def test_values_are_counted_between_and_not_within_texts(values: int) -> None:
    plain: dict[str, Any] = {"x": [0] * values, "text": ',[{:"\\' * 1_000}
    if values > FRAME_VALUES_LIMIT:
        with pytest.raises(ProtocolError):
            require_few_values(json.dumps(plain))
    else:
        require_few_values(json.dumps(plain))

"""Messages come back as they were, in one frame or several; what every version says is frozen."""

from __future__ import annotations

import types
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest

from trials.wire import messages
from trials.wire.encoding import (
    UnknownKindError,
    decode,
    decode_plain,
    encode,
    frames,
    greeting_in,
    kind_of,
    messages_in,
)
from trials.wire.handshake import Greeting, Leave
from trials.wire.limits import FRAME_JOINED_BYTES, FRAME_MESSAGES_LIMIT
from trials.wire.messages import Acknowledge
from trials.wire.plain import ProtocolError

MESSAGES = {cls.kind: cls for cls in (*get_args(messages.FromAgent), *get_args(messages.ToAgent))}


def example_of(expected: Any) -> Any:
    """A value of that type with every field filled."""
    origin = get_origin(expected)
    if origin in (Union, types.UnionType):
        return example_of(next(a for a in get_args(expected) if a is not type(None)))
    if origin is tuple:
        return (example_of(get_args(expected)[0]),)
    if origin is dict:
        return {"name": example_of(get_args(expected)[1])}
    if is_dataclass(expected) and isinstance(expected, type):
        hints = get_type_hints(expected)
        return expected(**{f.name: example_of(hints[f.name]) for f in fields(expected)})
    if isinstance(expected, type) and issubclass(expected, Enum):
        return next(iter(expected))
    return {str: "text", int: 3, float: 0.5, bool: True, Any: 1}[expected]


@pytest.mark.parametrize("kind", sorted(MESSAGES))
def test_a_message_comes_back_as_it_was(kind: str) -> None:
    example = example_of(MESSAGES[kind])

    assert decode(encode(example)) == example


def test_what_agents_and_services_of_every_version_say_to_each_other_never_changes() -> None:
    hello = '{"kind":"hello","version":3,"agent_id":"a","boot_id":"b","host":"h","pid":17,"attempts":{"of":"then"}}'
    assert greeting_in(hello) == Greeting(version=3, agent_id="a", pid=17)
    leave = '{"kind":"leave","version":3,"reason":"r"}'
    assert encode(Leave(version=3, reason="r")) == leave
    assert decode(leave.replace("}", ',"more":1}')) == Leave(version=3, reason="r")


def test_every_hello_is_a_greeting() -> None:
    hello = example_of(messages.Hello)

    assert greeting_in(encode(hello)) == Greeting(version=hello.version, agent_id=hello.agent_id, pid=hello.pid)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"kind":"pong"}', "the first message must be a hello, not 'pong'"),
        ("[]", "the first message must be a hello, not ''"),
        ('{"kind":"hello","version":"3","agent_id":"a","pid":1}', "hello.version: expected int, got str"),
        ('{"kind":"hello","version":3}', "agent_id"),
        ("hello", "not JSON"),
    ],
)
def test_what_is_no_greeting_is_refused(text: str, why: str) -> None:
    with pytest.raises(ProtocolError, match=why):
        greeting_in(text)


def test_an_unknown_kind_is_refused_by_name_with_the_known_ones() -> None:
    with pytest.raises(UnknownKindError, match=r"unknown kind 'dance'; known: acknowledge, .*launch"):
        decode('{"kind": "dance"}')
    assert kind_of({"kind": "dance", "tempo": 3}) == "dance"


@pytest.mark.parametrize("value", ["", [], {}, 3, {"kind": 3}, None])
def test_what_has_no_kind_has_none(value: object) -> None:
    assert kind_of(value) == ""


def test_several_messages_go_into_one_frame_and_come_out_in_order() -> None:
    said = [encode(Acknowledge(nonce="n", sequence=number)) for number in range(FRAME_MESSAGES_LIMIT + 1)]

    packed = frames(said)

    assert len(packed) == 2
    found = [decode_plain(value) for frame in packed for value in messages_in(frame)]
    assert [message.sequence for message in found if isinstance(message, Acknowledge)] == [
        *range(FRAME_MESSAGES_LIMIT + 1)
    ]


def test_one_message_is_its_own_frame() -> None:
    said = [encode(Acknowledge(nonce="n", sequence=1))]

    assert frames(said) == said
    assert frames([]) == []


def test_large_messages_have_frames_of_their_own_and_short_ones_share_what_is_left() -> None:
    """A peer refuses a frame beyond a size, and would be sent the same one for ever."""
    large, short = "x" * (FRAME_JOINED_BYTES - 10), "y" * 8

    assert frames([short, large, short, large, large, short, short]) == [
        f"[{short},{large}]",
        f"[{short},{large}]",
        f"[{large},{short}]",
        f"[{short}]",
    ]


@pytest.mark.parametrize(
    "text", ["", "{nonsense", "[" * 100_000, "[]", f"[{','.join(['3'] * (FRAME_MESSAGES_LIMIT + 1))}]"]
)
def test_a_frame_that_is_no_json_or_holds_too_few_or_too_many_messages_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError):
        messages_in(text)

"""This version and the one before work together: what is new is left out, or refused with both versions named."""

from __future__ import annotations

import json
import types
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Union, get_args, get_origin, get_type_hints

import pytest

from trials.wire import attempt, devices, launch, messages, records
from trials.wire.attempt import AttemptKey
from trials.wire.encoding import UnknownKindError, decode, decode_plain, encode, frames, kind_of, messages_in
from trials.wire.launch import LaunchSpec
from trials.wire.limits import FRAME_MESSAGES_LIMIT
from trials.wire.messages import PROTOCOL_VERSION, SUPPORTED_VERSIONS, Acknowledge, Launch, NotUnderstood, Refused
from trials.wire.plain import ProtocolError
from trials.wire.versions import NotInVersionError, common_version, plain_in, since

EARLIER = json.loads((Path(__file__).parents[2] / "approved" / "agent-protocol-1.json").read_text())
PARTS = {
    name: value for module in (attempt, devices, launch, messages, records) for name, value in vars(module).items()
}
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
    return {str: "text", int: 3, float: 0.5, bool: True, Any: 1}[expected]


def said_before(kind: str) -> Any:
    """An example with the values of later fields as where nobody has set them."""
    example = example_of(MESSAGES[kind])
    if isinstance(example, Launch):
        known = {name: getattr(example.spec, name) for name in EARLIER["parts"]["LaunchSpec"]}
        return replace(example, spec=LaunchSpec(**known))
    later = [f.name for f in fields(example) if f.name not in EARLIER["messages"][kind]]
    return type(example)(**{f.name: getattr(example, f.name) for f in fields(example) if f.name not in later})


@pytest.mark.parametrize("kind", sorted(EARLIER["messages"]))
def test_towards_the_version_before_a_message_has_exactly_its_fields(kind: str) -> None:
    said = json.loads(encode(said_before(kind), version=1))

    assert [name for name in said if name != "kind"] == EARLIER["messages"][kind]
    if kind == "launch":
        assert list(said["spec"]) == EARLIER["parts"]["LaunchSpec"]
    if kind == "hello":
        assert list(said["attempts"][0]) == EARLIER["parts"]["ObservedAttempt"]
        assert list(said["resources"]) == EARLIER["parts"]["NodeResources"]
    if kind == "exited":
        assert list(said["exit"]) == EARLIER["parts"]["ExitRecord"]


@pytest.mark.parametrize("kind", sorted(EARLIER["messages"]))
def test_what_the_version_before_says_is_understood(kind: str) -> None:
    said = encode(said_before(kind), version=1)

    assert json.loads(encode(decode(said), version=1)) == json.loads(said)


@pytest.mark.parametrize("kind", sorted(MESSAGES))
def test_in_this_version_a_message_comes_back_as_it_was(kind: str) -> None:
    example = example_of(MESSAGES[kind])

    assert decode(encode(example)) == example


@pytest.mark.parametrize("kind", sorted(set(MESSAGES) - set(EARLIER["messages"])))
def test_a_kind_that_the_version_before_has_not_is_not_said_to_it(kind: str) -> None:
    with pytest.raises(NotInVersionError, match=f"'{kind}' needs version 2 .* the other side speaks 1"):
        encode(example_of(MESSAGES[kind]), version=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    name: str
    shelf: int = since(2, 0, needed=True)
    hints: dict[str, int] = since(2, factory=dict, needed=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    kind: ClassVar[str] = "order"
    places: tuple[_Place, ...]
    by_name: dict[str, _Place]


def test_a_field_that_is_only_a_hint_is_left_out_for_the_version_before() -> None:
    order = _Order(places=(_Place(name="a", hints={"x": 1}),), by_name={"b": _Place(name="b")})

    assert plain_in(order, 1, where="order") == {"places": [{"name": "a"}], "by_name": {"b": {"name": "b"}}}
    assert plain_in(order, 2, where="order")["places"] == [{"name": "a", "shelf": 0, "hints": {"x": 1}}]


def test_a_field_that_is_needed_and_set_cannot_be_said_to_the_version_before() -> None:
    order = _Order(places=(_Place(name="a"), _Place(name="b", shelf=3)), by_name={})

    with pytest.raises(NotInVersionError, match=r"order\.places\[1\]\.shelf needs version 2 .* speaks 1"):
        plain_in(order, 1, where="order")


def test_every_later_field_has_a_default_and_says_since_when() -> None:
    for kind, known in EARLIER["messages"].items():
        for entry in fields(MESSAGES[kind]):
            assert entry.name in known or entry.metadata["since"] > 1, f"{kind}.{entry.name}"
    for part, known in EARLIER["parts"].items():
        for entry in fields(PARTS[part]):
            assert entry.name in known or entry.metadata["since"] > 1, f"{part}.{entry.name}"


def test_the_newest_version_both_speak_is_used() -> None:
    assert common_version((1, 2), (1, 2)) == 2
    assert common_version((1, 2), (2, 3)) == 2
    assert common_version((1, 2), (1,)) == 1
    assert common_version((1, 2), (3, 4)) is None
    assert max(SUPPORTED_VERSIONS) == PROTOCOL_VERSION


def test_an_unknown_kind_is_refused_by_name_with_the_known_ones() -> None:
    with pytest.raises(UnknownKindError, match=r"unknown kind 'dance'; known: acknowledge, .*launch"):
        decode('{"kind": "dance"}')
    assert kind_of({"kind": "dance", "tempo": 3}) == "dance"


@pytest.mark.parametrize("value", ["", [], {}, 3, {"kind": 3}, None])
def test_what_has_no_kind_has_none(value: object) -> None:
    assert kind_of(value) == ""


def test_several_messages_go_into_one_frame_and_come_out_in_order() -> None:
    said = [encode(Acknowledge(nonce="n", sequence=number)) for number in range(FRAME_MESSAGES_LIMIT + 1)]

    packed = frames(said, version=2)

    assert len(packed) == 2
    found = [decode_plain(value) for frame in packed for value in messages_in(frame)]
    assert [message.sequence for message in found if isinstance(message, Acknowledge)] == [
        *range(FRAME_MESSAGES_LIMIT + 1)
    ]


def test_one_message_is_its_own_frame_and_version_1_has_no_others() -> None:
    said = [encode(Acknowledge(nonce="n", sequence=number)) for number in range(2)]

    assert frames(said[:1], version=2) == said[:1]
    assert frames(said, version=1) == said
    assert frames([], version=2) == []


@pytest.mark.parametrize(
    "text", ["", "{nonsense", "[" * 100_000, "[]", f"[{','.join(['3'] * (FRAME_MESSAGES_LIMIT + 1))}]"]
)
def test_a_frame_that_is_no_json_or_holds_too_few_or_too_many_messages_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError):
        messages_in(text)


def test_what_is_new_in_a_refusal_is_passed_over_by_the_version_before() -> None:
    assert json.loads(encode(Refused(reason="r", supported=(1, 2)), version=1)) == {"kind": "refused", "reason": "r"}
    key = AttemptKey(experiment_id="e", number=1, attempt=1)
    spec = LaunchSpec(command=("python",), parameters={}, seed=1, objective="loss")
    launch = Launch(key=key, nonce="n", lineage="l", spec=spec)
    assert decode(encode(launch, version=1)) == launch
    assert decode(encode(NotUnderstood(about="dance", reason="r"))) == NotUnderstood(about="dance", reason="r")

"""Messages and spool records as text, and back again: ``encode`` and ``decode`` are exact inverses."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from trials.wire.handshake import Greeting
from trials.wire.limits import FRAME_JOINED_BYTES, FRAME_MESSAGES_LIMIT, FRAME_VALUES_LIMIT
from trials.wire.lines import fault_of
from trials.wire.messages import FromAgent, Message, ToAgent
from trials.wire.plain import ProtocolError, from_plain, to_plain
from trials.wire.records import MetricRecord, SpoolRecord
from trials.wire.texts import valid_json

_FLOAT = frozenset({float})
_SPOOL_KINDS: dict[str, type[Any]] = {c.kind: c for c in get_args(SpoolRecord)}
_MESSAGE_KINDS: dict[str, type[Any]] = {c.kind: c for c in (*get_args(FromAgent), *get_args(ToAgent))}


class UnknownKindError(ProtocolError):
    """No message has this kind; the text names the known ones."""


_to_text = json.JSONEncoder(separators=(",", ":")).encode


def encode(message: Message) -> str:
    """One line of JSON. NaN and infinities are written as JavaScript does (``NaN``, ``Infinity``)."""
    return _to_text({"kind": message.kind, **to_plain(message)})


def frames(messages: Sequence[str]) -> list[str]:
    """Encoded messages in as few frames as there can be: several in one are a list."""
    if len(messages) == 1:
        return list(messages)
    parts: list[list[str]] = []
    characters = 0
    for message in messages:
        characters += len(message)
        if not parts or len(parts[-1]) == FRAME_MESSAGES_LIMIT or characters > FRAME_JOINED_BYTES:
            parts.append([])
            characters = len(message)
        parts[-1].append(message)
    return [f"[{','.join(part)}]" for part in parts]


def decode(text: str) -> Message:
    """The message ``text`` holds; ProtocolError names the kind or field that is wrong."""
    return decode_plain(_read(text))


def greeting_in(text: str) -> Greeting:
    """What the first message of an agent of any version says; ProtocolError where it is none."""
    found = _read(text)
    if kind_of(found) != Greeting.kind:
        raise ProtocolError(f"the first message must be a {Greeting.kind}, not {kind_of(found)!r}")
    return from_plain(Greeting, found, where=Greeting.kind)  # type: ignore[no-any-return]  # it is what it is given


def messages_in(text: str) -> list[Any]:
    """The messages of one frame, each for ``decode_plain``; ProtocolError where it holds none."""
    found = _read(text)
    if not isinstance(found, list):
        return [found]
    if not 0 < len(found) <= FRAME_MESSAGES_LIMIT:
        raise ProtocolError(f"a frame of {len(found)} messages; it may have 1 to {FRAME_MESSAGES_LIMIT}")
    return found


def require_few_values(text: str) -> None:
    """ProtocolError where a frame has more values than FRAME_VALUES_LIMIT.

    To be asked before the frame is read: that cannot be interrupted, and takes a second for millions of small values.
    Counted by what stands between values, which takes a hundredth of it.
    """
    if len(text) <= FRAME_VALUES_LIMIT:
        return
    bare = text.replace("\\\\", "").replace('\\"', "")
    count = bare.count('"') // 2
    if count <= FRAME_VALUES_LIMIT:
        outside = "".join(bare.split('"')[::2])
        count = sum(map(outside.count, ",:[{"))
    if count > FRAME_VALUES_LIMIT:
        raise ProtocolError(f"a frame of {count} values; it may have {FRAME_VALUES_LIMIT}")


def decode_plain(value: Any) -> Message:
    """The message that a plain JSON value stands for; ProtocolError names the kind or field that is wrong."""
    return _decode(value, _MESSAGE_KINDS)  # type: ignore[no-any-return]  # the table's values are Message


def kind_of(value: Any) -> str:
    """What a message that could not be decoded says its kind is; "" where it says nothing of the sort."""
    kind = value.get("kind") if isinstance(value, dict) else None
    return kind if isinstance(kind, str) else ""


def record_of(value: Any, size: int) -> SpoolRecord:
    """The record that a plain JSON value stands for, from a line of ``size`` bytes; ProtocolError says why it is none.

    A metric, which nearly every line is, is made without looking at each of its fields once more.
    """
    if fault := fault_of(value, size):
        raise ProtocolError(fault)
    if value["kind"] != MetricRecord.kind:
        return _decode(value, _SPOOL_KINDS)  # type: ignore[no-any-return]  # the table's values are SpoolRecord
    values = value["values"]
    if not _FLOAT.issuperset(map(type, values.values())):
        values = {name: float(number) for name, number in values.items()}
    return MetricRecord(step=value.get("step"), values=values, at=float(value["at"]), final=value.get("final", False))


def decode_record(line: str) -> SpoolRecord:
    return record_of(_read(line), len(line))


def _read(text: str) -> Any:
    try:
        return json.loads(valid_json(text))
    except (ValueError, RecursionError) as exc:
        raise ProtocolError(f"not JSON: {exc}") from exc


def _decode(data: Any, kinds: Mapping[str, type[Any]]) -> Any:
    if not isinstance(data, dict):
        raise ProtocolError(f"a message is an object, not {type(data).__name__}")
    if not isinstance(kind := data.get("kind"), str) or kind not in kinds:
        raise UnknownKindError(f"unknown kind {kind!r}; known: {', '.join(sorted(kinds))}")
    return from_plain(kinds[kind], data, where=kind)

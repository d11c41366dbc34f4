"""What a version of the protocol has, and how a message is said to somebody who speaks an older one.

Standard library only. Field by field, ``since`` marks what came later; everything without a mark is of version 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import MISSING, Field, field, fields, is_dataclass
from typing import Any

from trials.wire.plain import ProtocolError


class NotInVersionError(ProtocolError):
    """The message cannot be said in an older version; the text names what needs which version."""


def since(version: int, default: Any = MISSING, *, factory: Callable[[], Any] | None = None, needed: bool) -> Any:
    """A dataclass field that ``version`` has added.

    It is left out of what is said to older ones. ``needed``: where it holds another value than its default the whole
    message cannot be said to them (NotInVersionError); else they do without it.
    """
    metadata = {"since": version, "needed": needed}
    if factory is not None:
        return field(default_factory=factory, metadata=metadata)
    return field(default=default, metadata=metadata)


def common_version(ours: Iterable[int], theirs: Iterable[int]) -> int | None:
    """The newest version that both speak; None when there is none."""
    return max(set(ours) & set(theirs), default=None)


def plain_in(value: Any, version: int, *, where: str) -> Any:
    """As ``to_plain``, without what is newer than ``version``. NotInVersionError for what that version cannot do."""
    if is_dataclass(value) and not isinstance(value, type):
        plain = {}
        for entry in fields(value):
            item = getattr(value, entry.name)
            added = entry.metadata.get("since", 1)
            if added <= version:
                plain[entry.name] = plain_in(item, version, where=f"{where}.{entry.name}")
            elif entry.metadata["needed"] and item != _default_of(entry):
                raise NotInVersionError(
                    f"{where}.{entry.name} needs version {added} of the protocol; the other side speaks {version}"
                )
        return plain
    if isinstance(value, tuple | list):
        if set(map(type, value)) <= {str}:  # the lines of reports come in thousands
            return list(value)
        return [plain_in(item, version, where=f"{where}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, dict):
        return {name: plain_in(item, version, where=f"{where}.{name}") for name, item in value.items()}
    return value


def require_kind(message: type[Any], version: int) -> None:
    """NotInVersionError for a kind of message that ``version`` does not have."""
    added = getattr(message, "since", 1)
    if added > version:
        raise NotInVersionError(
            f"{message.kind!r} needs version {added} of the protocol; the other side speaks {version}"
        )


def _default_of(entry: Field[Any]) -> Any:
    return entry.default if entry.default_factory is MISSING else entry.default_factory()

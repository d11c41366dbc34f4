"""Opaque cursors: a page says where the next one begins."""

from __future__ import annotations

import base64
import binascii
import math

from trials.wire.texts import text_fault
from tuner_service.domain.errors import Fault, InputError
from tuner_service.service.cursors import make_cursor as make_cursor  # noqa: PLC0414  # part of this module

PAGE_LIMIT = 1_000  # most items of one page
DEFAULT_PAGE = 100
_MAX_CURSOR = 200
CURSOR_PATTERN = f"^[A-Za-z0-9_-]{{1,{_MAX_CURSOR}}}$"


def read_cursor(cursor: str | None) -> str | None:
    """What ``make_cursor`` was given."""
    if cursor is None:
        return None
    try:
        if len(cursor) > _MAX_CURSOR:
            raise ValueError(cursor)
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
        if text_fault(text):
            raise ValueError(text)
    except (ValueError, binascii.Error) as exc:
        raise cursor_fault() from exc
    return text


def read_number_cursor(cursor: str | None) -> int:
    """0 without a cursor."""
    text = read_cursor(cursor)
    return 0 if text is None else _number(text)


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > 18:  # of 64 bits, which a database takes
        raise cursor_fault()
    return int(text)


def read_pair_cursor(cursor: str | None) -> tuple[int, int]:
    """Two numbers with a dot between; zeros without a cursor."""
    text = read_cursor(cursor)
    if text is None:
        return (0, 0)
    first, _, second = text.partition(".")
    return _number(first), _number(second)


def read_moment_cursor(cursor: str | None) -> tuple[float, str] | None:
    """A moment, and the id of what began then, with a space between; None without a cursor."""
    text = read_cursor(cursor)
    if text is None:
        return None
    moment, _, id_ = text.partition(" ")
    try:
        if not id_ or not math.isfinite(float(moment)):
            raise cursor_fault()
        return float(moment), id_
    except ValueError as exc:
        raise cursor_fault() from exc


def cursor_fault() -> InputError:
    return InputError([Fault(pointer="/query/cursor", message="is not a cursor of this list; start without one")])

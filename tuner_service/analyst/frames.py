"""Frames between the service and its analyst: two lengths (big endian), a head in JSON, and bytes."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from typing import Any

LENGTHS = struct.Struct(">II")
DATABASE_VARIABLE = "TUNER_DB"  # by which the analyst is told the address of the database
PIPE_BYTES = 1 << 20  # what the pipe of answers holds, where the system allows it: long ones wake both ends less often
FRAME_LIMIT_BYTES = 256 << 20  # of either part; what is longer is damaged

Head = Mapping[str, Any]


class FrameError(ValueError):
    """What came is no frame, or ended in the middle of one."""


def frame(head: Head, body: bytes = b"") -> bytes:
    return beginning(head, len(body)) + body


def beginning(head: Head, body_bytes: int) -> bytes:
    """What stands before a body of that length, so that a long one need not be copied."""
    encoded = json.dumps(head).encode()
    return LENGTHS.pack(len(encoded), body_bytes) + encoded


def read_frame(read: Callable[[int], bytes]) -> tuple[Head, bytes] | None:
    """``read`` gives at most so many bytes, none at the end; None where that is between two frames."""
    lengths = _exactly(read, LENGTHS.size, may_end=True)
    if not lengths:
        return None
    of_head, of_body = LENGTHS.unpack(lengths)
    if max(of_head, of_body) > FRAME_LIMIT_BYTES:
        raise FrameError(f"a frame of {of_head} and {of_body} bytes; at most {FRAME_LIMIT_BYTES} are taken")
    head = json.loads(_exactly(read, of_head))
    return head, _exactly(read, of_body)


def _exactly(read: Callable[[int], bytes], count: int, *, may_end: bool = False) -> bytes:
    parts: list[bytes] = []
    missing = count
    while missing:
        part = read(min(missing, PIPE_BYTES))
        if not part:
            if may_end and missing == count:
                return b""
            raise FrameError(f"it ended {missing} bytes too early")
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)

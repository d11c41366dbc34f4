"""The streams of an attempt's output, as requests name them.

``stdout`` and ``stderr`` have the output of all its processes on a node; where there are several, ``stdout-3`` is that
of rank 3 alone. ``resources`` is what the attempt used over time, and travels as they do.
"""

from __future__ import annotations

import codecs
import re

from trials.wire.files import FILE_RESOURCES, FILE_STDERR, FILE_STDOUT
from trials.wire.limits import LOG_LIMIT_BYTES
from trials.wire.resources import STREAM as RESOURCES

STREAMS = ("stdout", "stderr")
RANK_LOG_LEAST_BYTES = 256 << 10
RANK_STREAMS_INLINE = 16  # of one attempt, in Exited; what is beyond goes over HTTP before it, as long streams do
MOST_BYTES = 4  # of a character in UTF-8
_OF_RANK = re.compile(r"(stdout|stderr)-(0|[1-9][0-9]{0,8})")
_FROM = re.compile(r"([a-z0-9-]+)@([1-9][0-9]{0,17})")
_FILES = {"stdout": FILE_STDOUT, "stderr": FILE_STDERR, RESOURCES: FILE_RESOURCES}


def of_rank(stream: str, rank: int) -> str:
    return f"{stream}-{rank}"


def rank_of(stream: str) -> int | None:
    """None for one of all ranks, and for what is no stream."""
    found = _OF_RANK.fullmatch(stream)
    return int(found[2]) if found else None


def file_of(stream: str) -> str | None:
    """Its name in the folder of an attempt; None for what is no stream."""
    return f"{stream}.log" if _OF_RANK.fullmatch(stream) else _FILES.get(stream)


def name_from(stream: str, begin: int) -> str:
    """Of a file that has a stream from the offset ``begin`` on, as it is sent to the service."""
    return f"{stream}@{begin}" if begin else stream


def stream_from(name: str) -> tuple[str, int]:
    """The stream and the offset in such a name; what is no such name is a stream, from its beginning on."""
    found = _FROM.fullmatch(name)
    return (found[1], int(found[2])) if found else (name, 0)


def stream_in(file: str) -> str | None:
    """The stream of a rank that is in a file of this name."""
    stream = file.removesuffix(".log")
    return stream if stream != file and _OF_RANK.fullmatch(stream) else None


def whole_characters(data: bytes, limit: int) -> bytes:
    """``data`` without the beginning of a character that its ``limit`` cut through: the next range begins with it.

    Whatever there is leaves something, so that who goes on from its end gets on.
    """
    if len(data) < limit:
        return data  # nothing was cut
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(data[-MOST_BYTES:])
    begun, _ = decoder.getstate()
    return data[: len(data) - len(begun)] or data


def rank_log_bytes(ranks: int) -> int:
    """The limit of each file of one of so many ranks: together they keep about as much as the log of all."""
    return max(RANK_LOG_LEAST_BYTES, LOG_LIMIT_BYTES // ranks)

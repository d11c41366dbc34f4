"""The protocol between a trial and the node's producer, over a Unix socket of whole messages (SOCK_SEQPACKET).

First the trial's Hello and the server's Welcome, as JSON, with the descriptor of the ring beside the Welcome; after
that, records of fixed size. Nothing is ever unpickled, and a message that is no such record ends the connection.
"""

from __future__ import annotations

import array
import json
import os
import socket
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from trials.data.core.sample_layout import Leaf
from trials.wire.plain import ProtocolError, from_plain, to_plain

VERSION = 1
MESSAGE_BYTES = 64 << 10  # a longer one cannot be sent
POSITION_MAX = 2**62
_ASK = struct.Struct("<4sIqqq")
_ANSWER = struct.Struct("<4sIq")
_ASK_MARK, _ANSWER_MARK = b"ask1", b"ans1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """Where samples lie in the ring."""

    windows: int
    capacity: int  # samples in a window
    cached: int  # samples in the cache: those of the lowest indices
    leaves: tuple[Leaf, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    kind: ClassVar[str] = "hello"
    version: int
    fingerprint: str  # of the dataset, its order included: it must be the server's
    is_waited_for: bool
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Welcome:
    kind: ClassVar[str] = "welcome"
    version: int
    geometry: Geometry
    per_epoch: bool  # samples of one epoch are not those of another


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    kind: ClassVar[str] = "refused"
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Nothing before ``first`` is needed any more; ``waits``: to be answered when all before ``last`` is there."""

    number: int
    first: int
    last: int
    waits: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """To the Ask of ``number``; ``window`` None: decode it yourself."""

    number: int
    window: int | None


_KINDS: dict[str, type[Any]] = {kind.kind: kind for kind in (Hello, Welcome, Refused)}


def encode(message: Hello | Welcome | Refused) -> bytes:
    return json.dumps({"kind": message.kind, **to_plain(message)}, separators=(",", ":")).encode()


def decode(data: bytes) -> Hello | Welcome | Refused:
    """ProtocolError names what is wrong."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"not JSON: {error}") from error
    if not isinstance(found, dict) or found.get("kind") not in _KINDS:
        raise ProtocolError(f"expected one of {', '.join(_KINDS)}")
    kind = found.pop("kind")
    return from_plain(_KINDS[kind], found, where=kind)  # type: ignore[no-any-return]  # the table's values are these


def encode_ask(ask: Ask) -> bytes:
    return _ASK.pack(_ASK_MARK, ask.number, ask.first, ask.last, int(ask.waits))


def decode_ask(data: bytes) -> Ask:
    if len(data) != _ASK.size:
        raise ProtocolError(f"an Ask has {_ASK.size} bytes, not {len(data)}")
    mark, number, first, last, waits = _ASK.unpack(data)
    if mark != _ASK_MARK or not 0 <= first <= last <= POSITION_MAX or waits not in {0, 1}:
        raise ProtocolError(f"no Ask: {data.hex()}")
    return Ask(number=number, first=first, last=last, waits=bool(waits))


def encode_answer(answer: Answered) -> bytes:
    return _ANSWER.pack(_ANSWER_MARK, answer.number, -1 if answer.window is None else answer.window)


def decode_answer(data: bytes) -> Answered:
    if len(data) != _ANSWER.size:
        raise ProtocolError(f"an answer has {_ANSWER.size} bytes, not {len(data)}")
    mark, number, window = _ANSWER.unpack(data)
    if mark != _ANSWER_MARK:
        raise ProtocolError(f"no answer: {data.hex()}")
    return Answered(number=number, window=None if window < 0 else window)


# ── sockets ─────────────────────────────────────────────────────────────────────────────────────
def listen(path: Path) -> socket.socket:
    """A listening socket only this user reaches; PermissionError where the folder is open to others."""
    require_private(path.parent)
    path.unlink(missing_ok=True)  # of a server that was killed: the caller holds the lock
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        listening.bind(str(path))
        path.chmod(0o600)
        listening.listen(64)
    except OSError:
        listening.close()
        raise
    return listening


def require_private(folder: Path) -> None:
    """Make the folder for this user alone; PermissionError when it is somebody else's, or open to others."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PermissionError(
            f"{folder} can be reached by others; make it yours alone (chmod 700), or set XDG_RUNTIME_DIR"
        )


def send_with_descriptor(connection: socket.socket, data: bytes, descriptor: int) -> None:
    connection.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))])


def receive_with_descriptor(connection: socket.socket) -> tuple[bytes, int | None]:
    """A message and the descriptor beside it, which is the caller's to close; None when there is none."""
    one = array.array("i", [0])
    data, beside, flags, _ = connection.recvmsg(MESSAGE_BYTES, socket.CMSG_SPACE(one.itemsize), socket.MSG_CMSG_CLOEXEC)
    descriptor = None
    for level, kind, content in beside:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS and len(content) >= one.itemsize:
            one.frombytes(content[: one.itemsize])
            descriptor = one[-1]
    if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
        if descriptor is not None:
            os.close(descriptor)
        raise ProtocolError(f"a message is longer than {MESSAGE_BYTES} bytes")
    return data, descriptor

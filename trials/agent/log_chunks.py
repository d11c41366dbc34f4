"""What an agent answers to ReadLog."""

from __future__ import annotations

from trials.agent.home import Home
from trials.agent.supervision.logs import read_log
from trials.wire.files import FILE_RESOURCES, FILE_STDERR, FILE_STDOUT
from trials.wire.limits import LOG_CHUNK_BYTES
from trials.wire.messages import LogChunk, ReadLog
from trials.wire.resources import STREAM


def log_chunk(home: Home, order: ReadLog) -> LogChunk:
    names = {"stdout": FILE_STDOUT, "stderr": FILE_STDERR, STREAM: FILE_RESOURCES}
    if order.stream not in names:
        error = f"no stream {order.stream!r}; there are {', '.join(names)}"
        return LogChunk(request_id=order.request_id, data="", end=0, size=0, error=error)
    folder = home.attempt_folder(order.key, order.nonce)
    if not folder.exists():
        error = f"attempt {order.key} is not on this node"
        return LogChunk(request_id=order.request_id, data="", end=0, size=0, error=error)
    limit = min(max(0, order.limit), LOG_CHUNK_BYTES)
    data, end, size = read_log(str(folder / names[order.stream]), offset=order.offset, limit=limit)
    return LogChunk(request_id=order.request_id, data=data.decode(errors="replace"), end=end, size=size)

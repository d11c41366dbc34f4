"""What an agent answers to ReadLog."""

from __future__ import annotations

from trials.agent.home import Home
from trials.processes.logs import read_log
from trials.wire.limits import LOG_CHUNK_BYTES
from trials.wire.log_streams import file_of, whole_characters
from trials.wire.messages import LogChunk, ReadLog


def log_chunk(home: Home, order: ReadLog) -> LogChunk:
    name = file_of(order.stream)
    if name is None:
        error = f"no stream {order.stream!r:.100}; there are stdout, stderr and resources, and stdout-3 of rank 3 alone"
        return LogChunk(request_id=order.request_id, data="", end=0, size=0, error=error)
    folder = home.attempt_folder(order.key, order.nonce)
    if not folder.exists():
        error = f"attempt {order.key} is not on this node"
        return LogChunk(request_id=order.request_id, data="", end=0, size=0, error=error)
    limit = min(max(0, order.limit), LOG_CHUNK_BYTES)
    data, end, size = read_log(str(folder / name), offset=order.offset, limit=limit)
    whole = whole_characters(data, limit)
    begin = end - len(data)
    end = begin + len(whole)
    text = whole.decode(errors="replace")
    return LogChunk(request_id=order.request_id, data=text, begin=begin, end=end, size=size)

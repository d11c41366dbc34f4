"""Orders to a parent of trials that has a socket for them, as fork servers have: one datagram each."""

from __future__ import annotations

import socket
from typing import Any

from trials.files import to_json

ORDER_BYTES = 8 << 10  # a server reads no more of one; what is longer would be cut, and not be understood


def send_order(path: str, order: dict[str, Any], *, timeout_s: float = 0.0) -> bool:
    """Whether it is in the server's queue, which holds a few.

    False also where there is no server any more, where no descriptor or memory can be had for it, and for an order of
    more than ``ORDER_BYTES``.
    """
    data = to_json(order)
    if len(data) > ORDER_BYTES:
        return False
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
            sending.settimeout(timeout_s)
            sending.sendto(data, path)
    except OSError:
        return False
    return True

"""Orders to a parent of trials that has a socket for them, as fork servers have: one datagram each."""

from __future__ import annotations

import socket
from typing import Any

from trials.files import to_json


def send_order(path: str, order: dict[str, Any], *, timeout_s: float = 0.0) -> bool:
    """Whether it is in the server's queue, which holds a few; False also where there is no server any more."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
        sending.settimeout(timeout_s)
        try:
            sending.sendto(to_json(order), path)
        except OSError:
            return False
    return True

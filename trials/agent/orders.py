"""Orders to a fork server: one datagram each."""

from __future__ import annotations

import socket
from typing import Any

from trials.agent.files import to_json


def send_order(path: str, order: dict[str, Any]) -> bool:
    """Whether it is in the server's queue; False also where there is no server any more."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sending:
        try:
            sending.sendto(to_json(order), path)
        except OSError:
            return False
    return True

"""An agent that says what it has to say, and then does not read: as one that was stopped, or is cut off."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

from websockets.client import ClientProtocol
from websockets.protocol import State
from websockets.uri import parse_uri

from trials.wire.encoding import encode
from trials.wire.messages import Message

PATIENCE_S = 30.0


class DeafAgent:
    def __init__(self, connection: socket.socket, protocol: ClientProtocol) -> None:
        self._connection, self._protocol = connection, protocol

    def say(self, *said: Message) -> None:
        for message in said:
            self._protocol.send_text(encode(message).encode())
        self._send()

    def leave(self) -> None:
        """Say that the channel is over, and go on not reading."""
        self._protocol.send_close(1000)
        self._send()

    def _send(self) -> None:
        self._connection.sendall(b"".join(self._protocol.data_to_send()))


@contextmanager
def deaf_agent(url: str, agent_id: str, token: str) -> Iterator[DeafAgent]:
    """Connected to the service at ``url``. Little of what it is sent has room between the two."""
    protocol = ClientProtocol(parse_uri(f"{url.replace('http', 'ws')}/api/v1/agents/{agent_id}/channel"))
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.settimeout(PATIENCE_S)
        connection.connect((protocol.uri.host, protocol.uri.port))
        request = protocol.connect()
        request.headers["Authorization"] = f"Bearer {token}"
        protocol.send_request(request)
        agent = DeafAgent(connection, protocol)
        agent._send()
        while protocol.state is State.CONNECTING:
            protocol.receive_data(connection.recv(4_096))
        yield agent

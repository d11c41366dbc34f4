"""What tidies ``/tmp`` up takes the sockets of a node: they are made again; trials are forked and heard as before."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.integration.trials.fake_service import FakeService
from tests.waiting import wait_until
from trials.files import read_json
from trials.wire.sockets import data_socket_path, wake_socket_path

pytestmark = pytest.mark.usefixtures("agent")
REPORTING = "import trials\nwith trials.init() as trial:\n    trial.report_final(accuracy=0.5)\n"


def fork_sockets(home: Path) -> list[str]:
    states = [read_json(str(path)) for path in home.glob("agent/fork/*.state.json")]
    return [state["orders"] for state in states if state is not None]


def test_sockets_that_were_taken_away_are_made_again(home: Path, service: FakeService) -> None:
    service.launch(REPORTING)
    service.wait_for_exit()
    datagrams, streams = [str(wake_socket_path(home)), *fork_sockets(home)], [str(data_socket_path(home))]
    assert len(datagrams) > 1
    for path in datagrams + streams:
        Path(path).unlink()

    for kind, paths in ((socket.SOCK_DGRAM, datagrams), (socket.SOCK_STREAM, streams)):
        for path in paths:
            assert wait_until(lambda kind=kind, path=path: _is_heard(kind, path))  # type: ignore[misc]  # mypy cannot infer defaults
    service.launch(REPORTING, number=2, nonce="n2")

    assert service.wait_for_exit("n2").exit.code == 0
    assert fork_sockets(home) == datagrams[1:]


def _is_heard(kind: socket.SocketKind, path: str) -> bool:
    with socket.socket(socket.AF_UNIX, kind) as trying:
        return trying.connect_ex(path) == 0

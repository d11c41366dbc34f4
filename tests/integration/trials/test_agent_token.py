"""To whom the agent shows its token: the process that the home names as its service."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.integration.trials.fake_service import AgentProcess, FakeService
from tests.waiting import wait_until
from trials.wire.messages import Hello

LISTENS = """
import socket, sys
with socket.create_server(("127.0.0.1", 0)) as listening:
    print(listening.getsockname()[1], flush=True)
    while True:
        connection, _ = listening.accept()
        with connection:
            print(len(connection.recv(65536)), flush=True)
"""


def test_a_process_that_took_the_address_of_the_service_is_shown_no_token(home: Path) -> None:
    (home / "agent").mkdir(parents=True)
    (home / "agent" / "token").write_text("secret-token\n")
    with subprocess.Popen([sys.executable, "-c", LISTENS], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        url = f"http://127.0.0.1:{other.stdout.readline().strip()}"
        (home / "service.json").write_text(json.dumps({"url": url, "pid": os.getpid()}))
        agent = AgentProcess(home)
        try:
            assert [other.stdout.readline().strip() for _ in range(3)] == ["0"] * 3
            log = home / "agent" / "agent.log"
            wait_until(lambda: "another process than" in log.read_text())
            service = FakeService(home)
            service.wait_for(Hello)
            service.close()
        finally:
            agent.kill()
            other.kill()


@pytest.mark.parametrize("status", ["301 Moved Permanently", "307 Temporary Redirect"])
def test_a_redirect_leads_the_agent_nowhere(home: Path, status: str) -> None:
    (home / "agent").mkdir(parents=True)
    (home / "agent" / "token").write_text("secret-token\n")
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as elsewhere, socket.create_server(("127.0.0.1", 0)) as listening:
        target = f"http://127.0.0.1:{elsewhere.getsockname()[1]}"

        def redirect() -> None:
            for _ in range(2):
                connection, _ = listening.accept()
                with connection:
                    asked.append(connection.recv(65536))
                    connection.sendall(f"HTTP/1.1 {status}\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n".encode())

        thread = threading.Thread(target=redirect)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        (home / "service.json").write_text(json.dumps({"url": url, "pid": os.getpid()}))
        agent = AgentProcess(home)
        try:
            thread.join()
            elsewhere.setblocking(False)
            with pytest.raises(BlockingIOError):
                elsewhere.accept()
        finally:
            agent.kill()

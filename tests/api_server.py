"""The API of tests/api_service.py on a real socket, for the client and the command line."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import uvicorn

from tests.api_service import ADMIN_TOKEN, ApiService, an_api_service
from tests.certificates import Pair
from tests.waiting import wait_until
from tuner_service.api.app import create_app
from tuner_service.api.server import http_config
from tuner_service.service.cluster import AgentHub


@contextmanager
def serving(
    home: Path, tls: Pair | None = None, *, hub: AgentHub | None = None, ping_s: float = 20.0
) -> Iterator[ApiService]:
    """Listens while the block runs, described in ``home`` as a service describes itself.

    Agents connect to ``hub``; a ping is sent to them after ``ping_s``, and may take as long.
    """
    api = an_api_service()
    config = http_config(create_app(replace(api.services, pid=os.getpid(), hub=hub or api.hub)))
    config.port = 0
    config.ws_ping_interval = config.ws_ping_timeout = ping_s
    if tls is not None:
        config.ssl_certfile, config.ssl_keyfile = tls.cert, tls.key
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_until(lambda: server.started)
        port = server.servers[0].sockets[0].getsockname()[1]
        (home / "token").write_text(ADMIN_TOKEN)
        scheme = "http" if tls is None else "https"
        described = {"url": f"{scheme}://127.0.0.1:{port}", "pid": os.getpid(), "token_file": str(home / "token")}
        (home / "service.json").write_text(json.dumps(described))
        yield api
    finally:
        api.services.events.close()
        server.should_exit = True
        thread.join()

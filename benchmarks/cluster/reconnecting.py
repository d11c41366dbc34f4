"""Agents that all connect again at once, because their service was killed and started anew: real sockets, one machine.

The agents run nothing and say hello, as in docs/agent-protocol.md; meanwhile clients read.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import quantiles
from typing import Any
from urllib.request import Request, urlopen

from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from benchmarks.cluster.reading import Reader
from benchmarks.machine import describe
from benchmarks.service import Service, service, wait_for
from benchmarks.writing import Row, save, verdict
from trials.wire.messages import PROTOCOL_VERSION

PATIENCE_S = 300.0
RETRY_S = 0.2  # between two tries of an agent
NOTES = (
    (
        "Settled: from the first connection that a new service takes until every agent was welcomed. The service is "
        "killed with -9 and started again on the same port. Reads: one client asks for the list of experiments and "
        "that of agents in turn, from that first connection until then, each of the three in a process of its own that "
        "share the machine's cores."
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cluster.reconnecting", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("--agents", type=int, default=200)
    parser.add_argument("--restarts", type=int, default=5)
    options = parser.parse_args()
    machine = describe()
    with service() as of:
        rows = asyncio.run(measured(of, agents=options.agents, restarts=options.restarts))
    command = f"python -m benchmarks.cluster.reconnecting --agents {options.agents} --restarts {options.restarts}"
    save("reconnecting", command=command, machine=machine, rows=rows, notes=NOTES)
    return 0


async def measured(of: Service, *, agents: int, restarts: int) -> list[Row]:
    settled: list[float] = []
    reads: list[float] = []
    with _serving(of):
        tokens = await asyncio.to_thread(_tokens, of, agents)
        fleet = Fleet(of.address()["url"])
        for name, token in tokens.items():
            fleet.start(name, token)
        await fleet.all_welcomed(agents)
    for _ in range(restarts):
        fleet.welcomed.clear()
        reader = Reader(of.address()["token_file"])
        with _serving(of):
            begun = time.monotonic()
            reader.begin(of.address()["url"])
            await fleet.all_welcomed(agents)
            settled.append(time.monotonic() - begun)
            reads += await asyncio.to_thread(reader.end)
    await fleet.end()
    return [
        _row("agents", agents, ""),
        _row("all welcomed again, median, s", sorted(settled)[len(settled) // 2], "≤ 5"),
        _row("likewise, the longest, s", max(settled), "≤ 5"),
        _row("reads meanwhile", len(reads), ""),
        _row("a read meanwhile, 99 %, ms", 1e3 * quantiles(reads, n=100)[98], "≤ 200"),
    ]


def _row(what: str, value: float, target: str) -> Row:
    shown = round(value, 3)
    row = {"what": what, "measured": shown, "target": target, "target is": verdict(shown, target)}
    print(row, flush=True)
    return row


@contextmanager
def _serving(of: Service) -> Iterator[None]:
    """A service, killed at the end."""
    before = of.home / "service.json"
    before.unlink(missing_ok=True)
    port = ["--port", str(of.environment["BENCHMARK_PORT"])] if "BENCHMARK_PORT" in of.environment else []
    command = [str(Path(sys.executable).with_name("tuner")), "serve", *port]
    process = subprocess.Popen(command, env=of.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(before.exists, "the service to be there", patience_s=PATIENCE_S)
        wait_for(lambda: _answers(of), "the service to answer", patience_s=PATIENCE_S)
        of.environment["BENCHMARK_PORT"] = of.address()["url"].rpartition(":")[2]
        yield
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()


def _answers(of: Service) -> bool:
    with suppress(OSError, ValueError):
        _call(of, "/api/v1/experiments")
        return True
    return False


def _call(of: Service, path: str, body: dict[str, Any] | None = None) -> Any:
    address = of.address()
    token = Path(address["token_file"]).read_text(encoding="utf-8").strip()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = Request(address["url"] + path, data=data, headers=headers)  # it is the service's own
    with urlopen(request, timeout=PATIENCE_S) as answer:  # likewise
        return json.loads(answer.read())


def _tokens(of: Service, count: int) -> dict[str, str]:
    names = [f"node-{number}" for number in range(count)]
    return {name: _call(of, "/api/v1/tokens", {"name": name, "role": "agent"})["token"] for name in names}


class Fleet:
    """Agents without trials. ``welcomed``: those that have a connection to the service that is there now."""

    def __init__(self, url: str) -> None:
        self._url = url.replace("http", "ws", 1)
        self.welcomed: set[str] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()

    def start(self, name: str, token: str) -> None:
        self._tasks.append(asyncio.create_task(self._live(name, token)))

    async def _live(self, name: str, token: str) -> None:
        headers = {"Authorization": f"Bearer {token}"}
        while True:
            with suppress(OSError, WebSocketException, TimeoutError):
                url = f"{self._url}/api/v1/agents/{name}/channel"
                async with connect(url, additional_headers=headers, proxy=None, compression=None) as channel:
                    await channel.send(json.dumps(_hello(name)))
                    async for frame in channel:
                        found = json.loads(frame)
                        for message in found if isinstance(found, list) else [found]:
                            await self._take(channel, name, message)
            await asyncio.sleep(RETRY_S)

    async def _take(self, channel: Any, name: str, message: dict[str, Any]) -> None:
        if message["kind"] == "welcome":
            self.welcomed.add(name)
            self._changed.set()
        elif message["kind"] == "ping":
            await channel.send(json.dumps({"kind": "pong"}))

    async def all_welcomed(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while len(self.welcomed) < count:
                self._changed.clear()
                await self._changed.wait()

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _hello(name: str) -> dict[str, Any]:
    return {
        "kind": "hello",
        "version": PROTOCOL_VERSION,
        "agent_id": name,
        "boot_id": "benchmark",
        "host": name,
        "pid": 1,
        "resources": {"cpus": 2, "memory_bytes": 1 << 30},
        "attempts": [],
    }


if __name__ == "__main__":
    sys.exit(main())

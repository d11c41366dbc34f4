"""Runners as a session sees them, and the nodes of a session on this machine: a process and two pipes each."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import trials
from trials.processes.temporary import TemporaryFolder
from trials.tasks.cluster import WorkspaceType
from trials.tasks.port import Event, Order, Placed, Wanted
from trials.tasks.shares import shares_of

QUIT_TIMEOUT_S = 30.0
READ_BYTES = 1 << 16
HERE = "127.0.0.1"
FOLDER_KIND = "tuner-tasks"  # of temporary workspaces
QUIT: Order = {"do": "quit"}  # said besides closing: a fork of this process may hold the descriptor open


class Lines:
    """Orders to a runner and events of it, over descriptors that this object owns."""

    def __init__(self, events: int, orders: int) -> None:
        os.set_blocking(orders, False)
        self._events, self.orders = events, orders
        self._unsent = bytearray()
        self._rest = bytearray()
        self.is_lost = False

    def fileno(self) -> int:
        return self._events

    def order(self, order: Order) -> None:
        """Nothing where the other end is gone: ``read`` says so. Nobody waits for one that does not read: what it does
        not take now is sent by ``pass_on``."""
        self._unsent += json.dumps(order).encode() + b"\n"
        self.pass_on()

    def pass_on(self, timeout_s: float | None = 0) -> bool:
        """Send orders as far as they are taken; whether all of them were."""
        poller = select.poll()
        poller.register(self.orders, select.POLLOUT)
        while self._unsent and poller.poll(None if timeout_s is None else timeout_s * 1000):
            try:
                del self._unsent[: os.write(self.orders, self._unsent)]
            except BlockingIOError:
                continue
            except OSError:
                self._unsent.clear()
        return not self._unsent

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent) and not self.is_lost

    def read(self) -> list[dict[str, Any]] | None:
        """What the runner has said; waits for something, where orders have a descriptor of their own. None when nothing
        more can come."""
        try:
            data = os.read(self._events, READ_BYTES)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            self.is_lost = True
            return None
        end = data.rfind(b"\n")
        if end < 0:  # a part of a long line: it is looked at once, when it is whole
            self._rest += data
            return []
        whole, self._rest = bytes(self._rest) + data[:end], bytearray(data[end + 1 :])
        return [json.loads(line) for line in whole.split(b"\n")]

    def close_orders(self) -> None:
        """As ``close``, and what the runner says until its end can still be read."""
        if not self._unsent:  # a runner that does not read is not waited for
            self.order(QUIT)
        os.close(self.orders)

    def close(self) -> None:
        """The runner ends everything and itself."""
        self.close_orders()
        if self._events != self.orders:
            os.close(self._events)


def spawn_runner(
    orders: int, events: int, folder: Path | None, *, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """A runner that reads and writes these descriptors; ``folder`` holds the workspaces of its node."""
    return subprocess.Popen(
        [sys.executable, "-m", "trials.tasks.runner", str(orders), str(events), "" if folder is None else str(folder)],
        env={**environment, "PYTHONPATH": path_with_this_package(environment)},
        stdin=subprocess.DEVNULL,
        pass_fds={orders, events},
        start_new_session=True,
    )


def started_runner(folder: Path | None, *, environment: Mapping[str, str]) -> tuple[Lines, subprocess.Popen[bytes]]:
    """A runner, and what is said to it and by it. Where it cannot be started nothing is left open."""
    with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
        orders_out, orders = os.pipe2(os.O_CLOEXEC)
        theirs.callback(os.close, orders_out)
        ours.callback(os.close, orders)
        events, events_in = os.pipe2(os.O_CLOEXEC)
        theirs.callback(os.close, events_in)
        ours.callback(os.close, events)
        process = spawn_runner(orders_out, events_in, folder, environment=environment)
        ours.pop_all()
    return Lines(events, orders), process


class LocalNode:
    """A node on this machine: its runner is started with the object."""

    def __init__(self, folder: Path, *, environment: Mapping[str, str]) -> None:
        """``environment``: all variables that its processes begin with."""
        self.lines, self._process = started_runner(folder, environment=environment)

    def read(self) -> Sequence[Event]:
        """``lost`` when the runner ended by itself."""
        found = self.lines.read()
        return [{"event": "lost", "why": f"it ended with {self._process.wait()}"}] if found is None else found

    def close(self) -> None:
        """Nothing of the node runs when this returns."""
        self.lines.close()
        try:
            self._process.wait(QUIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # its children die with it
            self._process.wait()


class LocalNodes:
    """All nodes here: names, each with cores and devices of its own where it asks for some."""

    def __init__(
        self,
        folder: Path | None,
        *,
        environment: Mapping[str, str],
        labels: Mapping[str, str],
        workspace: Path | None = None,
        logs: Path | None = None,
    ) -> None:
        """``workspace``: of the task that runs the group; else each node has one of its own below ``folder``, or
        below a temporary folder, which is removed. ``logs``: where what each rank prints is kept besides."""
        self._folder, self._environment, self._labels = folder, dict(environment), labels
        self._workspace, self._logs = workspace, logs
        self._own: TemporaryFolder | None = None
        self._nodes: dict[str, LocalNode] = {}

    def check(self, wanted: Sequence[Wanted]) -> None:
        shares_of({one.name: one.properties for one in wanted}, self._labels)

    def start(self, wanted: Sequence[Wanted], workspace_type: WorkspaceType) -> None:
        shares = shares_of({one.name: one.properties for one in wanted}, self._labels)
        self._own = None if self._folder is not None else TemporaryFolder(FOLDER_KIND)
        for one in wanted:
            share = shares[one.name]
            placed = Placed(
                workspace_type=workspace_type,
                workspace=self._workspace,
                cpus=share.cpus,
                environment={**self._environment, **share.environment},
                logs=self._logs,
            )
            folder = self._folder if self._own is None else self._own.path
            assert folder is not None
            self._nodes[one.name] = LocalNode(folder, environment=os.environ)
            self.order(one.name, placed.order(one))

    def address(self, node: str) -> str:  # noqa: ARG002  all are here
        return HERE

    def order(self, node: str, order: Order) -> None:
        self._nodes[node].lines.order(order)

    def events(self, timeout_s: float | None) -> list[tuple[str, Event]]:
        return heard({name: (node.lines, node.read) for name, node in self._nodes.items()}, timeout_s)

    def close(self, result: Mapping[str, Any]) -> None:  # noqa: ARG002  nobody else waits for it
        with contextlib.ExitStack() as closing:  # also those after one whose end somebody does not wait for
            if self._own is not None:
                closing.callback(self._own.remove)
            closing.callback(self._nodes.clear)
            for node in reversed(self._nodes.values()):
                closing.callback(node.close)


def heard(nodes: Mapping[str, tuple[Lines, Any]], timeout_s: float | None) -> list[tuple[str, Event]]:
    """As ``Nodes.events`` has it, of nodes with a descriptor and a function that reads it when there is something."""
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    poller = select.poll()
    living = {lines.fileno(): (name, read) for name, (lines, read) in nodes.items() if not lines.is_lost}
    sending = {lines.orders: lines for lines, _ in nodes.values() if lines.has_unsent}
    for descriptor in {*living, *sending}:
        wanted = (select.POLLIN if descriptor in living else 0) | (select.POLLOUT if descriptor in sending else 0)
        poller.register(descriptor, wanted)
    found: list[tuple[str, Event]] = []
    while living and not found:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        ready = poller.poll(None if left is None else left * 1000)
        if not ready:
            break
        for descriptor, events in ready:
            if descriptor in sending and sending[descriptor].pass_on():
                del sending[descriptor]
                if descriptor in living:
                    poller.modify(descriptor, select.POLLIN)
                else:
                    poller.unregister(descriptor)
            if descriptor in living and events != select.POLLOUT:
                name, read = living[descriptor]
                found += [(name, event) for event in read()]
    return found


def path_with_this_package(environment: Mapping[str, str]) -> str:
    """PYTHONPATH of ``environment`` on which this package is found before all else."""
    root = str(Path(trials.__file__).parents[1])
    paths = [root, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    return os.pathsep.join(dict.fromkeys(paths))

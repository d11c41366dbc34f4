"""The nodes of a group that runs over the nodes of a trial.

The same program runs on every node of the trial. That of the first one runs the session; those of the others host the
group's nodes that are placed with them, and hear in the end how the group ended. A node that is hosted elsewhere is the
same runner, and its descriptors are one connection.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from trials.processes.temporary import TemporaryFolder
from trials.tasks.cluster import WorkspaceType
from trials.tasks.meeting import LeaderLostError, Meeting, Place, here, join
from trials.tasks.nodes import FOLDER_KIND, QUIT_TIMEOUT_S, READ_BYTES, Lines, LocalNode, heard, spawn_runner
from trials.tasks.port import Event, Order, Placed, Wanted
from trials.tasks.running import NodeStartError
from trials.tasks.shares import Machine, divided, placed_on

MEMBER_LOST = "member lost"


class _Remote:
    """A node that another process hosts."""

    def __init__(self, connection: socket.socket, member: int) -> None:
        self.lines, self.member = _owned(connection), member

    def read(self) -> Sequence[Event]:
        found = self.lines.read()
        return [{"event": "lost", "why": "its connection ended"}] if found is None else found

    def close(self) -> None:
        """Nothing of the node runs when this returns, unless it is lost: its runner closes its end as the last thing it
        does."""
        with socket.socket(fileno=os.dup(self.lines.fileno())) as connection:
            try:
                connection.shutdown(socket.SHUT_WR)
                connection.settimeout(QUIT_TIMEOUT_S)
                while not self.lines.is_lost and connection.recv(READ_BYTES):
                    pass
            except OSError:
                pass  # it is gone, or its machine is cut off: then it ends by itself
        self.lines.close()


def _owned(connection: socket.socket) -> Lines:
    descriptor = connection.detach()
    return Lines(descriptor, descriptor)


class TrialNodes:
    """Of the first node of a trial, for one group."""

    def __init__(
        self,
        place: Place,
        folder: Path | None,
        *,
        environment: Mapping[str, str],
        machine: Machine,
        timeout_s: float,
    ) -> None:
        """``environment``: further variables of all tasks. ``timeout_s``: what all have to come and to host."""
        self._place, self._folder, self._machine = place, folder, machine
        self._deadline = time.monotonic() + timeout_s
        self._timeout_s = timeout_s
        self._meeting: Meeting | None = None
        self._members: dict[int, tuple[Lines, str, Machine]] = {}  # by node of the trial: its channel, address, machine
        self._on: dict[str, int] = {}
        self._further = dict(environment)
        self._environment: dict[str, Mapping[str, str]] = {}
        self._cpus: dict[str, Sequence[int]] = {}
        self._nodes: dict[str, LocalNode | _Remote] = {}
        self._own: TemporaryFolder | None = None

    def check(self, wanted: Sequence[Wanted]) -> None:
        self._wait_for_members()
        machines = divided([self._machine, *(self._members[node][2] for node in range(1, self._place.nodes))])
        properties = {one.name: one.properties for one in wanted}
        self._on = placed_on(properties, machines)
        for place, machine in enumerate(machines):
            shares = machine.shares({name: properties[name] for name, on in self._on.items() if on == place})
            self._cpus |= {name: share.cpus for name, share in shares.items()}
            self._environment |= {name: {**self._further, **share.environment} for name, share in shares.items()}

    def start(self, wanted: Sequence[Wanted], workspace_type: WorkspaceType) -> None:
        for node, (lines, _, _) in self._members.items():
            hosted = [name for name, on in self._on.items() if on == node]
            if hosted:
                lines.order({"do": "host", "nodes": hosted})
        self._own = None if self._folder is not None else TemporaryFolder(FOLDER_KIND)
        for name, on in self._on.items():
            if on == 0:
                folder = self._folder if self._own is None else self._own.path
                assert folder is not None
                self._nodes[name] = LocalNode(folder, environment=here())
        while len(self._nodes) < len(self._on):
            connection, hello = self._next()
            name, member = str(hello.get("name")), hello.get("node")
            if self._on.get(name) == member and name not in self._nodes:
                self._nodes[name] = _Remote(connection, int(hello["node"]))
            else:
                connection.close()  # of a group before
        for one in wanted:
            placed = Placed(
                workspace_type=workspace_type, cpus=self._cpus[one.name], environment=self._environment[one.name]
            )
            self.order(one.name, placed.order(one))

    def address(self, node: str) -> str:
        on = self._on[node]
        return self._members[on][1] if on else self._place.address

    def order(self, node: str, order: Order) -> None:
        self._nodes[node].lines.order(order)

    def events(self, timeout_s: float | None) -> list[tuple[str, Event]]:
        listened: dict[str, tuple[Lines, Any]] = {name: (node.lines, node.read) for name, node in self._nodes.items()}
        for number, (lines, _, _) in self._members.items():
            listened[f"/{number}"] = lines, partial(_said_by_member, lines)  # no node of a group has such a name
        found: list[tuple[str, Event]] = []
        for name, event in heard(listened, timeout_s):
            found += [(name, event)] if not name.startswith("/") else self._lose(int(name[1:]))
        return found

    def _lose(self, member: int) -> list[tuple[str, Event]]:
        """A process that hosts nodes is gone, or its machine is cut off: so are those that it hosts."""
        lost: list[tuple[str, Event]] = []
        for name, node in self._nodes.items():
            if isinstance(node, _Remote) and node.member == member and not node.lines.is_lost:
                node.lines.is_lost = True
                lost.append((name, {"event": "lost", "why": f"node {member} of the trial is gone"}))
        return lost

    def close(self, result: Mapping[str, Any]) -> None:
        with ExitStack() as closing:  # also those after one whose end somebody does not wait for
            closing.callback(self._close_all, result)
            for node in reversed(self._nodes.values()):
                closing.callback(node.close)

    def _close_all(self, result: Mapping[str, Any]) -> None:
        """But nodes, which are closed."""
        self._nodes.clear()
        with ExitStack() as closing:
            if self._own is not None:
                closing.callback(self._own.remove)
            if self._meeting is not None:
                closing.callback(self._meeting.close)
                self._meeting = None
            closing.callback(self._members.clear)
            for lines, _, _ in reversed(self._members.values()):
                closing.callback(lines.close)
                closing.callback(lines.order, {"do": "over", **result})

    # ── those who come ──────────────────────────────────────────────────────────────────────────
    def _wait_for_members(self) -> None:
        try:
            self._meeting = self._meeting or Meeting(self._place)
        except OSError as error:
            raise NodeStartError(f"no node begins: port {self._place.port} cannot be listened on: {error}") from error
        while missing := set(range(1, self._place.nodes)) - set(self._members):
            connection, hello = self._next(", ".join(f"node {node} of the trial" for node in sorted(missing)))
            node = hello.get("node")
            if hello.get("name") is not None or node not in missing:
                connection.close()  # of a group before
                continue
            machine = Machine(**{**hello["machine"], "name": f"node {node} of the trial"})
            address = str(connection.getpeername()[0])
            self._members[node] = _owned(connection), address, machine

    def _next(self, missing: str = "the processes of a node") -> tuple[socket.socket, dict[str, Any]]:
        assert self._meeting is not None
        watched = [lines.fileno() for lines, _, _ in self._members.values()]
        found = self._meeting.next(self._deadline, watched=watched)
        if found is None and time.monotonic() < self._deadline:
            raise NodeStartError("no node begins: a node of the trial ended before the group began")
        if found is None:
            trouble = self._meeting.trouble
            why = f": connections could not be taken ({trouble})" if trouble else ""
            raise NodeStartError(f"no node begins: {missing} did not come within {self._timeout_s:g} s{why}")
        return found


def _said_by_member(lines: Lines) -> Sequence[Event]:
    """It says nothing as long as it is there."""
    return [{"event": MEMBER_LOST}] if lines.read() is None else []


# ── on the other nodes of the trial ─────────────────────────────────────────────────────────────
def host(place: Place, folder: Path | None, *, machine: Machine, timeout_s: float) -> dict[str, Any]:
    """Host what the first node places here until the group has ended: its ``outputs``, or its ``failure``.

    LeaderLostError where the first node is not heard of any more; then nothing of the group runs here either.
    """
    facts = {name: value for name, value in asdict(machine).items() if name != "name"}
    runners: list[subprocess.Popen[bytes]] = []
    with (
        join(place, {"node": place.node, "machine": facts}, timeout_s=timeout_s) as channel,
        channel.makefile("rb") as lines,
    ):
        try:
            for line in lines:
                order = json.loads(line)
                if order["do"] == "over":
                    return dict(order)
                for name in order["nodes"]:
                    with join(place, {"node": place.node, "name": name}, timeout_s=timeout_s) as connection:
                        runners.append(_runner(connection.fileno(), folder))
            raise LeaderLostError("node 0 of the trial is gone, and the group with it")
        except OSError as error:
            raise LeaderLostError(f"node 0 of the trial is gone, and the group with it: {error}") from error
        finally:
            _wait_for(runners)


def _runner(descriptor: int, folder: Path | None) -> subprocess.Popen[bytes]:
    try:
        return spawn_runner(descriptor, descriptor, folder, environment=here())
    except OSError as error:
        raise NodeStartError(f"no node begins: no process can be started on this node of the trial: {error}") from error


def _wait_for(runners: Sequence[subprocess.Popen[bytes]]) -> None:
    """Their connections have ended, and so do they."""
    deadline = time.monotonic() + QUIT_TIMEOUT_S
    for runner in runners:
        try:
            runner.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            runner.kill()  # its children die with it
            runner.wait()

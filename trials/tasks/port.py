"""What a session needs of the nodes that its group runs on: the port of task groups.

A node is a runner (``trials.tasks.runner``), a process on the machine of the node that reads orders and writes events,
one line of JSON each. A session decides and never touches a node's disk or processes; whoever provides nodes starts
runners and moves lines. So the same program does the same over pipes, sockets or a cluster's own calls.

| order | what the runner does | events |
|---|---|---|
| ``prepare``: node, workspace_type, workspace, cpus, environment, ports, logs | makes the workspace (or takes the one that is named), keeps to these cores, keeps so many ports free; ``logs`` is a folder where the output of each rank is kept besides, or null | ``ready``: ports; ``refused``: why |
| ``run``: job, instances, plan, interval_ms | starts the instances at once: each a ``command`` with an ``environment``, or the ``plan`` (base64) where it has no command; with ``interval_ms`` the plan is run again and again | ``ended``: job, failure (None, or instance, why, code), once: at the first failure, or when all have ended well |
| ``end``: job | lets a repeated job run once more, for the last time | ``ended`` |
| ``stop``: grace_s | SIGTERM, and SIGKILL after the grace, to everything on the node; more may be run afterwards | ``stopped`` |
| ``quit`` | as when the orders close | |
| ``outputs``: names | reads what the node's tasks gave | ``output``: name, kind, data (base64), for each that is there; then ``given`` |

When the session's end of the orders closes, however that came, a runner ends everything that runs below it, removes a
PRIVATE workspace, and ends. ``lost`` (why) is said by whoever provides the node, once, when nothing more can come.
"""  # noqa: E501  # a table

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from trials.tasks.cluster import WorkspaceType

Order = Mapping[str, Any]
Event = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A node that a group needs: what it asks for (cpus, gpus, memory, labels), and how many ports for its worlds."""

    name: str
    properties: Mapping[str, Any] = field(default_factory=dict)
    ports: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """What a node is told to be ready with. ``workspace``: an existing one, of the task that runs this group.

    ``logs``: a folder of the node for what each rank prints, which goes where the output of all goes besides.
    """

    workspace_type: WorkspaceType = WorkspaceType.PRIVATE
    workspace: Path | None = None
    cpus: Sequence[int] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    logs: Path | None = None

    def order(self, wanted: Wanted) -> dict[str, Any]:
        return {
            "do": "prepare",
            "node": wanted.name,
            "workspace_type": self.workspace_type.value,
            "workspace": None if self.workspace is None else str(self.workspace),
            "cpus": list(self.cpus),
            "environment": dict(self.environment),
            "ports": wanted.ports,
            "logs": None if self.logs is None else str(self.logs),
        }


class Nodes(Protocol):
    """The nodes of one run of one group.

    A session calls ``check``, then ``start``, then waits until every node has said ``ready``; then it orders and hears
    until it calls ``close``, which it does whatever happened before.
    """

    def check(self, wanted: Sequence[Wanted]) -> None:
        """ValueError that names the node and what nobody can give it. Begins nothing, and may be called again."""

    def start(self, wanted: Sequence[Wanted], workspace_type: WorkspaceType) -> None:
        """Begin to make all ready. OSError or NodeStartError where one cannot be."""

    def address(self, node: str) -> str:
        """Where the other nodes of the group reach it. Known once the node is ready."""

    def order(self, node: str, order: Order) -> None:
        """In order, at least as long as the node is not lost; nothing where it is. Does not wait for what it does."""

    def events(self, timeout_s: float | None) -> list[tuple[str, Event]]:
        """What nodes have said since, by node, each in its order; at least one, unless the time is over.

        A node that is lost says ``lost`` once, after all else.
        """

    def close(self, result: Mapping[str, Any]) -> None:
        """Nothing of the group runs on any node when this returns, and no node can be reached that might be lost.

        ``result``: how the group ended, for nodes on which the same program waits for it: ``outputs``, one after the
        other as they were asked for, or ``failure`` (error, text; of a task that failed also what, node, why, code).
        """

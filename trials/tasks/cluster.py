"""Where tasks run: nodes by name, and the contexts that say which one is meant. After Caffe2's Cluster and Node."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar, Token
from enum import StrEnum
from types import TracebackType
from typing import Any, Self

from trials.arguments import plain_text

DEFAULT_NODE = "local"
_CLUSTER: ContextVar[Cluster | None] = ContextVar("cluster", default=None)
_NODE: ContextVar[Node | None] = ContextVar("node", default=None)


class WorkspaceType(StrEnum):
    """What becomes of a node's workspace when its group has ended."""

    PRIVATE = "private"  # made for the group and removed after it
    GLOBAL = "global"  # one for each node of a session's folder, kept for later groups


class Cluster:
    """Keeps the names of the nodes that are used in it, in order, and what is said of them.

    Without one, the nodes of a group are those its tasks name.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, dict[str, Any]] = {}
        self._tokens: list[Token[Cluster | None]] = []

    @staticmethod
    def current() -> Cluster | None:
        return _CLUSTER.get()

    def nodes(self) -> list[str]:
        """Each once, in the order they were named."""
        return list(self._nodes)

    def properties(self) -> Mapping[str, Mapping[str, Any]]:
        """By node; a property that was named again has its newest value."""
        return self._nodes

    def add(self, node: Node) -> None:
        self._nodes.setdefault(node.name, {}).update(node.properties)

    def __repr__(self) -> str:
        return f"Cluster({', '.join(self._nodes)})"

    def __enter__(self) -> Self:
        self._tokens.append(_CLUSTER.set(self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        _CLUSTER.reset(self._tokens.pop())


class Node:
    """Tasks made inside run on the node of this name; only the name counts, so it may be entered again and again.

    What it asks for holds for all its processes together: ``cpus`` and ``gpus`` are cores and devices of its own,
    ``memory`` (bytes) is what must be there, ``labels`` are what the session must say of itself. A property that is
    given again has its newest value. ValueError for one that no node can have; a session that cannot give it refuses
    the group before anything begins.
    """

    def __init__(
        self,
        name: str = DEFAULT_NODE,
        *,
        cpus: int | None = None,
        gpus: int | None = None,
        memory: int | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        plain_text(name, what="a node's name")
        if not name or "/" in name or name in {".", ".."}:
            raise ValueError(f"a node's name is text without '/', not {name!r}")
        if labels is not None and not isinstance(labels, Mapping):
            raise TypeError(f"node {name!r}: labels are a mapping of texts, as {{'zone': 'b'}}, not {labels!r:.60}")
        for what, value, least in (("cpus", cpus, 1), ("gpus", gpus, 0), ("memory", memory, 1)):
            if value is not None and (type(value) is not int or value < least):
                raise ValueError(f"node {name!r}: {what} is a whole number of at least {least}, not {value!r}")
        given = {"cpus": cpus, "gpus": gpus, "memory": memory, "labels": None if labels is None else dict(labels)}
        self.name = name
        self.properties: dict[str, Any] = {what: value for what, value in given.items() if value is not None}
        self._tokens: list[Token[Node | None]] = []
        cluster = Cluster.current()
        if cluster is not None:
            cluster.add(self)

    @staticmethod
    def current() -> Node | None:
        return _NODE.get()

    def __repr__(self) -> str:
        return f"Node({', '.join([repr(self.name), *(f'{key}={value!r}' for key, value in self.properties.items())])})"

    def __enter__(self) -> Self:
        self._tokens.append(_NODE.set(self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        _NODE.reset(self._tokens.pop())

"""What the bridge asks of a cluster: Ray is asked by ``driver``, and tests have one that is neither Ray nor processes.

Groups are placement groups, nodes the actors in them. Standard library only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

GONE = frozenset({"REMOVED"})  # states of placement groups that are no more


class NodeAwayError(Exception):
    """It does not answer now, and may answer later."""


class NodeGoneError(Exception):
    """It has ended, or will not come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewNode:
    """``group``: the full name of the placement group, of which it has the bundle at ``place``."""

    agent_id: str
    group: str
    place: int
    members: Sequence[str]
    shape: Mapping[str, int]
    environment: Mapping[str, Any]


class Cluster(Protocol):
    """Whatever fails beside what is said here raises: then this bridge ends, and the next one looks at what exists."""

    def groups(self) -> Iterable[Mapping[str, Any]]:
        """The tables of all placement groups, those of others and removed ones among them."""

    def make_group(self, name: str, bundles: Sequence[Mapping[str, float]], *, is_apart: bool) -> Any:
        """Asked for when it returns, whether there is room or not."""

    def remove_group(self, name: str) -> None:
        """With the nodes in it. Harmless where there is none."""

    def make_node(self, node: NewNode, group: Any) -> Any:
        """Known by its name when it returns; it comes when its group has a place."""

    def find_node(self, agent_id: str) -> Any | None:
        """None where there never was one, or it has ended."""

    def end_node(self, node: Any) -> None:
        """At once. Harmless where it has ended."""

    def ask(self, node: Any, what: str, *arguments: Any) -> Any:
        """A question, or an order, to a method of that node; returns at once, with what stands for the answer."""

    def has_answered(self, question: Any) -> bool: ...

    def answer(self, question: Any) -> Any:
        """Once it has answered. NodeAwayError or NodeGoneError where the answer is that there is none."""

    def facts(self) -> dict[str, Any]:
        """``address`` of this machine as the cluster knows it, and ``resources``; called at each step."""

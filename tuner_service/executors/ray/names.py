"""What is called how on the cluster: by these names a bridge finds again what an earlier one made. Standard library."""

from __future__ import annotations

import secrets

from tuner_service.service.node_tokens import PREFIX

POOL_SIGN = "@"


def new_agent_id() -> str:
    """Never given twice, so that a node that was lost is not taken for the one that replaces it."""
    return f"{PREFIX}{secrets.token_hex(6)}"


def namespace_of(lineage: str) -> str:
    """A copied database has another lineage, and leaves the nodes of the first alone."""
    return f"tuner-{lineage}"


def group_of(lineage: str, name: str, pool: str = "") -> str:
    """Of the placement group with that name of its own: that of its agent, or what the names of several begin with."""
    return f"{namespace_of(lineage)}-{name}{POOL_SIGN}{pool}".removesuffix(POOL_SIGN)


def name_in(lineage: str, group: str) -> tuple[str, str] | None:
    """The own name of a placement group, and its pool; None for one that is not of this database."""
    before = f"{namespace_of(lineage)}-"
    name, _, pool = group.removeprefix(before).partition(POOL_SIGN)
    return (name, pool) if group.startswith(before) and name.startswith(PREFIX) else None


def agents_of(name: str, size: int) -> list[str]:
    """Of a placement group of so many nodes, in the order of its bundles."""
    return [name] if size == 1 else [f"{name}-{place}" for place in range(size)]

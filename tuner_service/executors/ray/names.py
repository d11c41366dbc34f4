"""What is called how on the cluster: by these names a bridge finds again what an earlier one made. Standard library."""

from __future__ import annotations

import secrets

from tuner_service.service.node_tokens import PREFIX


def new_agent_id() -> str:
    """Never given twice, so that a node that was lost is not taken for the one that replaces it."""
    return f"{PREFIX}{secrets.token_hex(6)}"


def namespace_of(lineage: str) -> str:
    """A copied database has another lineage, and leaves the nodes of the first alone."""
    return f"tuner-{lineage}"


def group_of(lineage: str, agent_id: str) -> str:
    return f"{namespace_of(lineage)}-{agent_id}"


def agent_of(lineage: str, group: str) -> str | None:
    """Whose placement group it is; None for one that is not of this database."""
    before = f"{namespace_of(lineage)}-"
    agent_id = group.removeprefix(before)
    return agent_id if group.startswith(before) and agent_id.startswith(PREFIX) else None

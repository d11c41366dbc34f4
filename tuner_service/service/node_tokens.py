"""Tokens of agents that an executor brings: each is made from the name of its agent, and good for that one only.

They are in no row: such names are made up for one node and never used again, and whoever has the key can make the token
anew. Standard library only: the bridge to a cluster makes them, too.
"""

from __future__ import annotations

import hashlib
import hmac

PREFIX = "ray-"  # of the names of such agents; as tuner_service.domain.resources has it
_PURPOSE = b"tokens of provided nodes"


def key_of(home_secret: str) -> str:
    """From the agent's token of the home folder, which opens more than such a token."""
    return hmac.new(home_secret.encode(), _PURPOSE, hashlib.sha256).hexdigest()


def secret_of(key: str, agent_id: str) -> str:
    mac = hmac.new(key.encode(), agent_id.encode("utf-8", "surrogateescape"), hashlib.sha256)
    return f"{agent_id}.{mac.hexdigest()}"


def agent_of(key: str, secret: str) -> str | None:
    """Whose token it is; None for one that this key has not made."""
    agent_id = secret.rpartition(".")[0]
    if not agent_id.startswith(PREFIX):
        return None
    made = secret_of(key, agent_id).encode("utf-8", "surrogateescape")
    return agent_id if hmac.compare_digest(made, secret.encode("utf-8", "surrogateescape")) else None

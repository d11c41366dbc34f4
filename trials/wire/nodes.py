"""What an agent says of its machine, beside what trials may use of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import ClassVar

LABELS_LIMIT = 64  # of one node
LABEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,62}=[A-Za-z0-9_.:/-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """``home_id``: made up once for the agent's home; two agents with one name and two homes are two agents.
    ``process_id``: made up once for the agent's process; one home, where it was not copied, has one at a time.

    ``trouble``: why no trial can be started there now, and what to do about it; empty where all is well.
    """

    home_id: str = ""
    process_id: str = ""
    is_joined: bool = False  # it shares no folder with the service: all bytes go over the network
    labels: dict[str, str] = field(default_factory=dict)
    user: str = ""  # name and number of the user that trials run as
    python: str = ""  # its version
    clock: float = 0.0  # its time of day when this was sent, in seconds since 1970; 0: not told
    free_bytes: int = -1  # on the file system of its home; -1: not told
    trouble: str = ""
    drained: bool = False  # a person wants nothing started there; kept in its home


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeChanged:
    """What is true of the node from now on."""

    kind: ClassVar[str] = "node"
    node: NodeFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """Keep in the home that nothing is to be started on the node, or no more; answered by NodeChanged."""

    kind: ClassVar[str] = "drain"
    on: bool

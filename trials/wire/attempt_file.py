"""What stands in the file by which an attempt is prepared, and found again by every later agent."""

from __future__ import annotations

from dataclasses import dataclass

from trials.wire.attempt import AttemptKey
from trials.wire.files import FILES_FORMAT
from trials.wire.launch import LaunchSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """What the parent of the trial has to know of its node."""

    python: str  # the agent's own interpreter
    wake: str  # path of the datagram socket on which the agent is woken
    paths: tuple[str, ...]  # put on the trial's path: the package that it imports, and nothing else of the agent's
    umask: int | None  # of the trial; None: the parent's own
    secrets: str  # folder of the node's secrets
    has_devices: bool  # then a trial that was given none must not see any
    boot_id: str  # of the machine when the attempt was prepared


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFile:
    """FILE_ATTEMPT: the Launch, and what concerns this node; ``format`` is that of the whole folder.

    The parents of trials read it as the plain object that it is, because they import little.
    """

    format: int = FILES_FORMAT
    key: AttemptKey
    nonce: str
    lineage: str
    spec: LaunchSpec
    local: NodeSettings | None = None  # nobody but the parent of the trial needs it

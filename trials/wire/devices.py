"""What an agent tells of its node's devices."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDevice:
    """A GPU, or a MIG instance, as its agent judges it now."""

    uuid: str
    name: str
    memory_bytes: int
    occupied: bool = False  # another program uses it, or its memory did not come back
    lost: str = ""  # why it cannot be used any more


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicesChanged:
    """All devices of the node, because one of them has changed; or ``peaks`` have.

    ``peaks``: by nonce, the most GPU memory in bytes that an attempt was seen to use, of those that hold devices.
    """

    kind: ClassVar[str] = "devices"
    devices: tuple[NodeDevice, ...]
    peaks: dict[str, int] = field(default_factory=dict)

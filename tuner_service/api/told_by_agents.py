"""What an agent tells, as the commands of the dispatcher have it."""

from __future__ import annotations

from collections.abc import Sequence

from trials.wire.devices import NodeDevice
from trials.wire.limits import DEVICES_LIMIT
from trials.wire.messages import Prepared
from trials.wire.plain import ProtocolError
from tuner_service.dispatcher.commands import PartPrepared
from tuner_service.domain.resources import Device

ADDRESS_LIMIT = 255  # characters of where a node is reached
PORTS = 1 << 16


def part_prepared(told: Prepared, *, agent_id: str, at: float) -> PartPrepared:
    """ProtocolError where nobody could meet there."""
    if not 0 <= told.port < PORTS or max(len(told.address), len(told.host), len(told.world_key)) > ADDRESS_LIMIT:
        raise ProtocolError(f"port {told.port} of {told.address[:ADDRESS_LIMIT]!r} is none")
    return PartPrepared(
        at=at,
        agent_id=agent_id,
        key=told.key,
        nonce=told.nonce,
        address=told.address,
        host=told.host,
        port=told.port,
        world_key=told.world_key,
    )


def devices_in(told: Sequence[NodeDevice]) -> tuple[Device, ...]:
    """Those that are believed, ``DEVICES_LIMIT`` at most."""
    return tuple(
        Device(uuid=d.uuid, name=d.name, memory_bytes=d.memory_bytes, occupied=d.occupied, lost=d.lost)
        for d in told[:DEVICES_LIMIT]
    )

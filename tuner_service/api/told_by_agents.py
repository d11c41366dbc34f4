"""What an agent tells, as the commands of the dispatcher have it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trials.wire.devices import NodeDevice
from trials.wire.limits import DEVICES_LIMIT
from trials.wire.messages import NodeResources, Prepared
from trials.wire.nodes import NodeFacts
from trials.wire.plain import ProtocolError
from tuner_service.dispatcher.commands import PartPrepared
from tuner_service.domain.resources import Device

ADDRESS_LIMIT = 255  # characters of where a node is reached
PORTS = 1 << 16
CPUS_LIMIT = 1 << 20  # of a node
BYTES_LIMIT = 1 << 62  # likewise; a database holds no number of twice as many
CLOCK_LIMIT_S = 1e12  # a clock that says more is not believed


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


def require_possible(resources: NodeResources) -> None:
    """ProtocolError for what no machine has: whoever places trials, of all experiments, reckons with these numbers."""
    if not 0 <= resources.cpus <= CPUS_LIMIT:
        raise ProtocolError(f"resources.cpus: {CPUS_LIMIT} at most, not {_shown(resources.cpus)}")
    _require_bytes("resources.memory_bytes", [resources.memory_bytes])
    devices_in(resources.devices)


def require_peaks(told: Iterable[int]) -> None:
    """ProtocolError for what no attempt uses."""
    _require_bytes("peaks", told)


def _require_bytes(what: str, told: Iterable[int]) -> None:
    for count in told:
        if not 0 <= count <= BYTES_LIMIT:
            raise ProtocolError(f"{what}: 0 to {BYTES_LIMIT} bytes, not {_shown(count)}")


def _shown(number: int) -> str:
    return f"{number}" if abs(number) < 1 << 64 else "a number beyond 64 bits"


def clock_of(node: NodeFacts) -> float | None:
    """The node's time of day; None where it says none."""
    return node.clock if node.clock and abs(node.clock) <= CLOCK_LIMIT_S else None


def devices_in(told: Sequence[NodeDevice]) -> tuple[Device, ...]:
    """Those that are believed, ``DEVICES_LIMIT`` at most. ProtocolError for a size that none has."""
    _require_bytes("memory_bytes of a device", (d.memory_bytes for d in told[:DEVICES_LIMIT]))
    return tuple(
        Device(uuid=d.uuid, name=d.name, memory_bytes=d.memory_bytes, occupied=d.occupied, lost=d.lost)
        for d in told[:DEVICES_LIMIT]
    )

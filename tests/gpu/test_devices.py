"""The driver itself."""

from __future__ import annotations

from trials.agent.devices import Devices, open_source


def test_the_driver_lists_its_devices_by_uuid() -> None:
    source = open_source({})
    try:
        readings = source.read()
    finally:
        source.close()

    assert readings
    assert all(reading.uuid.startswith(("GPU-", "MIG-")) and reading.memory_bytes for reading in readings)


def test_a_device_that_nobody_uses_is_free() -> None:
    source = open_source({})
    devices = Devices(source)
    try:
        states = devices.states(own_pids=(), given=())
        free = [state.uuid for state in states if not state.occupied and not state.lost]
        assert devices.are_free(free, own_pids=())
    finally:
        devices.close()

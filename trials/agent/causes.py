"""How an attempt ends that could not be started."""

from __future__ import annotations

from trials.agent.devices.node import DeviceUnavailableError
from trials.agent.launching import CannotBeGivenError, CannotLaunchError
from trials.agent.parts import PortTakenError
from trials.wire.records import ExitCause

# By what was raised; the first that fits.
CAUSES: dict[type[Exception], ExitCause] = {
    PortTakenError: ExitCause.NOT_READY,
    DeviceUnavailableError: ExitCause.DEVICE_UNAVAILABLE,
    CannotBeGivenError: ExitCause.ASSETS_MISSING,
    CannotLaunchError: ExitCause.LAUNCH_FAILED,
}

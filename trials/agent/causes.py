"""How an attempt ends that could not be started."""

from __future__ import annotations

import logging
from typing import NamedTuple

from trials.agent.devices.node import DeviceUnavailableError
from trials.agent.launching import CannotBeGivenError, CannotLaunchError, NoRoomError
from trials.agent.moving.blobs import ConnectionLostError
from trials.agent.parts import PortTakenError
from trials.files import may_pass
from trials.wire.records import ExitCause

# By what was raised; the first that fits.
_CAUSES: dict[type[Exception], ExitCause] = {
    PortTakenError: ExitCause.NOT_READY,
    DeviceUnavailableError: ExitCause.DEVICE_UNAVAILABLE,
    CannotBeGivenError: ExitCause.ASSETS_MISSING,
    CannotLaunchError: ExitCause.LAUNCH_FAILED,
}
logger = logging.getLogger(__name__)


class End(NamedTuple):
    cause: ExitCause
    tail: str


def end_without_start(error: Exception, *, nonce: str) -> End | None:
    """Of the attempt whose launch has met ``error``. None where nothing has ended: the service repeats the launch while
    nobody says that it started, and when it is back."""
    if isinstance(error, ConnectionLostError):
        return None
    for kind, cause in _CAUSES.items():
        if isinstance(error, kind):
            logger.warning("not_launched", extra={"nonce": nonce, "cause": cause.value, "error": error})
            return End(cause, str(error))
    if isinstance(error, NoRoomError) or may_pass(error):
        logger.error("no_room", extra={"nonce": nonce, "error": error})
        return None
    # Not foreseen. Left alone, the launch would be ordered again for ever, and nobody would know why.
    logger.error("launch_failed", extra={"nonce": nonce}, exc_info=error)
    return End(ExitCause.LAUNCH_FAILED, f"the agent could not prepare the attempt: {error!r}")

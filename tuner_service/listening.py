"""Where the service listens, and who may hear what is said there."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import socket
import sys
from collections.abc import Iterator

from tuner_service.config import Settings
from tuner_service.domain.errors import Fault, InputError, StorageError
from tuner_service.setting_values import MAX_PORT

BACKLOG = 2_048  # connections that wait to be taken
logger = logging.getLogger(__name__)


def guard_the_door(settings: Settings) -> None:
    """InputError where tokens would travel beyond this machine as they are, unless somebody said that they may."""
    if settings.tls_cert or is_of_this_machine(settings.host):
        return
    if not settings.insecure_network:
        message = (
            f"{settings.host} is not of this machine alone, and without TLS others read the tokens and all that is "
            "said: give --tls-cert and --tls-key, or say --insecure-network where the network is trusted"
        )
        raise InputError([Fault(pointer="/host", message=message)])
    logger.warning("listening_unencrypted", extra={"host": settings.host})
    print(  # noqa: T201  # said aloud, whatever the log is
        f"WARNING: speaking unencrypted http on {settings.host}: whoever sees the network reads the tokens",
        file=sys.stderr,
        flush=True,
    )


def is_of_this_machine(host: str) -> bool:
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@contextlib.contextmanager
def listening_socket(settings: Settings) -> Iterator[socket.socket]:
    """The address to serve on; StorageError with what to do when it cannot be had."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        port = settings.port or last_port(settings)
        try:
            try:
                listening.bind((settings.host, port))
            except OSError:
                if settings.port or not port:
                    raise
                listening.bind((settings.host, 0))  # another program has the last one now
        except OSError as exc:
            raise StorageError(
                f"cannot listen on {settings.host}:{settings.port}: {exc.strerror}; choose another with --port"
            ) from exc
        listening.listen(BACKLOG)
        yield listening


def url_of(listening: socket.socket, *, is_tls: bool) -> str:
    host, port = listening.getsockname()[:2]
    scheme = "https" if is_tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def last_port(settings: Settings) -> int:
    """The port that was picked the last time: pages that are open go on after a restart. 0 where none was."""
    try:
        port = int(settings.port_file.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0
    return port if 0 < port <= MAX_PORT else 0

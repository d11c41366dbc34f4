"""Connections to a service, and by what one is known that speaks TLS. Standard library only, imported when needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from trials.wire.certificates import known_by
from tuner_service.config import Settings
from tuner_service.domain.errors import Fault, InputError

if TYPE_CHECKING:
    import socket
    import ssl
    from http.client import HTTPConnection


class NotTrustedError(OSError):
    """The certificate is not one of a service that is known; the text says what to do."""


def context_of(settings: Settings) -> Callable[[], ssl.SSLContext]:
    """Makes what knows a service elsewhere; InputError where the file of the setting `ca` holds no certificates."""

    def make() -> ssl.SSLContext:
        import ssl

        try:
            return known_by(settings.ca or None)
        except OSError as exc:
            why = exc.strerror if exc.errno and not isinstance(exc, ssl.SSLError) else "it is no PEM file of them"
            message = f"{settings.origins['ca']}: {settings.ca} holds no certificates: {why}"
            raise InputError([Fault(pointer="/ca", message=message)]) from exc

    return make


def context_of_home() -> ssl.SSLContext:
    """For a connection whose other end the kernel has said to be the service of the home.

    That proves more than a certificate does, which may be for another name than the address of this machine.
    """
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def system_context() -> ssl.SSLContext:
    """For who names no certificates: those that the system trusts."""
    import ssl

    return ssl.create_default_context()


def opened(
    url: str,
    *,
    timeout_s: float,
    admit: Callable[[socket.socket], None] | None,
    tls: Callable[[], ssl.SSLContext],
) -> HTTPConnection:
    """A connection on which nothing was sent but what TLS begins with, and that only once ``admit`` took it."""
    from http import client

    parts = urlsplit(url)
    is_secure = parts.scheme == "https"
    port = parts.port or (client.HTTPS_PORT if is_secure else client.HTTP_PORT)
    connection = client.HTTPConnection(parts.hostname or "", port, timeout=timeout_s)
    connection.auto_open = 0  # it would connect again by itself, and ask nobody
    connection.connect()
    try:
        if admit is not None:
            admit(connection.sock)
        if is_secure:
            connection.sock = _secured(connection.sock, tls(), host=parts.hostname or "")
    except BaseException:
        connection.close()
        raise
    return connection


def was_closed(connection: socket.socket) -> bool:
    """Whether the other side has ended it, or says something that it was not asked for."""
    import select

    looking = select.poll()
    looking.register(connection, select.POLLIN)
    return bool(looking.poll(0))


def _secured(connection: socket.socket, context: ssl.SSLContext, *, host: str) -> socket.socket:
    """``connection`` with TLS over it; NotTrustedError where who is there cannot show that they are ``host``."""
    import ssl

    try:
        return context.wrap_socket(connection, server_hostname=host)
    except ssl.SSLCertVerificationError as exc:
        raise NotTrustedError(
            f"the certificate that is shown there is not trusted ({exc.verify_message}), so nothing was sent; the "
            "setting `ca` (--ca FILE, TUNER_CA) names the certificates of its CA"
        ) from exc

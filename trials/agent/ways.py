"""The way from an agent to its service: by the file of its home, or to an address that it was joined to.

A service of this machine is found by ``service.json``, and the kernel says that the process which wrote it listens
there. An agent that was joined has an address, a token of its own, and the certificates that it trusts. One of a node
that others hold is joined, too, by a file in which they write where the service is now, and what it shows there.
"""

from __future__ import annotations

import codecs
import os
import socket
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from trials.agent.home import Home
from trials.files import read_record
from trials.stores import opened_file
from trials.wire.addresses import PORTS, address_told, is_loopback, parts_of
from trials.wire.certificates import known_by
from trials.wire.peers import require_peer
from trials.wire.plain import ProtocolError

OPEN_TIMEOUT_S = 5.0
TOKEN_FILE_BYTES = 4_096  # a longer one holds something else
_HOW_TO_MAKE_ONE = "`tuner token add NAME --role agent --file F`, where the service is, writes one"


class TokenFileError(OSError):
    """The file holds no token that could be sent; the text says which file, and what is wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAddress:
    """Where the service listens, and as which process; ``stamp`` differs whenever its file was written anew."""

    url: str
    pid: int = 0
    stamp: tuple[int, int] = (0, 0)


class Way(Protocol):
    """Every call but ``opened`` returns at once."""

    is_joined: bool
    is_told: bool  # where the service is, as soon as it is elsewhere

    def address(self) -> ServiceAddress | None:
        """Where the service is now; None where nobody says it."""

    def token(self) -> str:
        """To be sent there and nowhere else; read anew each time, so that it can be exchanged. OSError."""

    def tls(self, address: ServiceAddress) -> ssl.SSLContext | None:
        """None: in plain text."""

    def opened(self, address: ServiceAddress) -> socket.socket:
        """A connection to the service and nobody else. OSError. Blocking."""

    def failed(self) -> None:
        """The service was not at the last ``address``."""

    def sent_on(self, told: str | None) -> bool:
        """A standby at the last ``address`` names the active service. Whether that is the next ``address``."""

    def is_coming(self) -> bool:
        """Whether a service is about to be there, though nobody may say yet where."""


class HomeWay:
    """To the service of the agent's own home."""

    is_joined, is_told = False, True

    def __init__(self, home: Home, *, starter: int | None = None) -> None:
        """``starter``: the process of the service that has started this one."""
        self._home, self._starter = home, starter
        self._token_file = home.agent / "token"

    def address(self) -> ServiceAddress | None:
        return service_address(self._home)

    def token(self) -> str:
        return token_in(self._token_file)

    def tls(self, address: ServiceAddress) -> ssl.SSLContext | None:
        """What a service of this machine says stays in it; the kernel has said who it is."""
        if urlsplit(address.url).scheme != "https":
            return None
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context

    def opened(self, address: ServiceAddress) -> socket.socket:
        return connected(address, uid=self._token_file.stat().st_uid)

    def failed(self) -> None:
        """There is no other one."""

    def sent_on(self, told: str | None) -> bool:
        """The home names its service, and nobody else does."""
        del told
        return False

    def is_coming(self) -> bool:
        """While its starter lives: this process has another parent from then on."""
        return os.getppid() == self._starter


class ToldWay(HomeWay):
    """To a service elsewhere that ``service.json`` names, and whose certificate is in it where it speaks TLS."""

    is_joined = True

    def address(self) -> ServiceAddress | None:
        """Of its process nothing can be told here."""
        found = service_address(self._home)
        return None if found is None else ServiceAddress(url=found.url)

    def tls(self, address: ServiceAddress) -> ssl.SSLContext | None:
        """Who shows that very certificate is the service, by whatever name or number it is called."""
        if urlsplit(address.url).scheme != "https":
            return None
        told = read_record(str(self._home.service_file)).get("certificate")
        if not told:
            return ssl.create_default_context()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # it need be nobody else's, and vouches for no other
        context.load_verify_locations(cadata=str(told))
        return context

    def opened(self, address: ServiceAddress) -> socket.socket:
        return _connected_to(address)


@dataclass(slots=True)
class JoinedWay:
    """To a service elsewhere, at the first of ``urls`` that answers, or at the one that a standby there names."""

    urls: tuple[str, ...]
    token_file: Path
    ca: Path | None = None
    is_joined: bool = True
    is_told: bool = False
    _at: int = field(default=0, init=False)
    _told: str | None = field(default=None, init=False)  # by the one of ``urls`` whose turn it is

    def address(self) -> ServiceAddress | None:
        return ServiceAddress(url=self._told or self.urls[self._at % len(self.urls)])

    def token(self) -> str:
        return token_in(self.token_file)

    def tls(self, address: ServiceAddress) -> ssl.SSLContext | None:
        if urlsplit(address.url).scheme != "https":
            return None
        return known_by(None if self.ca is None else str(self.ca))

    def opened(self, address: ServiceAddress) -> socket.socket:
        return _connected_to(address)

    def failed(self) -> None:
        if self._told is None:
            self._at += 1
        self._told = None  # who named it may be the active one now

    def sent_on(self, told: str | None) -> bool:
        if self._told is not None:  # of two that send an agent to each other, neither is
            return False
        self._told = address_told(told, by=self.urls[self._at % len(self.urls)])
        return self._told is not None

    def is_coming(self) -> bool:
        """Nobody says so."""
        return False


def token_in(path: Path) -> str:
    """What stands in the file, without spaces, line ends and the mark of UTF-8 around it. TokenFileError."""
    try:
        with opened_file(path) as file:
            data = file.read(TOKEN_FILE_BYTES + 1)
    except OSError as error:
        raise TokenFileError(f"the token file {path} cannot be read: {error.strerror}") from error
    token = data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace").strip()
    if not token:
        raise TokenFileError(f"the token file {path} is empty: {_HOW_TO_MAKE_ONE}")
    if len(data) > TOKEN_FILE_BYTES or not (token.isascii() and token.isprintable()) or " " in token:
        raise TokenFileError(
            f"the token file {path} holds no token, which is one word of letters, digits, - and _ in plain text: "
            f"{_HOW_TO_MAKE_ONE}"
        )
    return token


def _connected_to(address: ServiceAddress) -> socket.socket:
    parts = parts_of(address.url)
    return socket.create_connection((parts.hostname or "", parts.port or PORTS[parts.scheme]), OPEN_TIMEOUT_S)


def join_fault(urls: tuple[str, ...], *, may_be_plain: bool) -> str | None:
    """Why an agent may not be joined to these addresses; None if it may."""
    for url in urls:
        try:
            parts = parts_of(url)
        except ProtocolError as error:
            return str(error)
        if parts.scheme == "http" and not may_be_plain and not is_loopback(parts.hostname or ""):
            return (
                f"{url} is not encrypted: whoever is on the way would read the agent's token and all code; let the "
                "service use TLS (tuner serve --tls-cert --tls-key) and name https://, or say --insecure-network"
            )
    return None


def connected(address: ServiceAddress, *, uid: int) -> socket.socket:
    """A connection whose other end is the service that the address names, of the user ``uid``; OSError without one.

    Whoever else has the address by now would be sent the agent's token, and would say what runs here. What is sent
    later goes through this connection only: a redirect is not followed.
    """
    parts = urlsplit(address.url)
    if parts.scheme not in PORTS or parts.hostname is None:
        raise ProtocolError(f"a service of this machine has an address that begins with http://, not {address.url!r}")
    connection = socket.create_connection((parts.hostname, parts.port or PORTS[parts.scheme]), OPEN_TIMEOUT_S)
    try:
        require_peer(connection, pid=address.pid, uid=uid, timeout_s=OPEN_TIMEOUT_S)
    except BaseException:
        connection.close()
        raise
    return connection


def service_address(home: Home) -> ServiceAddress | None:
    """What service.json says; None when there is none or it is being written."""
    try:
        stat = home.service_file.stat()
        data = read_record(str(home.service_file))  # whatever has been put there, a pipe say: it is not waited for
        return ServiceAddress(url=str(data["url"]), pid=int(data["pid"]), stamp=(stat.st_mtime_ns, stat.st_ino))
    except (OSError, ValueError, LookupError, TypeError):
        return None

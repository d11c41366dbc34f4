"""Addresses of services: what one looks like, and whether one that a standby names may be gone to.

Whoever asks a standby sends a token with it, and sends the same token to the active service that the answer names. So
that names nothing that reads more than the standby could: no address in plain text where the standby's was encrypted or
of the same machine, and no other process of the asker's own machine.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import SplitResult, urlsplit

from trials.wire.plain import ProtocolError

ACTIVE_HEADER = "Tuner-Active"  # of an answer that a standby did not carry out: the address of who would
PORTS = {"http": 80, "https": 443}


def parts_of(url: str) -> SplitResult:
    """ProtocolError where it is no address of a service."""
    try:
        parts = urlsplit(url)
        is_whole = parts.scheme in PORTS and bool(parts.hostname) and parts.port != 0 and "@" not in parts.netloc
    except ValueError:
        is_whole = False
    if not is_whole or parts.path.strip("/") or parts.query or parts.fragment:
        raise ProtocolError(f"the address of a service is http://HOST:PORT or https://HOST:PORT, not {url!r:.200}")
    return parts


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def address_told(told: str | None, *, by: str) -> str | None:
    """The address that the standby at ``by`` names, without a slash at its end; None where it is not gone to."""
    try:
        there, here = parts_of(told or ""), parts_of(by)
    except ProtocolError:
        return None
    is_local, was_local = is_loopback(there.hostname or ""), is_loopback(here.hostname or "")
    if is_local and not was_local:
        return None
    if there.scheme == "http" and not is_local and (here.scheme == "https" or was_local):
        return None
    url = f"{there.scheme}://{there.netloc}"
    return None if url == f"{here.scheme}://{here.netloc}" else url

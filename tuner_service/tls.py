"""TLS: what the service shows, and that it is read again when its files change."""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass, field
from pathlib import Path

from tuner_service.config import Settings
from tuner_service.domain.errors import Fault, InputError

OPEN_TO_OTHERS = 0o077
Stamp = tuple[int, int, int]

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class Certificate:
    """A certificate and its key, in files that may be replaced while the service runs.

    ``context`` serves those that were read last and that belong together: a connection has what was there at its
    beginning.
    """

    cert: Path
    key: Path
    context: ssl.SSLContext = field(default_factory=lambda: ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    _read: tuple[Stamp, Stamp] | None = None
    _told: object = None  # what of which files could not be served

    def read(self) -> None:
        """InputError, naming the file and what is wrong with it, where they cannot be served."""
        stamps = self._stamps()
        faults = [
            Fault(pointer=pointer, message=f"{path}: {problem}")
            for pointer, path in (("/tls_cert", self.cert), ("/tls_key", self.key))
            if (problem := _unreadable(path)) is not None
        ]
        if faults:
            raise InputError(faults)
        # First into a context of its own: one that takes the certificate and then not the key would serve neither.
        for context in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), self.context):
            try:
                context.load_cert_chain(self.cert, self.key, _no_password)
            except (OSError, ValueError) as exc:
                raise InputError([_fault(self.cert, self.key, exc)]) from exc
        if self.key.stat().st_mode & OPEN_TO_OTHERS:
            logger.warning("tls_key_open_to_others", extra={"file": str(self.key)})
        self._read = stamps

    def look(self) -> None:
        """Read them again if they are others than those read. What cannot be served is said, once, and left out.

        It is tried again each time: a key that may not be read yet, or a machine without a descriptor to spare, leaves
        no trace in the files when that has passed.
        """
        stamps = self._stamps()
        if stamps == self._read:
            return
        try:
            self.read()
        except (InputError, OSError) as exc:
            if self._told != (stamps, str(exc)):
                self._told = stamps, str(exc)
                logger.error("certificate_not_read", extra={"error": str(exc)})
        else:
            logger.info("certificate_read_again", extra={"file": str(self.cert)})

    def _stamps(self) -> tuple[Stamp, Stamp]:
        return _stamp(self.cert), _stamp(self.key)


def certificate_of(settings: Settings) -> Certificate | None:
    """What the service shows; None where it speaks plain HTTP. InputError where it cannot be served."""
    if not (settings.tls_cert or settings.tls_key):
        return None
    for pointer, given, other in (("/tls_key", settings.tls_key, "cert"), ("/tls_cert", settings.tls_cert, "key")):
        if not given:
            message = f"is missing: --tls-{other} alone is not enough, TLS needs the certificate and its key"
            raise InputError([Fault(pointer=pointer, message=message)])
    certificate = Certificate(cert=Path(settings.tls_cert), key=Path(settings.tls_key))
    certificate.read()
    return certificate


def _no_password() -> str:
    """In place of a question on the terminal, for which nobody waits there."""
    return ""


def _unreadable(path: Path) -> str | None:
    try:
        with path.open("rb") as stream:
            return None if b"-----BEGIN " in stream.read() else "is no PEM file: nothing in it begins with -----BEGIN"
    except OSError as exc:
        return f"cannot be read: {exc.strerror}"


def _fault(cert: Path, key: Path, exc: OSError | ValueError) -> Fault:
    reason = getattr(exc, "reason", None) or ""
    if reason == "KEY_VALUES_MISMATCH":
        return Fault(pointer="/tls_key", message=f"{key} is not the key of the certificate {cert}")
    if "PRIVATE KEY" in key.read_text(errors="replace") and b"ENCRYPTED" in key.read_bytes():
        message = f"{key} is encrypted, and nobody is there to type its password; `openssl pkey` writes it without one"
        return Fault(pointer="/tls_key", message=message)
    message = f"{cert} and {key} are not a certificate and its key that can be served: {_words(exc)}"
    return Fault(pointer="/tls_cert", message=message)


def _words(exc: OSError | ValueError) -> str:
    reason = getattr(exc, "reason", None)
    return str(reason or getattr(exc, "strerror", None) or exc).replace("_", " ").lower()


def _stamp(path: Path) -> Stamp:
    try:
        found = path.stat()
    except OSError:
        return (0, 0, 0)
    return found.st_mtime_ns, found.st_ino, found.st_size

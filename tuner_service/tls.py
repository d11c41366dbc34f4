"""TLS: what the service shows, that it is read again when its files change, and that people hear of its end in time."""

from __future__ import annotations

import logging
import re
import ssl
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from tuner_service.config import Settings
from tuner_service.domain.errors import Fault, InputError

OPEN_TO_OTHERS = 0o077
DAY_S = 86_400.0
WARNED_S = 21 * DAY_S  # before its end; most are renewed by a program 30 days before
WARNED_SHARE = 0.25  # of the time for which it is good, where that is less: some are good for six days
SAID_EVERY_S = DAY_S
_PEM = re.compile("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_SHORT_TIME, _VERSION = 0x17, 0xA0  # kinds of elements
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
    _good: tuple[float, float] | None = None  # from when until when; None where that cannot be told
    _said_at: float | None = None  # that it ends soon

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
        self._read, self._good, self._said_at = stamps, good_of(self.cert), None

    def warning(self, now: float) -> str:
        """For people, where it ends soon or is not good now: why, and what to do. "" where all is well."""
        if self._good is None:
            return ""
        first, last = self._good
        if now < first:
            when = f"is good only from {_moment(first)} on; is the clock of this machine right?"
            return f"the TLS certificate {self.cert} {when}"
        if last - now > min(WARNED_S, WARNED_SHARE * (last - first)):
            return ""
        if now >= last:
            when = f"has ended at {_moment(last)}: who checks it does not connect any more"
        else:
            when = f"ends in {_days(last - now)} ({_moment(last)}); who checks it does not connect then"
        return (
            f"the TLS certificate {self.cert} {when}; put the renewed one there and its key to {self.key}: they are "
            "read within a second, without a restart"
        )

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

    def say(self, now: float) -> None:
        """In the log, once a day, that it ends soon."""
        # A clock that was set back is no reason to be silent for as long.
        if self._said_at is not None and 0 <= now - self._said_at < SAID_EVERY_S:
            return
        if warning := self.warning(now):
            self._said_at = now
            logger.warning("certificate_ends", extra={"file": str(self.cert), "why": warning})

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


def good_of(file: Path) -> tuple[float, float] | None:
    """From when until when the first certificate of a PEM file is good, which is the one that is shown.

    None where it does not say so. Those after it, of its CA, last longer, or are not needed by most who check.
    """
    try:
        found = _PEM.search(file.read_text(encoding="ascii", errors="replace"))
        return None if found is None else _good_of(ssl.PEM_cert_to_DER_cert(found[0]))
    except (OSError, ValueError, IndexError, OverflowError):
        return None


def _good_of(data: bytes) -> tuple[float, float]:
    """Of a certificate in DER (RFC 5280, 4.1)."""
    _, at, _ = _element(data, 0)
    _, at, _ = _element(data, at)
    kind, _, end = _element(data, at)
    if kind == _VERSION:
        at = end
    for _ in ("number", "algorithm", "issuer"):
        at = _element(data, at)[2]
    _, at, _ = _element(data, at)
    times = []
    for _ in ("first", "last"):
        kind, begin, at = _element(data, at)
        form = "%y%m%d%H%M%SZ" if kind == _SHORT_TIME else "%Y%m%d%H%M%SZ"
        times.append(datetime.strptime(data[begin:at].decode("ascii"), form).replace(tzinfo=UTC).timestamp())
    return times[0], times[1]


def _element(data: bytes, at: int) -> tuple[int, int, int]:
    """The kind of the element that begins at ``at``, and where its content begins and ends."""
    kind, size, at = data[at], data[at + 1], at + 2
    if size & 0x80:
        digits = size & 0x7F
        size, at = int.from_bytes(data[at : at + digits], "big"), at + digits
    return kind, at, at + size


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _days(seconds: float) -> str:
    count = int(seconds // DAY_S)
    return f"{count} days" if count > 1 else "a day" if count else f"{int(seconds // 3_600)} h"


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

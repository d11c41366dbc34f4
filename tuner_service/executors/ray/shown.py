"""What a node on another machine knows a service by that speaks TLS."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

_FIRST = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


class ShownCertificate:
    """The service's own, of the file that it is read from, and the one before, which may be shown for a moment still.

    Nodes are told of it over Ray, as of their tokens: it need not be for the address by which Ray knows this machine.
    """

    def __init__(self, file: str) -> None:
        self._file = file
        self._stamp: object = None
        self._known: tuple[str, ...] = ()

    def text(self) -> str:
        """As PEM; "" where the service speaks plain HTTP. Looks at the file, and reads it where it is another one."""
        if self._file:
            with suppress(OSError):  # what was read before holds
                found = Path(self._file).stat()
                stamp = found.st_mtime_ns, found.st_ino, found.st_size
                if stamp != self._stamp:
                    self._read()
                    self._stamp = stamp
        return "\n".join(self._known)

    def _read(self) -> None:
        first = _FIRST.search(Path(self._file).read_bytes())
        newest = "" if first is None else first[0].decode("ascii", "replace")
        if newest and newest not in self._known[-1:]:
            self._known = (*self._known[-1:], newest)

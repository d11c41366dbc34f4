"""Certificates for tests: a CA, and what it signs, made by openssl."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")


@dataclass(frozen=True, kw_only=True)
class Pair:
    """The files of a certificate and of its key."""

    cert: Path
    key: Path


def openssl(*arguments: str | Path) -> None:
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, check=False, timeout=180)
    assert done.returncode == 0, done.stderr


def a_ca(folder: Path, name: str = "ca") -> Pair:
    pair = Pair(cert=folder / f"{name}.pem", key=folder / f"{name}.key")
    files = ("-keyout", pair.key, "-out", pair.cert)
    openssl("req", "-x509", *CURVE, "-nodes", "-days", "2", "-subj", f"/CN={name}", *files)
    return pair


def a_certificate(
    ca: Pair, *, folder: Path, name: str = "service", names: str = "IP:127.0.0.1,DNS:localhost", days: int = 2
) -> Pair:
    """Signed by ``ca`` for ``names``."""
    pair = Pair(cert=folder / f"{name}.pem", key=folder / f"{name}.key")
    signed = ("-CA", ca.cert, "-CAkey", ca.key, "-keyout", pair.key, "-out", pair.cert)
    wanted = ("-days", str(days), "-subj", f"/CN={name}", "-addext", f"subjectAltName={names}")
    openssl("req", "-x509", *CURVE, "-nodes", *wanted, "-addext", "basicConstraints=critical,CA:FALSE", *signed)
    pair.key.chmod(0o600)
    return pair

"""Where the agent of a home folder listens: for datagrams that wake it, and for requests for shared data."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

DATA_SOCKET_SUFFIX = ".data"
RUNTIME_FOLDER_BYTES = 70  # of XDG_RUNTIME_DIR; in a longer one no socket could have its name
WAKE_CONNECT = b"connect"  # datagram of the service to the agent: there is a service to connect to


def wake_socket_path(home: Path) -> Path:
    """Where the agent of ``home``, which makes the folder, listens for datagrams.

    Not in ``home``, because the path of such a socket has 107 bytes at most; nor in a runtime folder that is as long.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    fits = 0 < len(os.fsencode(runtime)) <= RUNTIME_FOLDER_BYTES
    folder = Path(runtime) / "tuner" if fits else Path("/tmp") / f"tuner-{os.getuid()}"  # noqa: S108  made 0700
    return folder / f"{hashlib.sha256(os.fsencode(home.resolve())).hexdigest()[:24]}.sock"


def data_socket_path(home: Path) -> Path:
    """Where the agent of ``home`` is asked for a shared data server; beside the wake socket, with another suffix."""
    return wake_socket_path(home).with_suffix(DATA_SOCKET_SUFFIX)

"""Where the agent of a home folder listens: for datagrams that wake it, and for requests for shared data."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

DATA_SOCKET_SUFFIX = ".data"
TEMPORARY = "/tmp"  # noqa: S108  the folder in it is made 0700
RUNTIME_FOLDER_BYTES = 70  # of XDG_RUNTIME_DIR; in a longer one no socket could have its name
WAKE_CONNECT = b"connect"  # datagram of the service to the agent: there is a service to connect to


def wake_socket_path(home: Path) -> Path:
    """Where the agent of ``home``, which makes the folder, listens for datagrams.

    Not in ``home``, because the path of such a socket has 107 bytes at most. Below ``/tmp``, because
    ``XDG_RUNTIME_DIR`` is removed when its user logs out, and a search goes on; there only where it has to be.
    """
    own = Path(TEMPORARY) / f"tuner-{os.getuid()}"
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    fits = 0 < len(os.fsencode(runtime)) <= RUNTIME_FOLDER_BYTES
    folder = Path(runtime) / "tuner" if fits and not _may_be_ours(own) else own
    return folder / f"{hashlib.sha256(os.fsencode(home.resolve())).hexdigest()[:24]}.sock"


def _may_be_ours(folder: Path) -> bool:
    """Whether it is this user's, or can be made."""
    try:
        status = folder.lstat()
    except OSError:
        return os.access(folder.parent, os.W_OK)
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()


def data_socket_path(home: Path) -> Path:
    """Where the agent of ``home`` is asked for a shared data server; beside the wake socket, with another suffix."""
    return wake_socket_path(home).with_suffix(DATA_SOCKET_SUFFIX)

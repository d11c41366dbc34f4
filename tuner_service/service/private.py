"""The home folder is its owner's alone. What an earlier version left open is closed when a service starts."""

from __future__ import annotations

import logging
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from tuner_service.config import Settings

PRIVATE_UMASK = 0o077
FOLDER_MODE = 0o700
OPEN_TO_OTHERS = 0o077
# What a service and its agent make in a home. A home may also be a folder of a person's, named by its database; what
# else lies there is none of our business.
OWN_FOLDERS = ("agent", "assets", "attempts", "checkpoints", "nodes", "ray", "secrets", "workers")
OWN_FILES = (
    "asset-owner", "notified.json", "notify.toml", "open.html", "port", "service.json", "service.lock", "service.log",
    "token", "token-read-only",
)  # fmt: skip
OWN_PREFIXES = ("tuner.db", "token.", "token-read-only.", "service.")  # with the files beside a database, and drafts

logger = logging.getLogger(__name__)


def make_private(home: Path) -> int:
    """Nobody but its owner reads what is the service's in ``home``; how many entries were open. Logged.

    The folder itself is closed where nothing but the service's own lies in it. What belongs to another user stays.
    """
    home.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    closed = 0
    own = [entry for entry in os.scandir(home) if _is_own(entry.name)]
    if len(own) == len(list(home.iterdir())):
        closed += _close(home)
    for entry in own:
        if entry.is_symlink():
            continue
        was_open = _close(Path(entry.path))
        closed += was_open
        # Nobody gets below a closed folder: only one that was open has to be looked through.
        if was_open and entry.is_dir(follow_symlinks=False):
            closed += sum(map(_close, _below(Path(entry.path))))
    if closed:
        logger.warning("home_closed_to_others", extra={"home": str(home), "entries": closed})
    return closed


def _is_own(name: str) -> bool:
    return name in OWN_FOLDERS or name in OWN_FILES or name.startswith(OWN_PREFIXES)


def _below(folder: Path) -> Iterator[Path]:
    waiting = [str(folder)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                found = list(entries)
        except OSError:
            continue
        yield from (Path(entry.path) for entry in found)
        waiting += [entry.path for entry in found if entry.is_dir(follow_symlinks=False)]


def _close(path: Path) -> bool:
    """Whether it was open. Links stay as they are, and what is gone or somebody else's, too."""
    try:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode) or not mode & OPEN_TO_OTHERS:
            return False
        path.chmod(stat.S_IMODE(mode) & ~OPEN_TO_OTHERS)
    except OSError as error:
        logger.debug("path_not_closed_to_others", extra={"path": str(path), "error": str(error)})
        return False
    return True


def own_log(settings: Settings) -> list[Path]:
    """The log of the home folder where this process writes to it; another file or pipe is its owner's."""
    try:
        is_own = os.path.samestat(os.fstat(sys.stderr.fileno()), settings.log_file.stat())
    except (OSError, ValueError, AttributeError):
        return []
    return [settings.log_file] if is_own else []

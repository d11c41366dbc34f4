"""The home folder is its owner's alone. What an earlier version left open is closed when a service starts."""

from __future__ import annotations

import logging
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from trials.wire.homes import is_foreign
from tuner_service.config import Settings
from tuner_service.domain.errors import StorageError

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
# Of these a person may have one there, too. What in them is the service's goes by names of its own.
SHARED_FOLDERS = {
    "assets": re.compile("files|assets|leases|collecting|owners|incoming"),
    "checkpoints": re.compile(r"\.?[0-9a-f]{64}(\..*)?"),
}
USED_HOME = {"service.lock", "token"}  # are in every home in which a service was
OWN_PREFIXES = ("tuner.db", "token.", "token-read-only.", "service.")  # with the files beside a database, and drafts

logger = logging.getLogger(__name__)


def make_private(home: Path) -> int:
    """Nobody but its owner reads what is the service's in ``home``; how many entries were open. Logged.

    The folder itself is closed where nothing but the service's own lies in it. What belongs to another user stays.
    """
    home.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    closed = _close_own(home, _is_own, shared=SHARED_FOLDERS)
    if closed:
        logger.warning("home_closed_to_others", extra={"home": str(home), "entries": closed})
    return closed


def require_own(home: Path) -> None:
    """StorageError where the folder in which the agent works, and removes things, is somebody else's."""
    agent = home / "agent"
    if is_foreign(agent):
        raise StorageError(
            f"{home} is no home for a service: its folder {agent} holds files that are no agent's. They stay as they "
            "are; name another folder (--home, TUNER_HOME), which need not be there yet"
        )


def looks_like_a_home(folder: Path) -> bool:
    """Whether it was one before, or nothing lies there but what a home has.

    In a home, a service and its agent remove what is not needed any more: the folder of a project is none, which may
    have ``agent/`` or ``checkpoints/`` of its own.
    """
    try:
        names = {entry.name for entry in os.scandir(folder)}
    except OSError:  # whoever uses it says why it cannot be
        return True
    return names >= USED_HOME or all(map(_is_own, names))


def _close_own(folder: Path, is_own: Callable[[str], object], *, shared: Mapping[str, re.Pattern[str]]) -> int:
    """How many entries were open; ``folder`` itself is closed where nothing else lies in it.

    ``shared``: the names of folders of which only what matches is its own.
    """
    closed = 0
    found = list(os.scandir(folder))
    own = [entry for entry in found if is_own(entry.name)]
    if len(own) == len(found):
        closed += _close(folder)
    for entry in own:
        if entry.is_symlink():
            continue
        if entry.name in shared and entry.is_dir() and entry.stat().st_mode & OPEN_TO_OTHERS:
            with suppress(PermissionError):  # it is somebody else's
                closed += _close_own(Path(entry.path), shared[entry.name].fullmatch, shared={})
            continue
        was_open = _close(Path(entry.path))
        closed += was_open
        # Nobody gets below a closed folder: only one that was open has to be looked through.
        if was_open and entry.is_dir(follow_symlinks=False):
            closed += sum(map(_close, _below(Path(entry.path))))
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

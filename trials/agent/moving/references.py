"""Data that stays where it is (``mode: reference``): whether it is what it was when the experiment first ran here.

The agent looks, as the user that its trials run as; the service opens no path that somebody gave. What is compared are
sizes, times and inodes, which is what can be had of large data at every launch.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from trials.agent.home import plain_name
from trials.agent.moving.node_cache import AssetUnusableError, lines_of
from trials.files import create_once, write_atomically

FILES_LIMIT = 1_000_000  # of one reference; beyond, it is refused
DAMAGE_NAMED = 5


def check_reference(folder: Path, experiment_id: str, path: str) -> None:
    """AssetUnusableError where nothing is at ``path``, or something else than at the first launch on this node."""
    found = _listing(path)
    name = hashlib.sha256(path.encode(errors="surrogateescape")).hexdigest()[:32]
    place = folder / plain_name(experiment_id, what="experiment id") / name
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if create_once(str(place), found.encode()):
        return
    before = place.read_text(encoding="utf-8")
    if not before.endswith("\n"):  # a power loss has taken what stood in it
        write_atomically(str(place), found.encode(), durable=True)
    elif before != found:
        raise AssetUnusableError(
            f"{path} has changed since the experiment first ran here: {_difference(before, found)}"
        )


def _listing(path: str) -> str:
    """A line for each file, and one for the place itself."""
    try:
        status = os.stat(path)  # noqa: PTH116  a text, as it was given
        lines = [f"{status.st_size} {status.st_mtime_ns} {status.st_ino} '.'"]
        if os.path.isdir(path):  # noqa: PTH112
            lines = []
            for line in lines_of(Path(path)):
                lines.append(line)
                if len(lines) > FILES_LIMIT:
                    raise AssetUnusableError(f"{path} has more than {FILES_LIMIT} files; pack them together")
    except OSError as error:
        raise AssetUnusableError(f"{path}, which is used where it is, cannot be read: {error.strerror}") from error
    return "\n".join(lines) + "\n"


def _difference(before: str, found: str) -> str:
    was, now = _by_path(before), _by_path(found)
    changes = [f"{path} is gone" for path in sorted(was.keys() - now.keys())]
    changes += [f"{path} is new" for path in sorted(now.keys() - was.keys())]
    changes += [f"{path} was changed" for path in sorted(was.keys() & now.keys()) if was[path] != now[path]]
    more = f" and {len(changes) - DAMAGE_NAMED} more" if len(changes) > DAMAGE_NAMED else ""
    return ", ".join(changes[:DAMAGE_NAMED]) + more


def _by_path(listing: str) -> dict[str, str]:
    return {line.split(" ", 3)[3]: line for line in listing.splitlines()}

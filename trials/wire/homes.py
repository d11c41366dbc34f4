"""How the folder in which an agent works is told from one of somebody else's."""

from __future__ import annotations

from pathlib import Path

# Of which the folder of every agent has one, but where its first start was cut off: there are empty folders then.
MARKS = frozenset({"agent.log", "agent.out", "boot", "home-id", "id", "live", "lock", "token"})


def is_foreign(agent: Path) -> bool:
    """Whether files lie there and nothing that an agent has: as in a project with an ``agent/`` of its own.

    An agent removes from ``code``, ``assets`` and others in its folder what it needs no more.
    """
    try:
        found = list(agent.iterdir())
        return MARKS.isdisjoint(path.name for path in found) and not all(map(_is_empty_folder, found))
    except OSError:  # whoever uses it says why it cannot be used
        return False


def _is_empty_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink() and not any(path.iterdir())

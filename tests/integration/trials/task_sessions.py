"""The sessions that one suite of task groups is run on: a function for each, of a folder for notes and workspaces.

A new kind of session is one more entry: `test_tasks_session.py` and `test_tasks_nested.py` run on all of them, and
`trials/tasks/port.py` says what its nodes have to do.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from trials.tasks import GroupSession, LocalSession

ROOT = Path(__file__).parents[3]
GRACE_S = 0.3


def local(folder: Path) -> GroupSession:
    return LocalSession(folder / "workspaces", environment=variables(folder), grace_s=GRACE_S)


def variables(folder: Path) -> dict[str, str]:
    return {"NOTES": str(folder), "PYTHONPATH": str(ROOT)}


SESSIONS: dict[str, Callable[[Path], GroupSession]] = {"local": local}

"""What became of each change that was tried, in a file: a run that was broken off goes on where it was."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tests.mutants.sampled import Sampled

NOTICED, BY_TIME, UNNOTICED, UNRUN = "noticed", "by its time, twice", "nobody noticed", "no test runs it"
EXCHANGED = "nobody noticed the exchanged code"
KILLED = {NOTICED, BY_TIME}


class Outcomes:
    """One line for each change that was tried; the last one counts.

    What was noticed stays so while the changed file is the same; what was not is tried again once any test or file is
    another one.
    """

    def __init__(self, root: Path, file: Path, state: str) -> None:
        self._root, self._file, self._state = root, file, state
        self._rows: dict[str, dict[str, str | int | float]] = {}
        self.read()

    def read(self) -> None:
        if self._file.exists():
            for line in self._file.read_text(encoding="utf-8").splitlines():
                row = json.loads(line)
                self._rows[row["key"]] = row

    def of(self, change: Sampled) -> str | None:
        row = self._rows.get(change.key)
        if row is None or row["text"] != self._text(change) or row["outcome"] == EXCHANGED:
            return None
        return str(row["outcome"]) if row["outcome"] in KILLED or row["state"] == self._state else None

    def was_tried(self, change: Sampled) -> bool:
        """Whether it was noticed by nobody in some other state: then there is time for it after all that are new."""
        return change.key in self._rows

    def was_exchanged(self, change: Sampled) -> bool:
        """Whether all its tests have run with its code exchanged, in this state."""
        row = self._rows.get(change.key)
        return row is not None and (row["outcome"], row["state"]) == (EXCHANGED, self._state)

    def put(self, change: Sampled, outcome: str, took_s: float) -> None:
        row: dict[str, str | int | float] = {
            "key": change.key, "path": change.path, "line": change.line, "function": change.function,
            "old": change.old, "new": change.new, "outcome": outcome, "seconds": round(took_s, 1),
            "text": self._text(change), "state": self._state,
        }  # fmt: skip
        self._rows[change.key] = row
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def _text(self, change: Sampled) -> str:
        return hashlib.sha256((self._root / change.path).read_bytes()).hexdigest()[:16]


def table(changes: Iterable[Sampled], outcomes: Outcomes) -> str:
    """By package, for people."""
    tried, killed, by_time = Counter[str](), Counter[str](), Counter[str]()
    for change in changes:
        room = change.path.rpartition("/")[0]
        room = "/".join(room.split("/")[:2])
        outcome = outcomes.of(change)
        tried[room] += 1
        killed[room] += outcome in KILLED
        by_time[room] += outcome == BY_TIME
    rows = [f"| `{room}` | {killed[room]} of {tried[room]} | {by_time[room]} |" for room in sorted(tried)]
    return "\n".join(["| package | noticed | of them by their time |", "|---|---|---|", *rows])

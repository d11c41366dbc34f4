"""The trials of one experiment, kept from question to question: what has ended for good is read once.

A trial that has ended and was told to its tuner never changes again. So a question costs a read of those that are still
open, of the numbers that were left out so far (a later trial may come first), and of those that are new.
"""

from __future__ import annotations

import json
import secrets
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from tuner_service.domain.errors import LimitExceededError
from tuner_service.domain.experiment import ExperimentId
from tuner_service.domain.trial import FINAL_STATUSES
from tuner_service.domain.values import flattened
from tuner_service.ports import ENTRIES_AT_ONCE, Queries, TrialEntry
from tuner_service.service.questions import TRIALS_LIMIT, Check

TRIALS_PAGE = 5_000
GAPS_LIMIT = 10_000  # numbers left out that are asked for one by one; with more, everything is read again
_FINAL = frozenset(status.value for status in FINAL_STATUSES)


class KeptTrials:
    """``entries`` by number, as of the last ``refresh``. One thread."""

    def __init__(self, queries: Queries, experiment_id: ExperimentId) -> None:
        self._queries, self._experiment_id = queries, experiment_id
        self._life = secrets.token_hex(4)  # of this object: revisions of another one mean nothing here
        self._count = 0
        self._changed: list[int] = []  # beside the entries: at which count each became what it is
        self._moved = 0  # at which count a trial came between others
        self._numbers: list[int] = []
        self._open: set[int] = set()
        self._gaps: set[int] = set()
        self._flat: list[Mapping[str, Any] | None] = []  # their parameters, where somebody has asked
        self.entries: list[TrialEntry] = []

    @property
    def revision(self) -> str:
        """Another one whenever a trial has changed."""
        return f"{self._life}.{self._count}"

    def refresh(self, check: Check) -> None:
        """Read what may have changed, all of one state of the database."""
        with self._queries.snapshot():
            if len(self._gaps) > GAPS_LIMIT:
                again, last = [], 0
            else:
                again, last = sorted(self._open | self._gaps), self._numbers[-1] if self._numbers else 0
            found = [entry for some in _batches(again) for entry in self._read(some, check)]
            found += self._pages(last, check)
        if not self._numbers:
            self._begin(found)
        else:
            known = dict(zip(self._numbers, self.entries, strict=True)) if not last else None
            changed = [entry for entry in found if _is_another(self._entry(entry.number, known), entry)]
            if changed:
                self._count += 1
                self._take(changed)
        for entry in found:
            is_settled = entry.status in _FINAL and entry.told_line is not None
            (self._open.discard if is_settled else self._open.add)(entry.number)

    def since(self, revision: str) -> list[int] | None:
        """Places of the entries that have changed after it; None where it is of no state that is known here."""
        life, _, count = revision.partition(".")
        if life != self._life or not count.isdecimal() or len(count) > 18 or int(count) > self._count:
            return None
        return [place for place, changed in enumerate(self._changed) if changed > int(count)]

    def stamp(self, start: int, end: int) -> object:
        """Another one whenever an entry from place ``start`` to before ``end`` has changed, or stands elsewhere."""
        return end - start, self._moved, max(self._changed[start:end], default=0)

    def parameters(self) -> Sequence[Mapping[str, Any]]:
        """Of each entry, one level deep: a nested choice's own parameters by their path."""
        missing = [place for place, flat in enumerate(self._flat) if flat is None]
        for places in _batches(missing):
            texts = ",".join(self.entries[place].parameters for place in places)
            for place, given in zip(places, json.loads(f"[{texts}]"), strict=True):
                self._flat[place] = flattened(given, "")
        return [flat for flat in self._flat if flat is not None]

    # ── reading ─────────────────────────────────────────────────────────────────────────────────
    def _read(self, numbers: Sequence[int], check: Check) -> Sequence[TrialEntry]:
        check()
        return self._queries.entries_of(self._experiment_id, numbers)

    def _pages(self, after: int, check: Check) -> Iterator[TrialEntry]:
        count = len(self._numbers) if after else 0
        while page := self._queries.trial_entries(self._experiment_id, after=after, limit=TRIALS_PAGE):
            check()
            count += len(page)
            if count > TRIALS_LIMIT:
                raise LimitExceededError(
                    f"experiment {self._experiment_id} has more than {TRIALS_LIMIT} trials, which are not analysed; "
                    "its export has them all"
                )
            yield from page
            after = page[-1].number

    # ── keeping ─────────────────────────────────────────────────────────────────────────────────
    def _entry(self, number: int, known: Mapping[int, TrialEntry] | None) -> TrialEntry | None:
        if known is not None:
            return known.get(number)
        place = bisect_left(self._numbers, number)
        return self.entries[place] if place < len(self._numbers) and self._numbers[place] == number else None

    def _begin(self, found: Sequence[TrialEntry]) -> None:
        """All of them, by number."""
        if found:
            self._count += 1
        self.entries, self._numbers = list(found), [entry.number for entry in found]
        self._changed, self._flat = [self._count] * len(found), [None] * len(found)
        if found and len(found) != found[-1].number:
            self._gaps = set(range(1, found[-1].number)).difference(self._numbers)

    def _take(self, changed: Sequence[TrialEntry]) -> None:
        for entry in changed:
            place, end = bisect_left(self._numbers, entry.number), len(self._numbers)
            if place == end:
                last = self._numbers[-1] if self._numbers else 0
                self._gaps.update(range(last + 1, entry.number))
            if place < end and self._numbers[place] == entry.number:
                if self.entries[place].parameters != entry.parameters:
                    self._flat[place] = None
                self.entries[place], self._changed[place] = entry, self._count
                continue
            self._gaps.discard(entry.number)
            if place < end:
                self._moved = self._count
            self._numbers.insert(place, entry.number)
            self.entries.insert(place, entry)
            self._changed.insert(place, self._count)
            self._flat.insert(place, None)


def _is_another(known: TrialEntry | None, entry: TrialEntry) -> bool:
    """Whether anything that is shown differs; NaN is equal to itself here."""
    return known is None or repr(known[:-1]) != repr(entry[:-1])


def _batches(items: Sequence[int]) -> Iterator[list[int]]:
    rest = iter(items)
    while some := list(islice(rest, ENTRIES_AT_ONCE)):
        yield some

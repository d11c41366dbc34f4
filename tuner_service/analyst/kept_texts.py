"""Cells of a table's columns as text, kept in stretches: of a long column only what has changed is written anew."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from tuner_service.analyst.kept_trials import KeptTrials

STRETCH = 1_000  # trials whose cells are one text
BYTES_KEPT = 64 << 20  # of one experiment, the columns asked for last; some hundred thousand trials, all columns

Cells = Callable[[int, int], str]  # of the trials from one place to another, with commas between
ColumnKey = tuple[str, int]  # its name and digits


@dataclass(slots=True)
class _Column:
    stamps: list[object] = field(default_factory=list)
    texts: list[bytes] = field(default_factory=list)
    bytes: int = 0


class KeptTexts:
    """Of the trials of one experiment. One thread."""

    def __init__(self, trials: KeptTrials) -> None:
        self._trials = trials
        self._columns: OrderedDict[ColumnKey, _Column] = OrderedDict()
        self.bytes = 0

    def array(self, key: ColumnKey, cells: Cells, *, may_keep: Callable[[int, int], bool]) -> list[bytes]:
        """The parts of a JSON array: the cells of every trial.

        ``may_keep``: whether those of a stretch change with their trials only.
        """
        column = self._columns.pop(key, None) or _Column()
        self.bytes -= column.bytes
        count = len(self._trials.entries)
        stretches = [(start, min(start + STRETCH, count)) for start in range(0, count, STRETCH)]
        del column.stamps[len(stretches) :], column.texts[len(stretches) :]
        for place, (start, end) in enumerate(stretches):
            stamp = self._trials.stamp(start, end)
            if place == len(column.texts):
                column.stamps.append(None)
                column.texts.append(b"")
            if column.stamps[place] != stamp:
                column.texts[place] = (b"," if start else b"") + cells(start, end).encode(errors="replace")
                column.stamps[place] = stamp if may_keep(start, end) else None
        column.bytes = sum(map(len, column.texts))
        self.bytes += column.bytes
        self._columns[key] = column
        parts = [b"[", *column.texts, b"]"]
        while self.bytes > BYTES_KEPT:
            self.bytes -= self._columns.popitem(last=False)[1].bytes
        return parts

    def forget(self) -> None:
        self._columns.clear()
        self.bytes = 0

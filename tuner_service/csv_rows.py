"""CSV that everybody reads alike: the standard writer leaves a carriage return inside a text without quotes."""

from __future__ import annotations

import io

ENDING = "\r\n"  # with which ``csv.writer`` ends a row by default; then it quotes a text that has either of the two


class CsvText(io.StringIO):
    """What ``csv.writer`` writes to, a row at a time; its rows end with a line feed alone."""

    def write(self, row: str, /) -> int:
        return super().write(row.removesuffix(ENDING) + "\n")

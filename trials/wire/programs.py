"""Programs of this package that the service starts by their file."""

from __future__ import annotations

from pathlib import Path

KEEPER = Path(__file__).parents[1] / "processes" / "keeper.py"  # run with -I -S, so that it starts in milliseconds

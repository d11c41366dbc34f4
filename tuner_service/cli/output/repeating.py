"""What --watch does: prints again and again, until Ctrl-C."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

WATCH_INTERVAL_S = 2.0


def repeated(arguments: argparse.Namespace, print_once: Callable[[], None]) -> None:
    """Once, or with --watch again and again until Ctrl-C."""
    print_once()
    while arguments.watch:
        sys.stdout.flush()
        time.sleep(WATCH_INTERVAL_S)
        if sys.stdout.isatty():
            sys.stdout.write("\x1b[H\x1b[2J")
        print_once()

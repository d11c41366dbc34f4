"""unarchive: archived metrics back into the database."""

from __future__ import annotations

import argparse

from tuner_service.cli.verbs.archive import moved


def run(arguments: argparse.Namespace) -> int:
    return moved(arguments, is_out=False)

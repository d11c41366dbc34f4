"""version: the one that is installed."""

from __future__ import annotations

import argparse

from tuner_service.cli.output.exit_codes import ExitCode
from tuner_service.config import package_version


def run(_: argparse.Namespace) -> int:
    print(package_version())
    return ExitCode.OK

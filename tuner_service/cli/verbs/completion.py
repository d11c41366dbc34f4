"""completion: the script that completes in a shell, and what that script asks."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tuner_service.cli.completing import WORD, completed
from tuner_service.cli.output.exit_codes import ExitCode

MAX_LINE = 64 << 10  # bytes of a command line
_SCRIPTS = Path(__file__).resolve().parent.parent / "completions"


def run(arguments: argparse.Namespace) -> int:
    if not arguments.words:
        sys.stdout.write((_SCRIPTS / f"tuner.{arguments.shell}").read_text(encoding="utf-8"))
        return ExitCode.OK
    line = sys.stdin.buffer.read(MAX_LINE).decode("utf-8", "surrogateescape").removesuffix("\n")
    found = completed(line)
    word = found.word.replace("\n", " ").replace("\t", " ")
    answer = [f"{WORD}\t{word}", *([found.kind] if found.kind else []), *found.lines()]
    sys.stdout.buffer.write("\n".join([*answer, ""]).encode("utf-8", "surrogateescape"))
    sys.stdout.buffer.flush()
    return ExitCode.OK

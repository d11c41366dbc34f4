"""Runs a training script, kills it at a line, runs it again, and compares what it reports in the end.

``python -m tests.documented_scripts --script FILE --kills N`` imports what the script needs once and forks a child for
each run, so that a hundred kills take seconds. A child kills itself with SIGKILL before the n-th line of the script
that it executes, once the checkpoint that was being written is on the disk (an earlier one is what a kill at an
earlier line leaves). The script runs alone: its checkpoints are what a second run goes on from.
"""

from __future__ import annotations

import argparse
import os
import runpy
import shutil
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from types import FrameType
from typing import Any

import trials

FINAL = "final: "  # begins the line of a script that runs alone
OUTPUT = "output"
LINES = "lines"
ERROR = "error"


class _Killer:
    """Counts the lines of the script, and kills the process before one of them; 0: never."""

    def __init__(self, script: Path, *, at_line: int) -> None:
        self._script, self._at_line = str(script), at_line
        self.lines = 0

    def trace(self, frame: FrameType, event: str, _argument: Any) -> Any:
        if frame.f_code.co_filename != self._script:
            return None
        if event == "line":
            self.lines += 1
            if self.lines == self._at_line:
                sys.settrace(None)
                trials.init().wait_for_checkpoint()
                os.kill(os.getpid(), signal.SIGKILL)
        return self.trace


def run(script: Path, folder: Path, *, arguments: list[str], at_line: int = 0) -> int:
    """In a child; the signal that ended it. What it reported as final and how many lines it had is in ``folder``."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    _run_here(script, folder, arguments=arguments, at_line=at_line)
    os._exit(0)


def _run_here(script: Path, folder: Path, *, arguments: list[str], at_line: int) -> None:
    killer = _Killer(script, at_line=at_line)
    try:
        os.chdir(folder)
        output = os.open(OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.argv = [str(script), *arguments]
        sys.path.insert(0, str(script.parent))
        sys.settrace(killer.trace)
        runpy.run_path(str(script), run_name="__main__")
    except BaseException:  # noqa: BLE001  # told to whoever compares
        (folder / ERROR).write_text(traceback.format_exc())
    finally:
        sys.settrace(None)
        sys.stdout.flush()
        (folder / LINES).write_text(str(killer.lines))


def final(folder: Path, *, skipped: list[str]) -> str:
    """What was reported as final last; "" where nothing was."""
    path = folder / OUTPUT
    lines = [line for line in path.read_text().splitlines() if line.startswith(FINAL)] if path.exists() else []
    words = lines[-1].removeprefix(FINAL).split() if lines else []
    return " ".join(word for word in words if word.partition("=")[0] not in skipped)


def check(script: Path, *, arguments: list[str], kills: int, skipped: list[str]) -> list[str]:
    """What is wrong. ``kills`` are spread over the lines of an untouched run; ``skipped`` metrics may differ."""
    with tempfile.TemporaryDirectory() as scratch:
        untouched = Path(scratch, "untouched")
        untouched.mkdir()
        run(script, untouched, arguments=arguments)
        expected = final(untouched, skipped=skipped)
        if (untouched / ERROR).exists() or not expected:
            return [f"untouched: {_error(untouched)}"]
        lines = int((untouched / LINES).read_text())
        wrong = []
        for at_line in places(lines, kills):
            folder = Path(scratch, "killed")
            folder.mkdir()
            ended = run(script, folder, arguments=arguments, at_line=at_line)
            if ended != signal.SIGKILL:
                wrong.append(f"line {at_line}: was not killed; {_error(folder)}")
            run(script, folder, arguments=arguments)
            found = final(folder, skipped=skipped)
            if found != expected:
                wrong.append(f"line {at_line} of {lines}: {found!r} instead of {expected!r}; {_error(folder)}")
            shutil.rmtree(folder)
        return wrong


def places(lines: int, kills: int) -> list[int]:
    """So many, spread; and the last lines, where a script has nothing left to train. A single one is in the middle."""
    spread = {max(1, lines * place // (kills + 1)) for place in range(1, kills + 1)}
    return sorted(spread | set(range(max(1, lines - kills // 4 + 1), lines + 1)))


def _error(folder: Path) -> str:
    path = folder / ERROR
    return path.read_text() if path.exists() else "no final metric"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--script", type=Path, required=True)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--import", dest="imports", action="append", default=[], help="once, before the first fork")
    parser.add_argument("--skip", action="append", default=[], help="a metric that may differ")
    parser.add_argument("arguments", nargs="*", help="the script's own, as name=value")
    chosen = parser.parse_args()
    for name in chosen.imports:
        __import__(name)
    wrong = check(chosen.script.resolve(), arguments=chosen.arguments, kills=chosen.kills, skipped=chosen.skip)
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""Runs of scripts that import large frameworks: a process imports them once, and each run is a fork of it.

with imported_once("torch") as runner:
    (said,) = runner.run(Run(folder / "train.py"))
"""

from __future__ import annotations

import json
import os
import runpy
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.fork_ends import end_with

ROOT = Path(__file__).resolve().parents[1]
SHOWN = 3000  # characters of what a run that failed has said
END_S = 60
WARNINGS = "ignore"  # of frameworks about each other


@dataclass(frozen=True, kw_only=True)
class Run:
    """Of a script, in the folder where it lies. ``variables`` come to those of this process."""

    script: Path
    arguments: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


class ImportedOnce:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, *runs: Run) -> list[str]:
        """What each has written; they run beside each other. AssertionError for one that has failed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with tempfile.TemporaryDirectory() as folder:
            files = [(f"{folder}/{number}.out", f"{folder}/{number}.err") for number in range(len(runs))]
            orders = [asdict(run) | {"script": str(run.script), "to": to} for run, to in zip(runs, files, strict=True)]
            self._process.stdin.write(json.dumps(orders) + "\n")
            self._process.stdin.flush()
            codes = json.loads(self._process.stdout.readline())
            said = [[Path(file).read_text(encoding="utf-8") for file in to] for to in files]
        assert not any(codes), (codes, [(out + err)[-SHOWN:] for out, err in said])
        return [out for out, _ in said]


@contextmanager
def imported_once(*modules: str) -> Iterator[ImportedOnce]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TUNER_")}
    process = subprocess.Popen(
        [sys.executable, "-W", WARNINGS, "-m", "tests.imported_once", *modules],
        cwd=ROOT,
        env={**kept, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield ImportedOnce(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(END_S)
        assert process.stdout is not None
        process.stdout.close()


def of_a_world(count: int) -> list[dict[str, str]]:
    """The variables of each of ``count`` ranks on one node, as torchrun gives them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "GROUP_RANK": "0"}
    common |= {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}
    return [common | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]


# ── the process that imports ────────────────────────────────────────────────────────────────────
def main() -> None:
    for name in sys.argv[1:]:
        import_module(name)
    for line in sys.stdin:
        pids = [_begun(order) for order in json.loads(line)]
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        print(json.dumps(codes), flush=True)


def _begun(order: dict[str, Any]) -> int:
    def act() -> int:
        for descriptor, path in enumerate(order["to"], start=1):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), descriptor)
        script = Path(order["script"])
        os.chdir(script.parent)
        os.environ.update(order["variables"])
        sys.path.insert(0, str(script.parent))
        sys.argv = [script.name, *order["arguments"]]
        runpy.run_path(str(script), run_name="__main__")
        return 0

    pid = os.fork()
    if not pid:
        end_with(act)
    return pid


if __name__ == "__main__":
    main()

"""Several trials on one node: each with its own torch loader, with our producer, and with tensorsocket's.

``python -m benchmarks.loading.sharing`` alone, or as rows of ``python -m benchmarks.loading``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.loading.costs import costs_of, tree
from benchmarks.loading.sharing_set import make_files
from benchmarks.machine import describe
from benchmarks.writing import Row, save
from trials.processes.usage import memory_of

ROLES = Path(__file__).resolve().parent / "sharing_roles.py"
REPOSITORY = ROLES.parent.parent.parent
MEMORY_BYTES = 96 << 20  # of our producer: windows, and next to no cache
WARM_UP_S = 300.0
RUN_TIMEOUT_S = 120.0
PEER_FAILURES_MAX = 1  # then it is not run in the rounds that are left
SAMPLE_S = 0.25  # between two looks at memory
NOTES = (
    (
        "Sharing: every trial is a process that goes through all samples, 32 a batch: one epoch to warm up, two "
        "that are measured, all trials together. `torch`: each has a DataLoader with two workers. `ours`: one "
        "producer with two workers. `tensorsocket`: one producer around a DataLoader with two workers. Memory is "
        "the most that all processes had at once (proportional set size), processor time is theirs; `delivered` is "
        "the share of the samples that trials got. Targets: `of_torch` at least 3.2 for four trials and 1.7 for "
        "two, `cpu_of_torch` at most 0.32, `memory_of_tensorsocket` at most 0.4."
    ),
)
PEER = ("tensorsocket==0.0.5", "pyzmq", "tornado")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    samples_s: float
    cpu_ms: float  # per delivered sample
    peak_mib: float  # PSS of everything
    delivered: float  # of the samples there were


@dataclass(slots=True, kw_only=True)
class Group:
    """The processes of one run, and everything they started."""

    started: list[subprocess.Popen[str]] = field(default_factory=list)
    members: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, *command: str, is_member: bool, python_path: str = "") -> subprocess.Popen[str]:
        path = os.pathsep.join(filter(None, [str(REPOSITORY), python_path]))
        process = subprocess.Popen(
            [sys.executable, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            cwd=REPOSITORY,
            stderr=subprocess.DEVNULL,
        )
        self.started.append(process)
        if is_member:
            self.members.append(process)
        return process

    def pids(self) -> list[int]:
        return tree(*(process.pid for process in self.started))

    def memory(self) -> int:
        return sum(map(memory_of, self.pids()))

    def processor(self) -> float:
        return costs_of(self.pids()).cpu_s

    def kill(self) -> None:
        for pid in reversed(self.pids()):
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                continue

    def end(self) -> None:
        self.kill()
        for process in self.started:
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()


@contextmanager
def grouped() -> Iterator[Group]:
    """Killed after RUN_TIMEOUT_S: whoever reads from one of its processes then finds the end of its output."""
    group = Group()
    watch = threading.Timer(RUN_TIMEOUT_S, group.kill)
    watch.start()
    try:
        yield group
    finally:
        watch.cancel()
        group.end()


def measure(group: Group, *, expected: int) -> Measured:
    """The members have warmed up when they say "ready"; from "go" on time and memory are taken."""
    for member in group.members:
        _wait_for_word(member, "ready")
    peak, done = [group.memory()], threading.Event()

    def look() -> None:
        while not done.wait(SAMPLE_S):
            peak.append(group.memory())

    looking = threading.Thread(target=look)
    looking.start()
    cpu, began = group.processor(), time.perf_counter()
    for member in group.members:
        assert member.stdin is not None
        member.stdin.write("go\n")
        member.stdin.flush()
    answers = [json.loads(member.stdout.readline() or "{}") for member in group.members if member.stdout is not None]
    seconds, cpu = time.perf_counter() - began, group.processor() - cpu
    done.set()
    looking.join()
    if not all(answers):
        raise RuntimeError("a process of the run ended, or hung")
    samples = sum(answer["samples"] for answer in answers)
    return Measured(
        samples_s=samples / seconds,
        cpu_ms=1000 * cpu / samples,
        peak_mib=max(peak) / 2**20,
        delivered=samples / expected,
    )


def run(kind: str, folder: Path, *, files: int, trials: int, peer: str = "") -> Measured:
    with grouped() as group, ExitStack() as stack:
        socket = ""
        if kind == "ours":
            private = stack.enter_context(tempfile.TemporaryDirectory(prefix="tuner-sharing-"))
            socket = f"{private}/data.sock"
            spec = json.dumps(_spec(socket, folder, files))
            group.start("-m", "trials.data.sharing.producer_main", spec, is_member=False)
            _wait_for(Path(socket))
        if kind == "tensorsocket":
            producer = group.start(str(ROLES), "producer", str(folder), str(files), is_member=False, python_path=peer)
            _wait_for_word(producer, "serving")
        role = {"tensorsocket": "consumer"}.get(kind, kind)
        for _ in range(trials):
            group.start(str(ROLES), role, str(folder), str(files), socket, is_member=True, python_path=peer)
        return measure(group, expected=2 * files * trials)


def _spec(socket: str, folder: Path, files: int) -> dict[str, Any]:
    return {
        "socket": socket,
        "dataset": {
            "factory": "benchmarks.loading.sharing_set:Photos",
            "arguments": {"folder": str(folder), "count": files},
        },
        "options": {"workers": 2, "memory_bytes": MEMORY_BYTES, "idle_s": 600},
    }


def _wait_for_word(process: subprocess.Popen[str], word: str) -> None:
    """What else it prints is a library's own."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip() == word:
            return
    raise RuntimeError(f"a process of the run ended before it was {word}")


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + WARM_UP_S
    while not path.exists():
        if time.monotonic() > deadline:
            raise RuntimeError("the server did not start")
        time.sleep(0.05)


def install_peer(folder: Path) -> str:
    """Into a folder of its own; returns the installer's error, empty when there is none."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), *PEER]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    return "" if done.returncode == 0 else " ".join(errors)[:300] or f"the installer ended with {done.returncode}"


def sharing_rows(options: argparse.Namespace) -> list[Row]:
    """Medians of interleaved rounds; ``options``: rounds, files, and folder (kept) for the files."""
    rounds, files = getattr(options, "rounds", 3), getattr(options, "files", 1024)
    with tempfile.TemporaryDirectory(prefix="tuner-photos-") as temporary:
        folder = Path(getattr(options, "folder", None) or temporary)
        make_files(folder / "photos", files)
        peer = Path(temporary) / "peer"
        problem, failures = install_peer(peer), 0
        kinds = [(kind, trials) for trials in (1, 2, 4) for kind in ("torch", "ours")]
        kinds += [] if problem else [("tensorsocket", 4)]
        found: dict[tuple[str, int], list[Measured]] = {kind: [] for kind in kinds}
        for _ in range(rounds):
            for kind, trials in kinds:
                if kind == "tensorsocket" and failures >= PEER_FAILURES_MAX:
                    continue
                try:
                    one = run(kind, folder / "photos", files=files, trials=trials, peer=str(peer))
                except RuntimeError as error:
                    if kind != "tensorsocket":
                        raise
                    problem, failures = str(error), failures + 1
                    continue
                found[kind, trials].append(one)
                print(kind, trials, one, flush=True)
    rows = [_row(kind, trials, found) for kind, trials in kinds if found[kind, trials]]
    if problem:
        rows.append({"workload": "sharing", "loader": "tensorsocket", "error": problem})
    return rows


def _row(kind: str, trials: int, found: dict[tuple[str, int], list[Measured]]) -> Row:
    def of(name: str, key: tuple[str, int]) -> float:
        return float(median(getattr(one, name) for one in found[key]))

    key, torch = (kind, trials), ("torch", trials)
    row: Row = {
        "workload": "sharing, JPEG",
        "loader": kind,
        "trials": trials,
        "samples_s": of("samples_s", key),
        "cpu_ms_a_sample": of("cpu_ms", key),
        "peak_mib": of("peak_mib", key),
        "delivered": of("delivered", key),
    }
    if kind != "torch":
        row["of_torch"] = of("samples_s", key) / of("samples_s", torch)
        row["cpu_of_torch"] = of("cpu_ms", key) / of("cpu_ms", torch)
    if kind == "ours" and trials == 4 and found.get(("tensorsocket", 4)):
        row["memory_of_tensorsocket"] = of("peak_mib", key) / of("peak_mib", ("tensorsocket", 4))
    return row


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.loading.sharing", allow_abbrev=False)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--files", type=int, default=1024)
    parser.add_argument("--folder", type=Path, help="where the files are kept; made anew where it is left out")
    options = parser.parse_args()
    machine = describe()
    command = f"python -m benchmarks.loading.sharing --rounds {options.rounds} --files {options.files}"
    save("sharing", command=command, machine=machine, rows=sharing_rows(options), notes=NOTES)


if __name__ == "__main__":
    main()

"""Several trials on one node: each with its own torch loader, with our producer, with tensorsocket's, and, where the
decoded set fits in memory, with a file of it that all map, or with Ray's object store.

``python -m benchmarks.loading.sharing --peer ray=PYTHON`` alone, or as rows of ``python -m benchmarks.loading``.
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
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.loading.costs import costs_of, tree
from benchmarks.loading.decoded import decode_once
from benchmarks.loading.sharing_set import make_files
from benchmarks.machine import describe
from benchmarks.writing import Row, save
from trials.processes.usage import memory_of

ROLES = Path(__file__).resolve().parent / "sharing_roles.py"
RAY = ROLES.parent / "peers" / "ray_sharing.py"
REPOSITORY = ROLES.parent.parent.parent
MEMORY_BYTES = 96 << 20  # of our producer: windows, and next to no cache
WARM_UP_S = 300.0
RUN_TIMEOUT_S = 120.0
PEERS = ("tensorsocket", "ray")  # which may fail; then they are not run in the rounds that are left
EPOCHS = {"ours": 4, "memmap": 20, "ray": 20}  # measured; of the others 2
FITS = "fits decoded in memory"
CONDITIONS = {"memmap": FITS, "ray": FITS, "tensorsocket": "trials at one pace"}
WORKLOAD = "sharing, JPEG"
SAMPLE_S = 0.25  # between two looks at memory
NOTES = (
    (
        "Sharing: every trial is a process that goes through all samples, 32 a batch: one epoch to warm up, then some "
        "that are measured (two, of `ours` four, of `memmap` and `ray` twenty), all trials together. "
        "So it is what comes after the first epoch and without a training step: it does not count from the command. "
        "`torch`: each has a DataLoader with two workers. `ours`: one producer with two workers and 96 MiB, so next to "
        "nothing is kept from one epoch to the next and every sample is decoded once an epoch. Memory is the most that "
        "all processes had at once (proportional set size), processor time is theirs; `delivered` is the share of the "
        "samples that trials got. Ratios are medians of the ratios of each round. Targets: `of_torch` at least 3.2 for "
        "four trials and 1.7 for two, `cpu_of_torch` at most 0.32."
    ),
    (
        "`memmap`: two processes decode all samples once into a file of bytes (`decode_s`, not in the other figures), "
        "which all trials map and take their batches from by a NumPy index; no loader. `ray`: the same decoded array, "
        "put once into Ray's object store (`decode_s` is decoding and that), as `tune.with_parameters` does it, and "
        "read there without a copy by an actor for each trial; its memory and processor time are those of Ray's "
        "servers, too. Both need room for the decoded set, 0.15 MB a photograph, and samples that are the same in each "
        "epoch or are augmented after decoding."
    ),
    (
        "`tensorsocket`: one producer around a DataLoader with two workers. With its default settings a message held "
        "eight times its batches and trials waited for ever, so it has producer_batch_size=2 and rubber_band_pct=0.2; "
        "there is no target beside it."
    ),
)
PEER = ("tensorsocket==0.0.5", "pyzmq", "tornado")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    samples_s: float
    cpu_ms: float  # per delivered sample
    peak_mib: float  # PSS of everything
    delivered: float  # of the samples there were
    decode_s: float | None = None  # of all samples, once and before all this


Round = dict[tuple[str, int], Measured]  # by kind and trials


@dataclass(slots=True, kw_only=True)
class Group:
    """The processes of one run, and everything they started."""

    started: list[subprocess.Popen[str]] = field(default_factory=list)
    members: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(
        self, *command: str, is_member: bool, python_path: str = "", python: str = sys.executable
    ) -> subprocess.Popen[str]:
        path = os.pathsep.join(filter(None, [str(REPOSITORY), python_path]))
        process = subprocess.Popen(
            [python, *command],
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
        decode_s=max(answer.get("put_s", 0.0) for answer in answers) or None,
    )


def run(kind: str, folder: Path, *, files: int, trials: int, peer: str = "") -> Measured:
    """``peer``: where tensorsocket is, or the interpreter that has Ray."""
    epochs, expected = EPOCHS.get(kind, 2), EPOCHS.get(kind, 2) * files * trials
    with ExitStack() as stack:
        private = stack.enter_context(tempfile.TemporaryDirectory(prefix="tuner-sharing-", ignore_cleanup_errors=True))
        group = stack.enter_context(grouped())
        decode_s, where = 0.0, ""
        if kind == "ours":
            where = f"{private}/data.sock"
            spec = json.dumps(_spec(where, folder, files))
            group.start("-m", "trials.data.sharing.producer_main", spec, is_member=False)
            _wait_for(Path(where))
        if kind in {"memmap", "ray"}:
            where = f"{private}/decoded.npy"
            decode_s = decode_once(folder, files, Path(where))
        if kind == "ray":
            group.start(str(RAY), where, str(trials), str(epochs), private, is_member=True, python=peer)
            measured = measure(group, expected=expected)
            return replace(measured, decode_s=decode_s + (measured.decode_s or 0.0))
        path = peer if kind == "tensorsocket" else ""
        words = (str(folder), str(files), str(epochs), where)
        if kind == "tensorsocket":
            producer = group.start(str(ROLES), "producer", *words, is_member=False, python_path=path)
            _wait_for_word(producer, "serving")
        role = {"tensorsocket": "consumer"}.get(kind, kind)
        for _ in range(trials):
            group.start(str(ROLES), role, *words, is_member=True, python_path=path)
        return replace(measure(group, expected=expected), decode_s=decode_s or None)


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


def sharing_rows(options: argparse.Namespace) -> tuple[list[Row], list[Row]]:
    """The rows, medians of interleaved rounds, and those rounds; ``options``: rounds, files, folder (kept) for the
    files, peer, and peers_path, where tensorsocket may be."""
    files = getattr(options, "files", 1024)
    with tempfile.TemporaryDirectory(prefix="tuner-photos-") as temporary:
        folder = Path(getattr(options, "folder", None) or temporary) / "photos"
        make_files(folder, files)
        peers, problems = _peers(options, Path(temporary))
        kinds = [(kind, trials) for trials in (1, 2, 4) for kind in ("torch", "ours")]
        kinds += [("memmap", 4), *((peer, 4) for peer in peers)]
        rounds: list[Round] = []
        for _ in range(options.rounds):
            found: Round = {}
            for kind, trials in kinds:
                if kind in problems:
                    continue
                try:
                    found[kind, trials] = run(kind, folder, files=files, trials=trials, peer=peers.get(kind, ""))
                except RuntimeError as error:
                    if kind not in PEERS:
                        raise
                    problems[kind] = str(error)
                    continue
                print(kind, trials, found[kind, trials], flush=True)
            rounds.append(found)
    rows = [_row(kind, trials, rounds) for kind, trials in kinds if any((kind, trials) in one for one in rounds)]
    rows += [{"workload": "sharing", "loader": name, "error": problem} for name, problem in problems.items()]
    kept = [{f"{kind}, {trials}": asdict(one) for (kind, trials), one in found.items()} for found in rounds]
    return rows, [{"workload": WORKLOAD, **one} for one in kept]


def _peers(options: argparse.Namespace, temporary: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Where each is, and what is wrong with those that cannot be had."""
    pythons = dict(named.split("=", 1) for named in getattr(options, "peer", []))
    found = {"ray": pythons["ray"]} if "ray" in pythons else {}
    given = getattr(options, "peers_path", "")
    if given and (Path(given) / "tensorsocket").is_dir():
        return {"tensorsocket": given, **found}, {}
    problem = install_peer(temporary / "peer")
    if problem:
        return found, {"tensorsocket": problem}
    return {"tensorsocket": str(temporary / "peer"), **found}, {}


def _row(kind: str, trials: int, rounds: Sequence[Round]) -> Row:
    def of(name: str) -> float:
        return float(median(getattr(one[kind, trials], name) for one in rounds if (kind, trials) in one))

    def of_torch(name: str) -> float | None:
        if kind == "torch":
            return None
        pairs = [(one[kind, trials], one["torch", trials]) for one in rounds if (kind, trials) in one]
        return float(median(getattr(mine, name) / getattr(torchs, name) for mine, torchs in pairs))

    return {
        "workload": WORKLOAD,
        "loader": kind,
        "trials": trials,
        "samples_s": of("samples_s"),
        "cpu_ms_a_sample": of("cpu_ms"),
        "peak_mib": of("peak_mib"),
        "delivered": of("delivered"),
        "of_torch": of_torch("samples_s"),
        "cpu_of_torch": of_torch("cpu_ms"),
        "decode_s": of("decode_s") if kind in {"memmap", "ray"} else None,
        "condition": CONDITIONS.get(kind),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.loading.sharing", allow_abbrev=False)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--files", type=int, default=1024)
    parser.add_argument("--folder", type=Path, help="where the files are kept; made anew where it is left out")
    parser.add_argument("--peer", action="append", default=[], metavar="ray=PYTHON", help="an interpreter with Ray")
    parser.add_argument("--peers-path", default="", help="a folder with tensorsocket (default: it is installed)")
    options = parser.parse_args()
    machine = describe()
    command = f"python -m benchmarks.loading.sharing --rounds {options.rounds} --files {options.files}"
    rows, rounds = sharing_rows(options)
    save("sharing", command=command, machine=machine, rows=rows, notes=NOTES, rounds=rounds)


if __name__ == "__main__":
    main()

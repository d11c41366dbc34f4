"""All that is written for a GPU, tested and measured in one run on a machine that has one: ``make gpu``.

Runs ``tests/gpu``, whose tests print what they measured as JSON lines; then brings batches to the device and saves
checkpoints from it in our ways and in torch's, in turn; and writes one result file.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any
from xml.etree import ElementTree

from benchmarks.checkpoints.__main__ import rows_of as rows_of_checkpoints
from benchmarks.checkpoints.__main__ import train
from benchmarks.machine import describe
from benchmarks.writing import Row, save, spread

ROOT = Path(__file__).resolve().parents[2]
COMMAND = "python -m benchmarks.gpu"
NO_DEVICE = "skipped: it needs a CUDA device, and nvidia-smi is not on the path"
WAYS = (
    "computing alone",
    "ours",
    "ours, auto",
    "torch, pinned, a stream of its own",
    "torch, pinned",
    "torch, not pinned",
)
STEPS, WIDTH, BATCH = 10, 4096, 8192  # of the training whose 805 MB are saved
NOTES = (
    "`outcome` is the test's own; a figure is what the test printed. The tests are in `tests/gpu`.",
    (
        "Batches: a process for each way and round, the ways in turn, with the same computation behind every batch "
        "([feeding](../gpu/feeding.py)); images are mirrored and collated by the workers, and a small network is "
        "trained on them in bfloat16; behind rows of 64 MiB there are products of matrices. `computing alone` has one "
        "batch on the device already: nothing can be quicker. `torch` is a `DataLoader` with as many workers as ours, "
        "which stay, pinned memory and copies that do not block; with a stream of its own it copies the next batch "
        "beside the computation. `of computing alone` is the median of the ratios of each round; `loop_cpu` is what of "
        "a core the training process took."
    ),
    (
        "Checkpoints: as in [checkpoints](checkpoints.md), of a perceptron of four layers of 4,096 and Adam's moments, "
        "trained on the device with batches of 8,192; a save begins when the device's queue is empty, and a block ends "
        "when it is. A stager that is kept has pinned memory and copies that do not block, as its page advises for "
        "devices."
    ),
)


def main() -> int:
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__, allow_abbrev=False)
    parser.add_argument("--limit", type=float, default=600.0, metavar="SECONDS", help="for the tests (default: 600)")
    parser.add_argument("--rounds", type=int, default=2, help="of each way (default: 2)")
    parser.add_argument("--seconds", type=float, default=2.0, help="of a workload in a round (default: 2)")
    parser.add_argument("--workers", type=int, default=_workers(), help="of a loader (default: half of the cores)")
    parser.add_argument("--commit", default="", help="of the code, where its repository is not there")
    parser.add_argument("--about", default="", metavar="TEXT", help="what else is to be known of the machine")
    options = parser.parse_args()
    if shutil.which("nvidia-smi") is None:
        print(NO_DEVICE)
        return 0
    machine = {**describe(), "device": _device(), "torch": _version_of_torch()}
    machine["commit"] = machine["commit"] or options.commit
    machine |= {"note": options.about} if options.about else {}
    code, rows = run_tests(options.limit)
    rounds: list[Row] = []
    for part in (fed, saved):  # each is kept as soon as it is there: the next may run into a limit of time
        _keep(options, machine, rows, rounds)
        rows += part(options, rounds)
    _keep(options, machine, rows, rounds)
    return code


def _keep(options: argparse.Namespace, machine: Row, rows: list[Row], rounds: list[Row]) -> None:
    command = f"{COMMAND} --rounds {options.rounds} --seconds {options.seconds} --workers {options.workers}"
    save("gpu", command=command, machine=machine, rows=rows, notes=NOTES, rounds=rounds, of_rounds=options.rounds)


# ── tests ───────────────────────────────────────────────────────────────────────────────────────────
def run_tests(limit: float) -> tuple[int, list[Row]]:
    """What pytest ended with, and the rows of its report."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        reported = ["-o", "junit_logging=system-out", f"--junitxml={report}"]
        command = [sys.executable, "-m", "pytest", "tests/gpu", "-p", "no:benchmark", *reported]
        try:
            ran = subprocess.run(command, cwd=ROOT, timeout=limit, check=False)
        except subprocess.TimeoutExpired:
            return 1, [{"test": "all", "outcome": "failed", "seconds": limit}]
        if not report.exists():
            print("pytest wrote no report; what it said stands above", file=sys.stderr)
            return ran.returncode or 1, []
        return ran.returncode, list(rows_of(report.read_text(encoding="utf-8")))


def rows_of(report: str) -> Iterator[Row]:
    """A row for each test of a JUnit report, then one for each figure that a test printed as a JSON object."""
    cases = list(ElementTree.fromstring(report).iter("testcase"))
    for case in cases:
        ends = [end for end in ("failure", "error", "skipped") if case.find(end) is not None]
        outcome = {"failure": "failed", "error": "failed", "skipped": "skipped"}[ends[0]] if ends else "passed"
        yield {"test": case.get("name", ""), "outcome": outcome, "seconds": float(case.get("time", "0"))}
    for case in cases:
        for line in (case.findtext("system-out") or "").splitlines():
            if line.startswith("{"):
                for name, value in json.loads(line).items():
                    yield {"measured by": case.get("name", ""), "figure": name, "value": value}


# ── batches ─────────────────────────────────────────────────────────────────────────────────────────
def fed(options: argparse.Namespace, rounds: list[Row]) -> list[Row]:
    """``rounds`` gets what was measured."""
    found: list[Row] = []
    for number in range(options.rounds):
        turn = number % len(WAYS)
        for way in (*WAYS[turn:], *WAYS[:turn]):
            words = [way, str(options.workers), str(options.seconds)]
            ran = subprocess.run(
                [sys.executable, "-m", "benchmarks.gpu.feeding", *words],
                cwd=ROOT,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            found += [{"round": number, **json.loads(line)} for line in ran.stdout.splitlines()]
            print(*found[-2:], sep="\n", flush=True)
    rounds += found
    return fed_rows(found)


def fed_rows(found: Sequence[Row]) -> list[Row]:
    """A row for each workload and way; its share of what computing alone reaches is that of each round."""
    rows: list[Row] = []
    rate = {(one["round"], one["workload"], one["way"]): one["batches_s"] for one in found}
    for workload in dict.fromkeys(one["workload"] for one in found):
        for way in WAYS:
            mine = [one for one in found if (one["workload"], one["way"]) == (workload, way)]
            shares = [one["batches_s"] / rate[one["round"], workload, WAYS[0]] for one in mine]
            rows.append(
                {
                    "workload": workload,
                    "way": way,
                    "batches_s": spread([one["batches_s"] for one in mine]),
                    "of computing alone": round(median(shares), 3),
                    "loop_cpu": round(median(one["loop_cpu"] for one in mine), 2),
                }
            )
    return rows


def _workers() -> int:
    return max(1, len(os.sched_getaffinity(0)) // 2)


# ── checkpoints ─────────────────────────────────────────────────────────────────────────────────────
def saved(options: argparse.Namespace, rounds: list[Row]) -> list[Row]:
    """``rounds`` gets what was measured."""
    training = argparse.Namespace(rounds=options.rounds, steps=STEPS, width=WIDTH, batch=BATCH)
    found: dict[str, Any] = train(training, device="cuda")
    rounds += found["blocks"]
    return rows_of_checkpoints(found, {}, {}, STEPS)


# ── the machine ─────────────────────────────────────────────────────────────────────────────────────
def _device() -> str:
    command = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip().replace("\n", "; ")


def _version_of_torch() -> str:
    """By a process of its own: this one leaves the device alone."""
    command = [sys.executable, "-c", "import torch; print(torch.__version__)"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())

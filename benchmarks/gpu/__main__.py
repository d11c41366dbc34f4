"""All that is written for a GPU, tested and measured in one run on a machine that has one: ``make gpu``.

Runs ``tests/gpu``, whose tests print what they measured as JSON lines, and writes one result file.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from benchmarks.machine import describe
from benchmarks.writing import Row, save

ROOT = Path(__file__).resolve().parents[2]
COMMAND = "python -m benchmarks.gpu"
NO_DEVICE = "skipped: it needs a CUDA device, and nvidia-smi is not on the path"
NOTES = ("`outcome` is the test's own; a figure is what the test printed. The tests are in `tests/gpu`.",)


def main() -> int:
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__, allow_abbrev=False)
    parser.add_argument("--limit", type=float, default=600.0, metavar="SECONDS", help="for all of it (default: 600)")
    options = parser.parse_args()
    if shutil.which("nvidia-smi") is None:
        print(NO_DEVICE)
        return 0
    machine = {**describe(), "device": _device()}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        command = [
            sys.executable,
            "-m",
            "pytest",
            "tests/gpu",
            "-o",
            "junit_logging=system-out",
            f"--junitxml={report}",
        ]
        ran = subprocess.run(command, cwd=ROOT, timeout=options.limit, check=False)
        if not report.exists():
            print("pytest wrote no report; what it said stands above", file=sys.stderr)
            return ran.returncode or 1
        rows = list(rows_of(report.read_text(encoding="utf-8")))
    save("gpu", command=COMMAND, machine=machine, rows=rows, notes=NOTES)
    return ran.returncode


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


def _device() -> str:
    command = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip().replace("\n", "; ")


if __name__ == "__main__":
    sys.exit(main())

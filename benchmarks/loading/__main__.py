"""Samples a second of our loader beside torch's, torchdata's, grain's and spdl's; several trials on one node as well.

Every round of a loader is a process of its own; the rounds of all loaders alternate; the rows are medians.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.loading import ends
from benchmarks.loading.sharing import NOTES as SHARING_NOTES
from benchmarks.loading.sharing import sharing_rows
from benchmarks.loading.workloads import WORKLOADS, workload
from benchmarks.machine import describe
from benchmarks.writing import Row, median_of, save

REPOSITORY = Path(__file__).resolve().parents[2]
TORCH = "torch, persistent workers"  # what ours is compared with
PEERS = {"torchdata": "torchdata", "grain": "grain", "spdl": "spdl"}
TIMEOUT_S = 300.0
NOTES = (
    (
        "A round takes its batches after the first ten; starting is left out. Memory is the peak of the proportional "
        "set size of the trial and its workers; processor time and page faults are theirs, too."
    ),
    (
        "`torch, persistent workers`: `persistent_workers=True`, with which the workers are not started anew for each "
        "epoch; an epoch of `tiny` has 1,000 batches, one of `jpeg` 32, one of `64 MiB` 400."
    ),
    (
        "`tiny`: 64 bytes a sample, 64 a batch. `jpeg`: 400 × 400 pixels of a photograph decoded to a float tensor, as "
        "torchvision's ToTensor does, 32 a batch. `jpeg, cut`: decoded, and 224 × 224 bytes kept: there is little to "
        "save where the decoder takes nearly all the time and its memory fits what glibc keeps anyway. "
        "`64 MiB`: 8 samples of 8 MiB that are there already."
    ),
)
# (workload, ours, peer, at least)
TARGETS = (
    ("tiny", ("ours", "2"), (TORCH, "2"), 2.0),
    ("tiny", ("ours", "auto"), ("torch", "0"), 0.9),
    ("jpeg", ("ours", "2"), (TORCH, "2"), 1.8),
    ("jpeg", ("ours", "2"), ("grain", "2"), 1.05),
    ("64 MiB", ("ours", "2"), (TORCH, "2"), 5.0),
)
Key = tuple[str, str, str]  # workload, loader, workers


def main() -> int:
    options = _options()
    machine = describe()
    found: dict[Key, list[dict[str, Any]]] = {}
    for name in options.workload or list(WORKLOADS):
        load = workload(name)  # a file that cannot be used is said before anything is measured
        load.make()
        for _ in range(options.rounds):
            for loader, workers in _loaders(options.loader):
                row = _round(loader, workers, name, options.peers_path)
                print(load.name, loader, workers, row, flush=True)
                found.setdefault((load.name, loader, workers), []).append(row)
    rows = _rows(found)
    notes = [*NOTES, *_verdicts(found)]
    if not options.workload:
        for row in ends.measure(options.rounds):
            rows.append(row)
        shared, _ = sharing_rows(options)
        rows += shared
        notes += SHARING_NOTES
    command = f"python -m benchmarks.loading --rounds {options.rounds}"
    for name in ("workload", "loader"):
        command += "".join(f' --{name} "{Path(one).name}"' for one in getattr(options, name) or [])
    save(options.group, command=command, machine=machine, rows=rows, notes=notes)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.loading", description=__doc__, allow_abbrev=False)
    parser.add_argument("--rounds", type=int, default=5, help="of each row, interleaved (default: 5)")
    parser.add_argument(
        "--workload", action="append", metavar="NAME|FILE.py", help=f"{', '.join(WORKLOADS)}, or a file with dataset()"
    )
    parser.add_argument("--loader", action="append", help="only these (default: all)")
    parser.add_argument("--peer", action="append", default=[], metavar="ray=PYTHON", help="an interpreter with Ray")
    parser.add_argument("--peers-path", default="", help="a folder with the peers, as `pip install --target` makes one")
    parser.add_argument("--group", default="loading", help="name of the result files (default: loading)")
    return parser.parse_args()


def _loaders(chosen: list[str] | None) -> list[tuple[str, str]]:
    every = [
        ("torch", "0"),
        ("ours", "auto"),
        ("torch", "2"),
        (TORCH, "2"),
        ("ours", "2"),
        ("ours, processes", "2"),
        ("ours, threads", "2"),
        *((peer, "2") for peer in PEERS),
    ]
    return [entry for entry in every if chosen is None or entry[0] in chosen]


def _round(loader: str, workers: str, name: str, peers_path: str) -> dict[str, Any]:
    path = os.pathsep.join(filter(None, [str(REPOSITORY), peers_path, os.environ.get("PYTHONPATH", "")]))
    command = [sys.executable, "-m", "benchmarks.loading.solo", loader, workers, name]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        )
    except subprocess.TimeoutExpired:
        return {"error": f"not done within {TIMEOUT_S:g} s"}
    if done.returncode != 0:
        return {"error": " ".join(done.stderr.strip().splitlines()[-1:])[:300]}
    row: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return row


def _rows(found: dict[Key, list[dict[str, Any]]]) -> list[Row]:
    rows: list[Row] = []
    for (name, loader, workers), rounds in found.items():
        errors = [row["error"] for row in rounds if "error" in row]
        if errors:
            rows.append({"workload": name, "loader": loader, "workers": workers, "left out": errors[0]})
            continue
        torchs = median_of(found.get((name, TORCH, "2"), []), "samples_s")
        rate = median_of(rounds, "samples_s")
        rows.append(
            {
                "workload": name,
                "loader": loader,
                "workers": workers,
                "samples/s": rate,
                "× torch with 2 that stay": round(rate / torchs, 2) if torchs else None,
                "processor µs a sample": median_of(rounds, "cpu_us"),
                "page faults a sample": round(median_of(rounds, "faults"), 1),
                "peak MiB": round(median_of(rounds, "peak_mib")),
            }
        )
    return rows


def _verdicts(found: dict[Key, list[dict[str, Any]]]) -> list[str]:
    said = []
    for name, ours, peer, least in TARGETS:
        mine, theirs = (median_of(found.get((name, *who), []), "samples_s") for who in (ours, peer))
        if mine and theirs:
            ratio = mine / theirs
            verdict = "reached" if ratio >= least else "NOT reached"
            what = f"`{name}`: {ours[0]} ({ours[1]}) is {ratio:.2f} of {peer[0]} ({peer[1]})"
            said.append(f"{what}; at least {least:g} was the aim: {verdict}.")
    return said


if __name__ == "__main__":
    sys.exit(main())

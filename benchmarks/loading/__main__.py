"""Samples a second of our loader beside torch's, torchdata's, grain's and spdl's; several trials on one node as well.

Every round of a loader is a process of its own; the rounds of all loaders alternate; the rows are medians.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import distributions
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.loading import ends
from benchmarks.loading.sharing import NOTES as SHARING_NOTES
from benchmarks.loading.sharing import sharing_rows
from benchmarks.loading.workloads import WORKLOADS, workload
from benchmarks.machine import describe
from benchmarks.writing import Row, median_of, save

REPOSITORY = Path(__file__).resolve().parents[2]
TORCH = "torch, persistent workers"  # what ours is compared with
TIMEOUT_S = 300.0
MALLOC_KEPT = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "536870912"}
PEERS = ("torchdata", "grain", "spdl", "tensorsocket", "pyzmq")
GRAIN_PROCESSES = ("grain, processes", "2")  # they take seconds to start and to end
EVERY = (
    ("torch", "0"),
    ("torch, malloc kept", "0"),
    ("ours", "auto"),
    ("torch", "2"),
    (TORCH, "2"),
    ("ours", "2"),
    ("ours, processes", "2"),
    ("ours, threads", "2"),
    ("torchdata", "2"),
    ("grain", "0"),
    ("grain", "2"),
    GRAIN_PROCESSES,
    ("spdl", "2"),
)
# Of a whole run, which has to end in some minutes: what tells most of each workload. Others by --loader.
TOLD = {
    "tiny": {("torch", "0"), ("ours", "auto"), (TORCH, "2"), ("ours", "2"), ("grain", "0"), ("spdl", "2")},
    "jpeg": {*EVERY} - {("torch", "2"), ("ours", "auto"), ("ours, processes", "2"), ("grain", "0"), GRAIN_PROCESSES},
    "jpeg, cut": {(TORCH, "2"), ("ours", "2"), ("grain", "2"), ("spdl", "2")},
    "64 MiB": {("torch", "0"), ("torch, malloc kept", "0"), (TORCH, "2"), ("ours", "2"), ("grain", "2"), ("spdl", "2")},
    "together": {("torch", "0"), ("ours", "auto"), (TORCH, "2"), ("ours", "2"), ("grain", "2"), ("spdl", "2")},
}
NOTES = (
    (
        "A round is a process of its own: a second to warm up, with at least 20 batches and twice what the loader has "
        "ahead, then at least three seconds that are measured; starting is left out. No epoch ends meanwhile: "
        "one has 31,250 batches of `tiny`, 625 of `jpeg` and `jpeg, cut` (the same 1,000 files again and again), 4,000 "
        "of `64 MiB`, 7,812 of `together`; torch, torchdata and spdl hold the order of a whole epoch in memory. "
        "Each batch is dropped unread. Memory is the peak of the proportional set size of the trial and its workers "
        "while it warms up; processor time and page faults are those of the measured time. Medians of the rounds, with "
        "the least and the most in brackets; ratios are of the two loaders in the same round."
    ),
    (
        "Memory of malloc: `ours` has glibc keep what is freed (in its workers, up to 512 MiB); all others have its "
        "defaults, but `torch, malloc kept`, with MALLOC_MMAP_MAX_=0 and MALLOC_TRIM_THRESHOLD_=536870912."
    ),
    (
        "`torch, persistent workers`: `persistent_workers=True`; `torchdata` likewise, with a snapshot every 100 "
        "batches. `grain`: threads that make whole batches (`batch` before `to_iter_dataset`, four ahead), none with 0 "
        "workers, as it advises for what is in memory; `grain, processes` (with `--loader`): `mp_prefetch`. `spdl`: "
        "threads that make whole batches, in order, four ahead."
    ),
    (
        "`tiny`: 64 bytes a sample, 64 a batch. `jpeg`: 400 × 400 pixels of a photograph decoded to a float tensor, as "
        "torchvision's ToTensor does, 32 a batch. `jpeg, cut`: decoded, and 224 × 224 bytes kept: there is little to "
        "save where the decoder takes nearly all the time and its memory fits what glibc keeps anyway. "
        "`64 MiB`: 8 samples of 8 MiB that are there already. `together`: pictures of 3 KiB in a file that is mapped, "
        "256 a batch, all read by one call of the dataset's `__getitems__`."
    ),
)
# (workload, ours, peer, at least)
TARGETS = (
    ("tiny", ("ours", "2"), (TORCH, "2"), 2.0),
    ("tiny", ("ours", "auto"), ("torch", "0"), 0.9),
    ("jpeg", ("ours", "2"), (TORCH, "2"), 1.8),
    ("jpeg", ("ours", "2"), ("grain", "2"), 1.05),
    ("64 MiB", ("ours", "2"), (TORCH, "2"), 5.0),
    ("together", ("ours", "2"), (TORCH, "2"), 1.0),
)
Loader = tuple[str, str]  # and its workers
Round = dict[Loader, dict[str, Any]]  # what each measured, one after the other


def main() -> int:
    options = _options()
    machine = {**describe(), **_versions(options)}
    rounds: dict[str, list[Round]] = {}
    for name in options.workload or list(WORKLOADS):
        load = workload(name)  # a file that cannot be used is said before anything is measured
        load.make()
        for _ in range(options.rounds):
            one: Round = {}
            for loader in _loaders(options, name):
                one[loader] = _round(*loader, name, options.peers_path)
                print(load.name, *loader, one[loader], flush=True)
            rounds.setdefault(load.name, []).append(one)
    rows = [row for name, found in rounds.items() for row in solo_rows(name, found)]
    kept: list[Row] = [
        {"workload": name, **{", ".join(loader): row for loader, row in one.items()}}
        for name, found in rounds.items()
        for one in found
    ]
    notes = [*NOTES, *verdicts(rounds)]
    if not options.workload:
        rows += ends.measure(options.rounds)
        shared, shared_rounds = sharing_rows(options)
        rows, kept, notes = [*rows, *shared], [*kept, *shared_rounds], [*notes, *SHARING_NOTES]
    save(options.group, command=_command(options), machine=machine, rows=rows, notes=notes, rounds=kept)
    return 0


def _command(options: argparse.Namespace) -> str:
    command = f"python -m benchmarks.loading --rounds {options.rounds}"
    for name in ("workload", "loader"):
        command += "".join(f' --{name} "{Path(one).name}"' for one in getattr(options, name) or [])
    command += " --peers-path DIR" if options.peers_path else ""
    return command + "".join(f" --peer {named.partition('=')[0]}=PYTHON" for named in options.peer)


def _versions(options: argparse.Namespace) -> dict[str, str]:
    """Of what is measured beside ours, as far as it is there."""
    path = [options.peers_path, *sys.path] if options.peers_path else sys.path
    found = {}
    for name in ("torch", *PEERS):
        for one in islice(distributions(name=name, path=path), 1):
            found[name] = one.version
    for named in options.peer:
        name, _, python = named.partition("=")
        code = f"import importlib.metadata; print(importlib.metadata.version({name!r}))"
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
        found[name] = done.stdout.strip() or "not there"
    return found


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.loading", description=__doc__, allow_abbrev=False)
    parser.add_argument("--rounds", type=int, default=5, help="of each row, interleaved (default: 5)")
    parser.add_argument(
        "--workload", action="append", metavar="NAME|FILE.py", help=f"{', '.join(WORKLOADS)}, or a file with dataset()"
    )
    parser.add_argument("--loader", action="append", help="only these (default: those that tell most of each workload)")
    parser.add_argument("--peer", action="append", default=[], metavar="ray=PYTHON", help="an interpreter with Ray")
    parser.add_argument("--peers-path", default="", help="a folder with the peers, as `pip install --target` makes one")
    parser.add_argument("--group", default="loading", help="name of the result files (default: loading)")
    return parser.parse_args()


def _loaders(options: argparse.Namespace, name: str) -> list[Loader]:
    told = TOLD.get(name, {*EVERY})
    if options.loader is not None:
        return [loader for loader in EVERY if loader[0] in options.loader]
    return [loader for loader in EVERY if loader in told]


def _round(loader: str, workers: str, name: str, peers_path: str) -> dict[str, Any]:
    path = os.pathsep.join(filter(None, [str(REPOSITORY), peers_path, os.environ.get("PYTHONPATH", "")]))
    malloc = MALLOC_KEPT if loader == "torch, malloc kept" else {}
    command = [sys.executable, "-m", "benchmarks.loading.solo", loader, workers, name]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **malloc},
        )
    except subprocess.TimeoutExpired:
        return {"error": f"not done within {TIMEOUT_S:g} s"}
    if done.returncode != 0:
        return {"error": " ".join(done.stderr.strip().splitlines()[-1:])[:300]}
    row: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return row


def solo_rows(name: str, rounds: Sequence[Round]) -> list[Row]:
    """Of one workload."""
    rows: list[Row] = []
    for loader in rounds[0]:
        errors = [one[loader]["error"] for one in rounds if "error" in one[loader]]
        if errors:
            rows.append({"workload": name, "loader": loader[0], "workers": loader[1], "left out": errors[0]})
            continue
        found = [one[loader] for one in rounds]
        rows.append(
            {
                "workload": name,
                "loader": loader[0],
                "workers": loader[1],
                "samples/s": _spread([row["samples_s"] for row in found]),
                "× torch with 2 that stay": _spread(ratios(rounds, loader, (TORCH, "2"))),
                "processor µs a sample": median_of(found, "cpu_us"),
                "page faults a sample": round(median_of(found, "faults"), 1),
                "peak MiB": round(median_of(found, "peak_mib")),
            }
        )
    return rows


def ratios(rounds: Sequence[Round], loader: Loader, other: Loader) -> list[float]:
    """Of the rounds in which both were measured."""
    pairs = [(one.get(loader, {}), one.get(other, {})) for one in rounds]
    return [
        mine["samples_s"] / theirs["samples_s"]
        for mine, theirs in pairs
        if "samples_s" in mine and "samples_s" in theirs
    ]


def _spread(values: Sequence[float]) -> str | None:
    """The median, and from where to where they were."""
    if not values:
        return None
    return f"{_short(median(values))} ({_short(min(values))}–{_short(max(values))})"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def verdicts(rounds: Mapping[str, Sequence[Round]]) -> list[str]:
    said = []
    for name, ours, peer, least in TARGETS:
        found = ratios(rounds.get(name, ()), ours, peer)
        if found:
            verdict = "reached" if median(found) >= least else "NOT reached"
            what = f"`{name}`: {ours[0]} ({ours[1]}) is {_spread(found)} of {peer[0]} ({peer[1]})"
            said.append(f"{what}; at least {least:g} was the aim: {verdict}.")
    return said


if __name__ == "__main__":
    sys.exit(main())

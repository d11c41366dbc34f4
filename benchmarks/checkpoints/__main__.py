"""What a checkpoint of 200 MB every 20 steps costs a training loop; beside torch's own ways to save, in one run."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.machine import describe
from benchmarks.writing import Row, median_of, save

NOTES = (
    (
        "One process trains a perceptron of five layers with Adam on the CPU, all cores; weights and moments are the "
        "200 MB. It goes on in blocks of 20 steps, the kinds taking turns, with one checkpoint at the beginning of a "
        "block; `cost` is what the median block takes longer than the median one without. What is left to be written "
        "at the end of a block is waited for outside it, for every kind."
    ),
    (
        "`stall`: so long the loop waited at the save itself. Ours is complete when it is on the disk under its final "
        "name, synced, with its SHA-256; `torch.save` leaves it in the page cache, or is followed by `os.fsync`; "
        "`async_save` copies the state, and a thread writes and syncs it (`no_dist`, otherwise as it comes)."
    ),
    (
        "`alone`: each kind in processes of its own, a round each. `first`: the first save of the process, which asks "
        "for the memory that later ones use again. `memory`: the most that the process and all below it had at once "
        "(proportional set size), beyond that of the process without checkpoints."
    ),
)
TITLES = {
    "none": "no checkpoint",
    "ours": "`trial.save_checkpoint`",
    "torch": "`torch.save` in the loop",
    "torch_fsync": "`torch.save` and `os.fsync` in the loop",
    "async_save": "`torch.distributed.checkpoint.async_save`",
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checkpoints", description=__doc__, allow_abbrev=False)
    parser.add_argument("--rounds", type=int, default=5, help="of each kind, interleaved (default: 5)")
    parser.add_argument("--steps", type=int, default=20, help="of a block (default: 20)")
    parser.add_argument("--width", type=int, default=2048, help="of a layer; five of them (default: 2048, 200 MB)")
    parser.add_argument("--batch", type=int, default=128, help="samples of a step (default: 128)")
    options = parser.parse_args()
    machine = describe()
    found = _train(options, [])
    alone: dict[str, list[dict[str, Any]]] = {kind: [] for kind in TITLES}
    for _ in range(options.rounds):
        for kind, rounds in alone.items():
            rounds.append(_train(options, [kind]))
    command = f"python -m benchmarks.checkpoints --rounds {options.rounds}"
    rows = _rows(found, alone, options.steps)
    save("checkpoints", command=command, machine=machine, rows=rows, notes=NOTES, rounds=[found, alone])
    return 0


def _train(options: argparse.Namespace, further: list[str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "parameters.json").write_text("{}", encoding="utf-8")
        arguments = [str(getattr(options, name)) for name in ("rounds", "steps", "width", "batch")]
        finished = subprocess.run(
            [sys.executable, "-m", "benchmarks.checkpoints.training", *arguments, *further],
            env={**os.environ, "TUNER_ATTEMPT_DIR": folder},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    result: dict[str, Any] = json.loads(finished.stdout.splitlines()[-1])
    return result


def _rows(found: dict[str, Any], alone: dict[str, list[dict[str, Any]]], steps: int) -> list[Row]:
    without, plain = median(found["blocks"]["none"]), median_of(alone["none"], "peak_mib")
    rows = []
    for kind, blocks in found["blocks"].items():
        block = median(blocks)
        row: Row = {"what": TITLES[kind], "ms/step": round(block / steps * 1000, 1)}
        if kind != "none":
            row["cost"] = f"{(block / without - 1) * 100:.1f} %"
            row["stall ms"] = round(median(found["stalls"][kind]) * 1000, 1)
            row["alone: first ms"] = round(median_of(alone[kind], "first_s") * 1000, 1)
            row["alone: next ms"] = round(median_of(alone[kind], "next_s") * 1000, 1)
            row["memory MiB"] = round(median_of(alone[kind], "peak_mib") - plain)
            row["MB"] = round(found["bytes"] / 1e6)
        rows.append(row)
    return rows


if __name__ == "__main__":
    sys.exit(main())

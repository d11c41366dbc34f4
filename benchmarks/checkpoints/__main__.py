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
from benchmarks.writing import Row, median_of, save, spread

ALONE_ROUNDS = 3  # of processes of their own, at most: each imports torch and touches its memory anew
NOTES = (
    (
        "One process trains a perceptron of five layers with Adam on the CPU, all cores; weights and moments are the "
        "200 MB. It goes on in blocks of 20 steps. In every round each kind has a block with one checkpoint at its "
        "beginning and one without any directly before or after it, in turn; the kinds take turns at being the first. "
        "`a save costs`: how much longer the block with it took than the one without; `cost`: the same as a share. "
        "Medians, with the least and the most of the rounds; what is within the spread of the rounds is no difference "
        "between kinds. What is left to be written at the end of a block is waited for outside it, for every kind."
    ),
    (
        "`stall`: so long the loop waited for the save. Ours is complete when it is on the disk under its final name, "
        "synced, with its SHA-256; `torch.save` leaves it in the page cache, or is followed by `os.fsync`; "
        "`async_save` copies the state, and a thread writes and syncs it (`no_dist`). As it comes, it makes memory for "
        "the copy at each save. With a kept stager (`DefaultStager`, one for all saves) that memory is used again; "
        "nobody may save while the one before is still being written, which the script has to see to (here nothing is "
        "left to be written between two). Staged beside the loop (`use_async_staging`), a thread copies while the next "
        "step's gradients are computed, and the loop waits for it before the optimizer's step: the stall is the call "
        "and that wait. Pinned memory and copies that do not block are for CUDA devices, and off."
    ),
    (
        "`alone`: each kind in processes of its own, medians of up to three. `first`: the stall of the first save of "
        "the process, which asks for the memory that later ones use again. `memory`: in a further process, in which "
        "nothing is timed, the most that it and all below it had at once (proportional set size), beyond that of the "
        "process without checkpoints."
    ),
)
TITLES = {
    "ours": "`trial.save_checkpoint`",
    "torch": "`torch.save` in the loop",
    "torch_fsync": "`torch.save` and `os.fsync` in the loop",
    "async_save": "`torch.distributed.checkpoint.async_save`",
    "kept_stager": "`async_save`, one stager kept",
    "staged_beside": "`async_save`, one stager kept, staged beside the loop",
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checkpoints", description=__doc__, allow_abbrev=False)
    parser.add_argument("--rounds", type=int, default=5, help="of each kind, interleaved (default: 5)")
    parser.add_argument("--steps", type=int, default=20, help="of a block (default: 20)")
    parser.add_argument("--width", type=int, default=2048, help="of a layer; five of them (default: 2048, 200 MB)")
    parser.add_argument("--batch", type=int, default=128, help="samples of a step (default: 128)")
    options = parser.parse_args()
    machine = describe()
    found = train(options)
    kinds = [kind for kind in TITLES if kind not in found["errors"]]
    alone: dict[str, list[dict[str, Any]]] = {kind: [] for kind in TITLES}
    for round_ in range(min(options.rounds, ALONE_ROUNDS)):
        for kind in kinds[round_:] + kinds[:round_]:
            alone[kind].append(train(options, kind))
    memory = {kind: train(options, kind, "memory")["peak_mib"] for kind in ("none", *kinds)}
    command = f"python -m benchmarks.checkpoints --rounds {options.rounds}"
    kept = [*found["blocks"], {"alone": alone}, {"memory_mib": memory}]
    save(
        "checkpoints",
        command=command,
        machine=machine,
        rows=rows_of(found, alone, memory, options.steps),
        notes=NOTES,
        rounds=kept,
        of_rounds=options.rounds,
    )
    return 0


def train(options: argparse.Namespace, *further: str, device: str = "cpu") -> dict[str, Any]:
    """What ``training`` printed, which is run in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "parameters.json").write_text("{}", encoding="utf-8")
        arguments = [str(getattr(options, name)) for name in ("rounds", "steps", "width", "batch")]
        finished = subprocess.run(
            [sys.executable, "-m", "benchmarks.checkpoints.training", *arguments, *further],
            env={**os.environ, "TUNER_ATTEMPT_DIR": folder, "TRAINING_DEVICE": device},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    result: dict[str, Any] = json.loads(finished.stdout.splitlines()[-1])
    print(*further, {name: value for name, value in result.items() if name != "blocks"}, flush=True)
    return result


def rows_of(
    found: dict[str, Any], alone: dict[str, list[dict[str, Any]]], memory: dict[str, float], steps: int
) -> list[Row]:
    """The difference that a save makes is that of each round, of two blocks side by side. What was not looked at, of
    ``alone`` and ``memory``, has no column."""
    without = [one["without_s"] for one in found["blocks"]]
    rows: list[Row] = [{"what": "no checkpoint", "ms/step": round(median(without) / steps * 1000, 1)}]
    for kind, title in TITLES.items():
        if kind in found["errors"]:
            rows.append({"what": title, "left out": found["errors"][kind]})
            continue
        blocks = [one for one in found["blocks"] if one["kind"] == kind]
        row: Row = {"what": title}
        row["ms/step"] = round(median_of(blocks, "with_s") / steps * 1000, 1)
        row["a save costs, ms"] = spread([1000 * (one["with_s"] - one["without_s"]) for one in blocks], 0)
        row["cost, %"] = spread([100 * (one["with_s"] / one["without_s"] - 1) for one in blocks])
        row["stall, ms"] = spread([1000 * one["stall_s"] for one in blocks])
        if alone:
            row["alone: first, ms"] = round(1000 * median_of(alone[kind], "first_s"), 1)
            row["alone: next, ms"] = round(1000 * median_of(alone[kind], "next_s"), 1)
        if memory:
            row["memory, MiB"] = round(memory[kind] - memory["none"])
        row["MB"] = round(found["bytes"] / 1e6)
        rows.append(row)
    return rows


if __name__ == "__main__":
    sys.exit(main())

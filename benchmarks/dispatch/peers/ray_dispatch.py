"""Ray Tune: an actor process for each trial, or four that are used again; ten reports and a last one.

FOLDER SCRIPT COUNT [reused].
"""

import json
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")

import ray
from ray import tune


def trial(config):
    began = time.time()
    if config["imports_torch"]:
        import torch  # noqa: F401  as the load's script does
    for step in range(11):
        tune.report({"loss": 1 / (step + 1)})
    with open(config["times"], "a") as file:  # noqa: PTH123  # as the load's script
        file.write(f"{began!r} {time.time()!r}\n")


def main():
    folder, count = sys.argv[1], int(sys.argv[3])
    times = str(Path(sys.argv[2]).with_name("times"))
    imports_torch = "import torch" in Path(sys.argv[2]).read_text()
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    tuner = tune.Tuner(
        tune.with_resources(trial, {"cpu": 1}),
        param_space={"x": tune.uniform(0, 1), "imports_torch": imports_torch, "times": times},
        tune_config=tune.TuneConfig(num_samples=count, max_concurrent_trials=4, reuse_actors="reused" in sys.argv),
        run_config=tune.RunConfig(storage_path=folder, verbose=0),
    )
    results = tuner.fit()
    if results.errors:
        raise results.errors[0]
    print(json.dumps({"trials": len(results)}), flush=True)
    ray.shutdown()


if __name__ == "__main__":
    main()

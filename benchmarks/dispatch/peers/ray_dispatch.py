"""Ray Tune: an actor process for each trial, four at a time, ten reports and a last one. FOLDER TRIAL_SCRIPT COUNT."""

import json
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")

import ray
from ray import tune


def trial(config):
    if config["imports_torch"]:
        import torch  # noqa: F401  as the load's script does
    for step in range(11):
        tune.report({"loss": 1 / (step + 1)})


def main():
    folder, count = sys.argv[1], int(sys.argv[3])
    imports_torch = "import torch" in Path(sys.argv[2]).read_text()
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    tuner = tune.Tuner(
        tune.with_resources(trial, {"cpu": 1}),
        param_space={"x": tune.uniform(0, 1), "imports_torch": imports_torch},
        tune_config=tune.TuneConfig(num_samples=count, max_concurrent_trials=4, reuse_actors=False),
        run_config=tune.RunConfig(storage_path=folder, verbose=0),
    )
    begun = time.time()
    results = tuner.fit()
    seconds = time.time() - begun
    ray.shutdown()
    if results.errors:
        raise results.errors[0]
    print(json.dumps({"trials": len(results), "a_second": len(results) / seconds}))


if __name__ == "__main__":
    main()

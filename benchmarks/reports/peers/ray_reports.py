"""Ray Tune: four concurrent trials, ``tune.report`` in a loop. FOLDER COUNT."""

import json
import os
import sys
import time

os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")

import ray
from ray import tune


def trial(config):
    begun = time.time()
    for step in range(config["count"]):
        tune.report({"loss": 1 / (step + 1), "begun": begun})


def main():
    folder, count = sys.argv[1], int(sys.argv[2])
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    tuner = tune.Tuner(
        tune.with_resources(trial, {"cpu": 1}),
        param_space={"count": count, "x": tune.uniform(0, 1)},
        tune_config=tune.TuneConfig(num_samples=4, max_concurrent_trials=4),
        run_config=tune.RunConfig(storage_path=folder, verbose=0),
    )
    results = tuner.fit()
    begun, ended = min(r.metrics["begun"] for r in results), time.time()
    ray.shutdown()
    print(json.dumps({"reports": 4 * count, "a_second": 4 * count / (ended - begun)}))


if __name__ == "__main__":
    main()

"""Ray Tune: four concurrent trials, ``tune.report`` in a loop, each report stored once. FOLDER COUNT.

From the first trial's first report to the last one's last: what ``fit`` does before and after is not counted.
"""

import json
import os
import sys
import time

os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "1"  # it would write each to CSV and TensorBoard, too

import ray
from ray import tune
from ray.tune.logger import JsonLoggerCallback


def trial(config):
    begun = time.time()
    for step in range(config["count"]):
        tune.report({"loss": 1 / (step + 1), "begun": begun, "at": time.time()})


def main():
    folder, count = sys.argv[1], int(sys.argv[2])
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    tuner = tune.Tuner(
        tune.with_resources(trial, {"cpu": 1}),
        param_space={"count": count, "x": tune.uniform(0, 1)},
        tune_config=tune.TuneConfig(num_samples=4, max_concurrent_trials=4),
        run_config=tune.RunConfig(storage_path=folder, verbose=0, callbacks=[JsonLoggerCallback()]),
    )
    results = tuner.fit()
    begun, ended = min(r.metrics["begun"] for r in results), max(r.metrics["at"] for r in results)
    ray.shutdown()
    found = {"reports": 4 * count, "a_second": 4 * count / (ended - begun), "version": ray.__version__}
    print(json.dumps(found))


if __name__ == "__main__":
    main()

"""Ray Tune: an actor process for each trial, or four that are used again; ten reports each, stored once.

FOLDER SCRIPT COUNT [reused]. With ``reused``, the next search of the same process follows: its cluster is up.
"""

import json
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
os.environ["TUNE_DISABLE_AUTO_CALLBACK_LOGGERS"] = "1"  # by default each report is written three times

import ray
from ray import tune
from ray.tune.logger import JsonLoggerCallback

REST_S = 4.0  # as ours


def trial(config):
    began = time.time()
    if config["imports_torch"]:
        import torch  # noqa: F401  as the load's script does
    for step in range(10):
        tune.report({"loss": 1 / (step + 1)})
    with open(config["times"], "a") as file:  # noqa: PTH123  # as the load's script
        file.write(f"{began!r} {time.time()!r}\n")


def search(name, folder, script, count):
    tuner = tune.Tuner(
        tune.with_resources(trial, {"cpu": 1}),
        param_space={
            "x": tune.uniform(0, 1),
            "imports_torch": "import torch" in script.read_text(),
            "times": str(script.with_name("times")),
        },
        tune_config=tune.TuneConfig(num_samples=count, max_concurrent_trials=4, reuse_actors="reused" in sys.argv),
        run_config=tune.RunConfig(storage_path=folder, name=name, verbose=0, callbacks=[JsonLoggerCallback()]),
    )
    results = tuner.fit()
    if results.errors:
        raise results.errors[0]


def main():
    folder, script, count = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    search("first", folder, script, count)
    print(json.dumps({"trials": count, "version": ray.__version__}), flush=True)
    if "reused" in sys.argv:
        time.sleep(REST_S)
        began_at, begun = time.time(), time.perf_counter()
        search("next", folder, script, count)
        print(json.dumps({"began_at": began_at, "whole_s": time.perf_counter() - begun}), flush=True)
    ray.shutdown()


if __name__ == "__main__":
    main()

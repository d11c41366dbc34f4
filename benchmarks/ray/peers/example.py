"""Ray Tune's own example, as its page of key concepts has it, on a cluster. FOLDER TIMES COUNT ADDRESS [reused]."""

import json
import os
import sys
import time

os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")

import ray
from ray import tune


def objective(x, a, b):
    return a * (x**2) + b


def trainable(config):
    began = time.time()
    for x in range(20):
        score = objective(x, config["a"], config["b"])
        tune.report({"score": score})
    with open(config["times"], "a") as file:  # noqa: PTH123  # as our script
        file.write(f"{began!r} {time.time()!r}\n")


def main():
    folder, times, count, address = sys.argv[1:5]
    ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    tuner = tune.Tuner(
        tune.with_resources(trainable, {"cpu": 1}),
        param_space={"a": tune.uniform(0, 1), "b": tune.uniform(0, 1), "times": times},
        tune_config=tune.TuneConfig(num_samples=int(count), reuse_actors="reused" in sys.argv),
        run_config=tune.RunConfig(storage_path=folder, verbose=0),
    )
    results = tuner.fit()
    if results.errors:
        raise results.errors[0]
    print(json.dumps({"trials": len(results)}), flush=True)


if __name__ == "__main__":
    main()

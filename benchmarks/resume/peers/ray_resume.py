"""Ray Tune: four trials at a time, a checkpoint at every step; what is there already is restored.

FOLDER LOG COUNT [ADDRESS] [reused] [often]. ``often``: the state of the search is saved once a second and with each
checkpoint of a trial, not only every ten seconds.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
if "often" in sys.argv:
    os.environ["TUNE_GLOBAL_CHECKPOINT_S"] = "1"

import ray
from ray import tune

STEPS, STEP_S = 10, 0.05


def note(log, *words):
    with open(log, "a") as file:  # noqa: PTH123  # as the other trials
        file.write(" ".join(map(repr, words)) + f" {time.time()!r}\n")
        file.flush()
        os.fsync(file.fileno())


def trial(config):
    x, begin = config["x"], 0
    kept = tune.get_checkpoint()
    if kept is not None:
        with kept.as_directory() as folder:
            begin = json.loads(Path(folder, "step.json").read_text()) + 1
    note(config["log"], "began", x)
    for step in range(begin, STEPS):
        time.sleep(STEP_S)
        note(config["log"], "step", x, step)
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "step.json").write_text(json.dumps(step))
            tune.report({"loss": x}, checkpoint=tune.Checkpoint.from_directory(folder))
    note(config["log"], "ended", x)


def main():
    folder, log, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    addresses = [word for word in sys.argv[4:] if word not in {"reused", "often"}]
    where = {"address": addresses[0]} if addresses else {"num_cpus": 4, "include_dashboard": False}
    ray.init(**where, log_to_driver=False, logging_level="ERROR")
    trainable, path = tune.with_resources(trial, {"cpu": 1}), f"{folder}/search"
    space = {"x": tune.uniform(0, 1), "log": log}
    if tune.Tuner.can_restore(path):
        tuner = tune.Tuner.restore(path, trainable, resume_unfinished=True, restart_errored=True, param_space=space)
    else:
        from ray.tune.search.basic_variant import BasicVariantGenerator

        tuner = tune.Tuner(
            trainable,
            param_space=space,
            tune_config=tune.TuneConfig(
                num_samples=count,
                search_alg=BasicVariantGenerator(max_concurrent=4, random_state=1),
                reuse_actors="reused" in sys.argv,
            ),
            run_config=tune.RunConfig(
                storage_path=folder,
                name="search",
                verbose=0,
                checkpoint_config=tune.CheckpointConfig(num_to_keep=1 if "often" in sys.argv else None),
            ),
        )
    tuner.fit()


if __name__ == "__main__":
    main()

"""Syne Tune: its local backend, four workers, a process for each trial. FOLDER SCRIPT COUNT."""

import json
import logging
import os
import sys
from importlib.metadata import version
from pathlib import Path

TRIAL = """
import time; began = time.time()
import argparse
{imports}
from syne_tune import Reporter

parser = argparse.ArgumentParser()
parser.add_argument("--x", type=float)
parser.parse_known_args()
report = Reporter()
for step in range(10):
    report(step=step + 1, loss=1 / (step + 1))
with open({times!r}, "a") as file:
    file.write(f"{{began!r}} {{time.time()!r}}\\n")
"""


def main():
    folder, count = Path(sys.argv[1]), int(sys.argv[3])
    os.environ["SYNETUNE_FOLDER"] = str(folder)
    from syne_tune import StoppingCriterion, Tuner
    from syne_tune.backend import LocalBackend
    from syne_tune.config_space import uniform
    from syne_tune.optimizer.baselines import RandomSearch

    logging.getLogger().setLevel(logging.ERROR)
    imports = "import torch" if "import torch" in Path(sys.argv[2]).read_text() else ""  # as the load's script
    times = str(Path(sys.argv[2]).with_name("times"))
    (folder / "trial.py").write_text(TRIAL.format(imports=imports, times=times))
    scheduler = RandomSearch(config_space={"x": uniform(0, 1)}, metrics=["loss"])
    tuner = Tuner(
        trial_backend=LocalBackend(entry_point=str(folder / "trial.py")),
        scheduler=scheduler,
        stop_criterion=StoppingCriterion(max_num_trials_finished=count),
        n_workers=4,
        sleep_time=0.01,  # by default 5 s between two looks at the trials
        save_tuner=False,
        suffix_tuner_name=False,
    )
    tuner.run()
    print(json.dumps({"trials": count, "version": version("syne-tune")}), flush=True)


if __name__ == "__main__":
    main()

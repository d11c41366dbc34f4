"""NNI's TPE: seconds of one suggestion, and of telling its outcome. FOLDER TRIALS ASKED."""

import json
import sys
import time
from pathlib import Path

from nni.algorithms.hpo.tpe_tuner import TpeTuner

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from benchmarks.suggest.space import SPACE, history, loss  # the path comes first

_, _, trials, asked = sys.argv
space = {**SPACE, "width": {"_type": "qloguniform", "_value": [16, 1024, 1]}}
tuner = TpeTuner(optimize_mode="minimize", seed=1)
tuner.update_search_space(space)
tuner.import_data([{"parameter": point, "value": value} for point, value in history(int(trials))])
times, told = [], []
for number in range(int(asked) + 1):
    begun = time.perf_counter()
    parameters = tuner.generate_parameters(number)
    times.append(time.perf_counter() - begun)
    value = loss(parameters)
    begun = time.perf_counter()
    tuner.receive_trial_result(number, parameters, value)
    told.append(time.perf_counter() - begun)
print(json.dumps({"first_s": times[0], "s": times[1:], "told_s": told[1:]}))

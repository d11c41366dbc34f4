"""NNI: its local training service, four trials at a time, ten reports and a final result each. FOLDER SCRIPT COUNT."""

import json
import socket
import sys
import time
from pathlib import Path

from nni.experiment import Experiment

TRIAL = """
import nni

nni.get_next_parameter()
for step in range(10):
    nni.report_intermediate_result(1 / (step + 1))
nni.report_final_result(1 / 11)
"""


def main():
    folder, count = Path(sys.argv[1]), int(sys.argv[3])
    imports = "import torch\n" if "import torch" in Path(sys.argv[2]).read_text() else ""  # as the load's script
    (folder / "trial.py").write_text(imports + TRIAL)
    experiment = Experiment("local")
    config = experiment.config
    config.trial_command = f"{sys.executable} trial.py"
    config.trial_code_directory = folder
    config.experiment_working_directory = folder / "experiments"
    config.search_space = {"x": {"_type": "uniform", "_value": [0, 1]}}
    config.tuner.name = "Random"
    config.max_trial_number = count
    config.trial_concurrency = 4
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    begun = time.time()
    experiment.run(port)
    ended = time.time()
    jobs = experiment.export_data()
    experiment.stop()
    print(json.dumps({"trials": len(jobs), "a_second": len(jobs) / (ended - begun)}))


if __name__ == "__main__":
    main()

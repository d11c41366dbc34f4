"""NNI: its local training service, four trials at a time, ten reports and a final result each. FOLDER SCRIPT COUNT."""

import json
import socket
import sys
import time
from importlib.metadata import version
from pathlib import Path

from nni.experiment import Experiment, launcher

START_S = 60  # NNI gives its web server three seconds, and is left out of a result where it took four
LOOK_S = 0.05

TRIAL = """
import time; began = time.time()
{imports}
import nni

nni.get_next_parameter()
for step in range(10):
    nni.report_intermediate_result(1 / (step + 1))
nni.report_final_result(1 / 11)
with open({times!r}, "a") as file:
    file.write(f"{{began!r}} {{time.time()!r}}\\n")
"""


def main():
    launcher._check_rest_server.__defaults__ = (START_S, None)  # noqa: SLF001  no option says it
    folder, count = Path(sys.argv[1]), int(sys.argv[3])
    imports = "import torch" if "import torch" in Path(sys.argv[2]).read_text() else ""  # as the load's script
    times = str(Path(sys.argv[2]).with_name("times"))
    (folder / "trial.py").write_text(TRIAL.format(imports=imports, times=times))
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
    experiment.run(port, wait_completion=False)  # which would look once in ten seconds
    while experiment.get_status() not in {"DONE", "NO_MORE_TRIAL", "STOPPED", "ERROR"}:
        time.sleep(LOOK_S)
    while experiment.get_status() == "NO_MORE_TRIAL":
        time.sleep(LOOK_S)
    print(json.dumps({"trials": len(experiment.export_data()), "version": version("nni")}), flush=True)
    experiment.stop()


if __name__ == "__main__":
    main()

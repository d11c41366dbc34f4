"""OSS Vizier: its gRPC service on SQLite, a subprocess for each trial, four clients; then the next study of the server.

FOLDER SCRIPT COUNT.
"""

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version

from vizier.service import clients, servers
from vizier.service import pyvizier as vz

REST_S = 4.0  # as ours


def search(name, script, count):
    config = vz.StudyConfig(algorithm="RANDOM_SEARCH")
    config.search_space.root.add_float_param("x", 0.0, 1.0)
    config.metric_information.append(vz.MetricInformation("loss", goal=vz.ObjectiveMetricGoal.MINIMIZE))
    study = clients.Study.from_study_config(config, owner="benchmark", study_id=name)

    def work(worker):
        for _ in range(count // 4 + (worker < count % 4)):
            (trial,) = study.suggest(count=1, client_id=f"worker{worker}")
            command = [sys.executable, script, f"--x={trial.parameters['x']}"]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            for step, line in enumerate(done.stdout.splitlines()):
                value = float(line.partition("loss=")[2].split()[0])
                trial.add_measurement(vz.Measurement({"loss": value}, steps=step))
            trial.complete(vz.Measurement({"loss": value}))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))


def main():
    folder, script, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    server = servers.DefaultVizierServer(database_url=f"sqlite:///{folder}/vizier.db")
    clients.environment_variables.server_endpoint = server.endpoint
    search("first", script, count)
    print(json.dumps({"trials": count, "version": version("google-vizier")}), flush=True)
    time.sleep(REST_S)
    began_at, begun = time.time(), time.perf_counter()
    search("next", script, count)
    print(json.dumps({"began_at": began_at, "whole_s": time.perf_counter() - begun}), flush=True)


if __name__ == "__main__":
    main()

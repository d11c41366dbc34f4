"""Syne Tune: four processes with a Reporter each, its output in a file as the local backend has it. FOLDER COUNT."""

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

TRIAL = """
import sys
from syne_tune import Reporter
reporter = Reporter()
for step in range(int(sys.argv[1])):
    reporter(step=step, loss=1 / (step + 1))
import time
sys.stderr.write(str(time.time()))
"""


def start(folder, number, count):
    with (folder / f"{number}.out").open("w") as out, (folder / f"{number}.err").open("w") as err:
        return subprocess.Popen([sys.executable, "-c", TRIAL, str(count)], stdout=out, stderr=err)


def main():
    folder, count = Path(sys.argv[1]), int(sys.argv[2])
    for worker in [start(folder, number, count) for number in range(4)]:
        worker.wait()
    begun, ended = [], []
    for number in range(4):
        with (folder / f"{number}.out").open() as out:
            first = next(line for line in out if "tune-metric" in line)
        begun.append(json.loads(first.partition("]:")[2])["st_worker_timestamp"])
        ended.append(float((folder / f"{number}.err").read_text().strip().splitlines()[-1]))
    found = {"reports": 4 * count, "a_second": 4 * count / (max(ended) - min(begun))}
    print(json.dumps({**found, "version": version("syne-tune")}))


if __name__ == "__main__":
    main()

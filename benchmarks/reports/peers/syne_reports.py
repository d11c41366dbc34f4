"""Syne Tune: four processes with a Reporter each, whose output goes to a file as its local backend does it. FOLDER COUNT."""

import json
import subprocess
import sys
import time

TRIAL = """
import sys
from syne_tune import Reporter
reporter = Reporter()
for step in range(int(sys.argv[1])):
    reporter(step=step, loss=1 / (step + 1))
import time
sys.stderr.write(str(time.time()))
"""


def main():
    folder, count = sys.argv[1], int(sys.argv[2])
    workers = []
    for number in range(4):
        out, err = open(f"{folder}/{number}.out", "w"), open(f"{folder}/{number}.err", "w")
        workers.append(subprocess.Popen([sys.executable, "-c", TRIAL, str(count)], stdout=out, stderr=err))
    for worker in workers:
        worker.wait()
    begun, ended = [], []
    for number in range(4):
        with open(f"{folder}/{number}.out") as out, open(f"{folder}/{number}.err") as err:
            first = next(line for line in out if "tune-metric" in line)
            begun.append(json.loads(first.partition("]:")[2])["st_worker_timestamp"])
            ended.append(float(err.read().strip().splitlines()[-1]))
    print(json.dumps({"reports": 4 * count, "a_second": 4 * count / (max(ended) - min(begun))}))


if __name__ == "__main__":
    main()

"""Ray: the decoded photographs once in its object store, as ``tune.with_parameters`` puts data there, and an actor for
each trial, which reads them without a copy.

FILE TRIALS PASSES FOLDER. It says "ready" after the first pass of all actors, waits for a line, and says how many
samples the measured passes had and how long the photographs took into the store.
"""

import json
import os
import sys
import time

import numpy as np
import ray

from benchmarks.loading.decoded import decoded_batches


@ray.remote(num_cpus=1)
class Trial:
    def __init__(self, images):
        self.images, self.rng = images, np.random.default_rng(os.getpid())

    def passes(self, count):
        return sum(len(images) for _ in range(count) for images, _ in decoded_batches(self.images, self.rng))


def main():
    file, trials, passes, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    ray.init(num_cpus=trials, include_dashboard=False, log_to_driver=False, logging_level="ERROR", _temp_dir=folder)
    begun = time.perf_counter()
    images = ray.put(np.load(file))
    put_s = time.perf_counter() - begun
    actors = [Trial.remote(images) for _ in range(trials)]
    ray.get([actor.passes.remote(1) for actor in actors])
    print("ready", flush=True)
    sys.stdin.readline()
    samples = sum(ray.get([actor.passes.remote(passes) for actor in actors]))
    print(json.dumps({"samples": samples, "put_s": put_s}), flush=True)
    sys.stdin.readline()
    ray.shutdown()


if __name__ == "__main__":
    main()

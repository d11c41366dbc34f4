"""How long one actor takes on a cluster, from the call that makes it to its first answer. FOLDER ADDRESS COUNT."""

import json
import sys
import time

import ray


class Actor:
    def ready(self) -> float:
        return time.time()


def main() -> None:
    ray.init(address=sys.argv[2], log_to_driver=False, logging_level="ERROR")
    taken = []
    for _ in range(int(sys.argv[3])):
        begun = time.perf_counter()
        actor = ray.remote(Actor).options(num_cpus=1).remote()
        ray.get(actor.ready.remote())
        taken.append(time.perf_counter() - begun)
        ray.kill(actor)
    print(json.dumps({"seconds": taken}), flush=True)


if __name__ == "__main__":
    main()

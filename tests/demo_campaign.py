"""The demo again and again on a machine that is busy: ``make demo-campaign``, or ``python -m tests.demo_campaign``.

Rounds with as many busy loops as there are cores, then rounds with nine times as many, in which the demo gets about a
tenth of the machine. Every one must hold what it promises.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time

ROUND_TIMEOUT_S = 7_200.0  # one that hangs is a fault, however slow the machine
LOOPS_FOR_A_TENTH = 9  # of each core


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.demo_campaign", description=__doc__, allow_abbrev=False)
    parser.add_argument("--busy", type=int, default=20, help="rounds with both cores busy (default: 20)")
    parser.add_argument("--slow", type=int, default=3, help="rounds at a tenth of the speed (default: 3)")
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    rounds = [cores] * options.busy + [cores * LOOPS_FOR_A_TENTH] * options.slow
    failed = sum(not _holds(number, loops) for number, loops in enumerate(rounds, start=1))
    print(f"{len(rounds) - failed} of {len(rounds)} held")
    return 1 if failed else 0


def _holds(number: int, loops: int) -> bool:
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(loops)]
    began = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "examples.demo"],
            check=False,
            capture_output=True,
            text=True,
            timeout=ROUND_TIMEOUT_S,
        )
    finally:
        for loop in busy:
            loop.kill()
            loop.wait()
    print(
        f"round {number}, {loops} busy loops: exit code {done.returncode}, {time.monotonic() - began:.0f} s", flush=True
    )
    if done.returncode:
        print(done.stdout + done.stderr, flush=True)
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())

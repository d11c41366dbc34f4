"""How long everybody waits while one hostile request is served, for every kind of them.

python -m tests.freeze_campaign [--only WORDS]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.hostile_requests import Hostile, a_service, an_experiment_to_attack, hostile_requests, probing, send
from tuner_service.client import Client

LONGEST_WAIT_S = 0.3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--only", default="", help="requests whose name has these words")
    arguments = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as folder, a_service(Path(folder)) as (url, token):
        client = Client(url, token)
        experiment_id = an_experiment_to_attack(client)
        client.close()
        for hostile in hostile_requests():
            if arguments.only in hostile.name:
                failed += not _is_survived(url, token, hostile, experiment_id)
    print(f"{failed} requests kept everybody waiting for longer than {LONGEST_WAIT_S} s")
    return 1 if failed else 0


def _is_survived(url: str, token: str, hostile: Hostile, experiment_id: str) -> bool:
    size = len(hostile.body()) / (1 << 20)
    with probing(url) as waits:
        begun = time.perf_counter()
        status = send(url, token, hostile, experiment_id)
        took_s = time.perf_counter() - begun
    is_survived = waits.longest_s <= LONGEST_WAIT_S and status < 500
    print(
        f"{'ok  ' if is_survived else 'FAIL'} {status} in {took_s:6.2f} s, others waited {waits.longest_s:5.3f} s: "
        f"{hostile.method} of {size:.1f} MiB, {hostile.name}",
        flush=True,
    )
    return is_survived


if __name__ == "__main__":
    sys.exit(main())

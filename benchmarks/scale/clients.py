"""Many clients that read over REST, each with a connection of its own."""

from __future__ import annotations

import http.client
import random
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any
from urllib.parse import urlsplit

THINK_S = 0.1  # between an answer and the client's next request


@dataclass
class Tally:
    """``seconds`` of each answer, and what was wrong."""

    seconds: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def measure(address: dict[str, Any], paths: list[str], *, clients: int, seconds: float) -> dict[str, Any]:
    token = Path(address["token_file"]).read_text(encoding="utf-8").strip()
    tally = Tally()
    until, used = time.monotonic() + seconds, time.process_time()
    threads = [
        threading.Thread(
            target=_client, args=(address["url"], token), kwargs={"paths": paths, "until": until, "tally": tally}
        )
        for _ in range(clients)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {
        "answers": len(tally.seconds),
        "median_ms": 1000 * median(tally.seconds),
        "p99_ms": 1000 * quantiles(tally.seconds, n=100)[98],
        "client_ms": 1000 * (time.process_time() - used) / max(1, len(tally.seconds)),
        "errors": tally.errors[:3],
    }


def _client(url: str, token: str, *, paths: list[str], until: float, tally: Tally) -> None:
    chance = random.Random()
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=30)
    try:
        while time.monotonic() < until:
            begun = time.monotonic()
            connection.request("GET", chance.choice(paths), headers={"Authorization": f"Bearer {token}"})
            answer = connection.getresponse()
            body = answer.read()
            tally.seconds.append(time.monotonic() - begun)
            if answer.status != 200 or b"database is locked" in body:
                tally.errors.append(f"{answer.status}: {body[:200]!r}")
            time.sleep(THINK_S * chance.uniform(0.5, 1.5))
    except OSError as error:
        tally.errors.append(repr(error))
    finally:
        connection.close()

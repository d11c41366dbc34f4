"""A search that runs while its service is killed again and again: what streams told adds up to what the rows say."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import threading
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.command_line import COMMAND_TIMEOUT_S, CommandLine, Process, command_line
from tests.integration.api.test_event_streams import Events, ids
from tests.waiting import wait_until

KILLS = 3
BUDGET = {"trials": 9, "parallel": 3}
TRIAL = {"code": "code", "command": "python train.py 25 0.06", "stop_grace": "2s"}


class Follower(threading.Thread):
    """Reads a stream, and comes back with the last id whenever it breaks off."""

    def __init__(self, tuner: CommandLine, path: str) -> None:
        super().__init__(daemon=True)
        self._tuner, self._path = tuner, path
        self.told: list[dict[str, Any]] = []
        self.ends = threading.Event()
        self.streams: list[int] = []  # how much was told when each began

    def run(self) -> None:
        while not self.ends.is_set():
            try:
                address = json.loads((self._tuner.home / "service.json").read_text())["url"].removeprefix("http://")
                host, port = address.split(":")
                last = next((event["id"] for event in reversed(self.told) if event["id"]), "")
                stream = Events(self._tuner.home, host, int(port), last=last, path=self._path)
            except (OSError, ValueError, AssertionError):
                self.ends.wait(0.02)
                continue
            self.streams.append(len(self.told))
            while (event := stream.next()) is not None and not self.ends.is_set():
                self.told.append(event)
            stream.close()

    def state(self) -> dict[int, tuple[Any, ...]]:
        """Each trial as the newest patch with it says."""
        found: dict[int, tuple[Any, ...]] = {}
        for event in list(self.told):
            for columns in event["data"].get("trials", {}).values():
                rows = zip(columns["number"], columns["status"], columns["step"], columns["value"], strict=True)
                found |= {number: rest for number, *rest in map(tuple, rows)}
        return {number: tuple(rest) for number, rest in found.items()}

    def status(self) -> str | None:
        named = [e["status"] for event in list(self.told) for e in event["data"].get("experiments", ())]
        return named[-1] if named else None


def restarted(tuner: CommandLine) -> Process:
    pid = tuner.service_pid()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text())
    (tuner.home / "service.json").unlink(missing_ok=True)
    service = tuner.start("serve")
    wait_until((tuner.home / "service.json").exists)
    return service


def test_what_streams_tell_of_a_search_adds_up_to_its_rows_however_often_the_service_is_killed(tmp_path: Path) -> None:
    services: list[Process] = []
    with command_line(tmp_path) as tuner:
        tuner.begin_service()
        experiment_id = tuner.run("start", tuner.experiment_file(budget=BUDGET, trial=TRIAL)).strip()
        one = Follower(tuner, f"/api/v1/experiments/{experiment_id}/events")
        everything = Follower(tuner, "/api/v1/events")
        for follower in (one, everything):
            follower.start()
            wait_until(lambda follower=follower: follower.told)
        for _ in range(KILLS):
            before = len(one.told)
            wait_until(lambda before=before: len(one.told) > before + 2 or one.status() == "completed")
            services.append(restarted(tuner))
        wait_until(lambda: one.status() == everything.status() == "completed")
        for follower in (one, everything):
            follower.ends.set()
        with closing(sqlite3.connect(f"file:{tuner.home}/tuner.db?mode=ro", uri=True)) as connection:
            query = "SELECT number, status, last_step, value FROM trials WHERE experiment_id = ?"
            rows = {number: tuple(rest) for number, *rest in connection.execute(query, (experiment_id,))}

    for service in services:
        service.communicate(timeout=COMMAND_TIMEOUT_S)

    assert one.state() == rows
    for follower in (one, everything):
        assert len(follower.streams) == KILLS + 1
        assert {event["event"] for event in follower.told} <= {"begin", "patch", "heartbeat", "cluster"}
        _require_each_once(follower)


def _require_each_once(follower: Follower) -> None:
    """Within a stream each id is greater than the one before; its first goes on from the last of the one before."""
    bounds = [*follower.streams, len(follower.told)]
    numbered = [ids(follower.told[begin:end]) for begin, end in pairwise(bounds)]
    for told in numbered:
        assert told == sorted(set(told)), told
    for before, after in pairwise(numbered):
        assert after[0] >= before[-1]

"""Processes that hold a database on a server, and threads that wait for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.contract.stores import StillClock
from tests.waiting import wait_until
from tuner_service.storage.engine import open_store

REPOSITORY = Path(__file__).resolve().parents[1]
# Holds the database; for each line on its input one more trial is committed, or what refused it is told.
HOLDER = """
import sys
from tests.builders import START, a_trial
from tests.contract.stores import changes_for
from tuner_service.storage.engine import open_store
from tuner_service.storage.faults import translated

class Clock:
    def now(self):
        return START

store = open_store(sys.argv[1], Clock())
print("held", flush=True)
for number, line in enumerate(sys.stdin, 1):
    try:
        if line == "inside\\n":
            with translated(), store.begin() as connection:
                connection.exec_driver_sql("UPDATE trials SET message = 'of the one before'")
                print("inside", flush=True)
                sys.stdin.readline()
        else:
            store.commit(changes_for(a_trial(number=number)))
        print("done", flush=True)
    except Exception as error:
        print(type(error).__name__, store.is_in_place(), flush=True)
"""


class Holder:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def answers(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def say(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)


@contextmanager
def holder_of(url: str) -> Iterator[Holder]:
    command = [sys.executable, "-c", HOLDER, url]
    with subprocess.Popen(command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        holder = Holder(process)
        try:
            assert holder.answers() == "held"
            yield holder
        finally:
            process.kill()


def a_standby(url: str) -> tuple[threading.Thread, list[Any]]:
    """Waits already when it is returned; what it opens, and when, comes into the list."""
    waits, opened = threading.Event(), list[Any]()

    def stand_by() -> None:
        opened.append(open_store(url, StillClock(), waits=waits.set))
        opened.append(time.monotonic())

    thread = threading.Thread(target=stand_by)
    thread.start()
    assert waits.wait(10)
    return thread, opened


def seconds_until(opened: list[Any], since: float) -> float:
    wait_until(lambda: len(opened) == 2)
    return float(opened[1]) - since

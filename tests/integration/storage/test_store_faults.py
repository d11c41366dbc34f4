"""The store in processes that are killed, and on a disk that is full."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.builders import EXPERIMENT_ID, START
from tuner_service.domain.errors import StorageError
from tuner_service.storage.engine import open_store

REPOSITORY = Path(__file__).parents[3]

PREAMBLE = """
import os, resource, signal, sys
import random
from contextlib import closing
from pathlib import Path

from sqlalchemy import event

from tests.builders import *
from tuner_service.dispatcher.changes import Changes
from tuner_service.domain.errors import UnavailableError
from tuner_service.storage.engine import open_store

class Clock:
    def now(self):
        return START

def step(n):
    attempt = an_attempt(number=n)
    return Changes(
        experiments={EXPERIMENT_ID: an_experiment(next_line=n, tuner_cursor=n)},
        trials={(EXPERIMENT_ID, n): a_trial(number=n)},
        attempts={attempt.key: attempt},
        journal=[a_line(line=n, payload={"number": n})],
        metrics=[a_metric(number=n, sequence=s, line=n) for s in range(1, 200)],
        checkpoints=[a_checkpoint(number=n, digest=str(n))],
        blobs={str(n): random.Random(n).randbytes(3_000_000)},
    )

path = Path(sys.argv[1])
"""

KILLED_AT_EACH_STATEMENT = """
def commit_until_killed(n, statement):
    executed = 0
    def after(*_):
        nonlocal executed
        executed += 1
        if executed == statement:
            os.kill(os.getpid(), signal.SIGKILL)
    store = open_store(path, Clock())
    event.listen(store._writer._connection, "after_cursor_execute", after)
    store.commit(step(n))
    os._exit(0)

def rows():
    with closing(open_store(path, Clock())) as store:
        (loaded,) = store.load()
        lines = len(store.queries.journal(EXPERIMENT_ID))
        metrics = len(store.queries.metrics(EXPERIMENT_ID, lines))
        blobs = [n for n in range(1, lines + 3) if store.queries.blob(str(n)) is not None]
        return loaded.experiment.next_line, len(loaded.trials), len(loaded.attempts), lines, metrics, len(blobs)

with closing(open_store(path, Clock())) as store:
    store.commit(step(1))
before = rows()
statement, status = 0, -signal.SIGKILL
while status == -signal.SIGKILL:
    statement += 1
    child = os.fork()
    if child == 0:
        commit_until_killed(2, statement)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert rows() == (before if status else (2, 2, 2, 2, 199, 2)), (statement, status, rows())
assert status == 0 and statement > 8, (statement, status)
"""

DISK_FULL = """
def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

with closing(open_store(path, Clock())) as store:
    store.commit(step(1))
    limit(20_000_000)
    saved = 1
    try:
        while saved < 100:
            store.commit(step(saved + 1))
            saved += 1
    except UnavailableError as refusal:
        print(refusal)
    assert 1 < saved < 100
    assert store.load()[0].experiment.next_line == saved
    try:
        store.commit(step(saved + 1))
    except UnavailableError:
        pass
    else:
        raise AssertionError("there was no room")
    limit(resource.RLIM_INFINITY)
    store.commit(step(saved + 1))
    assert store.load()[0].experiment.next_line == saved + 1
    assert len(store.queries.journal(EXPERIMENT_ID)) == saved + 1
"""

HOLDING = """
store = open_store(path, Clock())
store.commit(step(1))
print("held", flush=True)
sys.stdin.read()
"""


def run(program: str, path: Path) -> str:
    command = [sys.executable, "-c", PREAMBLE + program, str(path)]
    done = subprocess.run(command, cwd=REPOSITORY, check=False, timeout=120, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_commit_killed_after_any_statement_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    run(KILLED_AT_EACH_STATEMENT, tmp_path / "tuner.db")


@pytest.mark.slow
def test_a_full_disk_refuses_commits_and_loses_none_and_they_work_when_there_is_room(tmp_path: Path) -> None:
    assert "nothing was changed" in run(DISK_FULL, tmp_path / "tuner.db")


@pytest.mark.slow
def test_a_killed_service_frees_the_database_and_leaves_what_it_committed(tmp_path: Path) -> None:
    path = tmp_path / "tuner.db"
    command = [sys.executable, "-c", PREAMBLE + HOLDING, str(path)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StorageError, match=f"in use by process {holder.pid}"):
            open_store(path, StillClock())
        holder.kill()

    with closing(open_store(path, StillClock())) as store:
        assert [trial.number for trial in store.queries.trials(EXPERIMENT_ID)] == [1]


class StillClock:
    def now(self) -> float:
        return START

"""The analyst as a process: what it answers, and what happens when it dies or nobody waits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders import EXPERIMENT_ID, START, a_trial, an_experiment
from tests.waiting import wait_until
from tuner_service.analyst import process as process_module
from tuner_service.analyst.process import AnalystProcess
from tuner_service.clock import SystemClock
from tuner_service.dispatcher.changes import Changes
from tuner_service.domain.errors import NotFoundError, UnavailableError
from tuner_service.domain.trial import TrialStatus
from tuner_service.service.questions import Kind, NotWantedError, Question
from tuner_service.storage.engine import open_store
from tuner_service.storage.sql_store import SqlStore

BEST = Question(kind=Kind.BEST, experiment_id=EXPERIMENT_ID)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    found = open_store(tmp_path / "tuner.db", SystemClock())
    found.commit(Changes(experiments={EXPERIMENT_ID: an_experiment()}))
    put(found, 3)
    yield found
    found.close()


@pytest.fixture
def analyst(store: SqlStore, tmp_path: Path) -> Iterator[AnalystProcess]:
    found = AnalystProcess(database=str(tmp_path / "tuner.db"))
    yield found
    found.close()


def put(store: SqlStore, count: int, *, first: int = 1) -> None:
    trials = {
        (EXPERIMENT_ID, number): a_trial(
            number=number, status=TrialStatus.SUCCEEDED, value=1 / number, told_line=number, ended_at=START + number
        )
        for number in range(first, first + count)
    }
    store.commit(Changes(trials=trials))


def wanted() -> None:
    """Somebody waits."""


def best_of(analyst: AnalystProcess) -> int:
    found: int = json.loads(analyst.ask(BEST, wanted).body)["best"]["number"]
    return found


def test_it_answers_of_every_commit_before_the_question(analyst: AnalystProcess, store: SqlStore) -> None:
    assert best_of(analyst) == 3
    put(store, 4, first=4)
    assert best_of(analyst) == 7


def test_a_long_answer_comes_whole_and_compressed_if_asked(analyst: AnalystProcess, store: SqlStore) -> None:
    put(store, 5_000, first=4)
    options = {"columns": ["number", "value", "parameters"], "statuses": [], "after": 0, "limit": 100_000}
    options |= {"since": None, "digits": 6, "now": START}
    whole = analyst.ask(Question(kind=Kind.TABLE, experiment_id=EXPERIMENT_ID, options=options), wanted)
    assert len(json.loads(whole.body)["columns"]["number"]) == 5_003
    packed = analyst.ask(
        Question(kind=Kind.TABLE, experiment_id=EXPERIMENT_ID, options=options, compressed=True), wanted
    )
    assert (packed.compressed, packed.tag) == (True, whole.tag)
    assert len(packed.body) < len(whole.body) / 2


def test_one_that_was_killed_is_replaced_and_the_question_answered(analyst: AnalystProcess) -> None:
    assert best_of(analyst) == 3
    first = analyst.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    assert best_of(analyst) == 3
    assert analyst.pid != first


def test_one_that_is_killed_while_it_computes_is_asked_again(analyst: AnalystProcess) -> None:
    assert best_of(analyst) == 3
    first = analyst.pid
    assert first is not None
    os.kill(first, signal.SIGSTOP)
    looked = threading.Event()

    def check() -> None:
        if not looked.is_set():
            looked.set()
            os.kill(first, signal.SIGKILL)

    assert json.loads(analyst.ask(BEST, check).body)["best"]["number"] == 3
    assert looked.is_set()


def test_a_database_it_cannot_read_is_told_and_nothing_is_left_running(tmp_path: Path) -> None:
    analyst = AnalystProcess(database=str(tmp_path / "none.db"))
    with pytest.raises(UnavailableError, match="died twice"):
        analyst.ask(BEST, wanted)
    analyst.close()
    assert analyst.pid is None


def test_what_is_wrong_with_a_question_is_raised_and_the_next_one_is_answered(analyst: AnalystProcess) -> None:
    with pytest.raises(NotFoundError, match="no experiment 'nobody'"):
        analyst.ask(Question(kind=Kind.BEST, experiment_id="nobody"), wanted)
    broken = Question(kind=Kind.TABLE, experiment_id=EXPERIMENT_ID, options={"columns": [], "statuses": [], "no": 1})
    with pytest.raises(RuntimeError, match="the analyst failed: TypeError"):
        analyst.ask(broken, wanted)
    first = analyst.pid
    assert (best_of(analyst), analyst.pid) == (3, first)


def test_an_answer_that_nobody_wants_is_given_up_and_the_process_goes_on(analyst: AnalystProcess) -> None:
    assert best_of(analyst) == 3
    first = analyst.pid
    assert first is not None
    os.kill(first, signal.SIGSTOP)

    def check() -> None:
        os.kill(first, signal.SIGCONT)
        raise NotWantedError

    with pytest.raises(NotWantedError):
        analyst.ask(BEST, check)
    assert (best_of(analyst), analyst.pid) == (3, first)


def test_one_that_does_not_answer_in_time_is_ended(analyst: AnalystProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    assert best_of(analyst) == 3
    first = analyst.pid
    assert first is not None
    monkeypatch.setattr(process_module, "ANSWER_LIMIT_S", 0.1)
    os.kill(first, signal.SIGSTOP)
    with pytest.raises(UnavailableError, match=r"longer than 0\.1 s"):
        analyst.ask(BEST, wanted)
    monkeypatch.undo()
    assert best_of(analyst) == 3


def test_it_ends_with_whoever_started_it(tmp_path: Path, store: SqlStore) -> None:
    program = f"""
import os, sys
from tuner_service.analyst.process import AnalystProcess
from tuner_service.service.questions import Kind, Question
analyst = AnalystProcess(database={str(tmp_path / "tuner.db")!r})
analyst.ask(Question(kind=Kind.BEST, experiment_id={EXPERIMENT_ID!r}), lambda: None)
print(analyst.pid, flush=True)
os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    pid = int(done.stdout)
    wait_until(lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().split()[2])


def test_it_is_there_before_the_first_question_if_asked_and_not_after_the_end(analyst: AnalystProcess) -> None:
    assert analyst.pid is None
    analyst.prepare()
    analyst.prepare()
    pid = wait_until(lambda: analyst.pid)
    assert best_of(analyst) == 3
    assert analyst.pid == pid
    analyst.close()
    with pytest.raises(UnavailableError, match="ending"):
        analyst.ask(BEST, wanted)

"""What is kept of a table's columns says, whatever happens to trials, what is written anew."""

from __future__ import annotations

import json
import math
import random
from typing import Any

from tests.builders import EXPERIMENT_ID, START, a_metric, a_trial
from tests.unit.analyst.test_kept_trials import a_store, put, settled
from tuner_service.analyst.kept_texts import BYTES_KEPT, STRETCH, KeptTexts
from tuner_service.analyst.kept_trials import KeptTrials
from tuner_service.analyst.table import TABLE_COLUMNS, TableQuestion, table_json
from tuner_service.dispatcher.changes import Changes
from tuner_service.domain.trial import TrialStatus

COLUMNS = (*TABLE_COLUMNS, "parameters.*", "final.*")


def told(trials: KeptTrials, texts: KeptTexts, *, now: float = START + 10) -> dict[str, Any]:
    asked = TableQuestion(columns=COLUMNS, limit=10_000, now=now)
    found: dict[str, Any] = json.loads(b"".join(table_json(trials, texts, asked, began=START)))
    return found


def test_what_is_kept_and_what_is_written_anew_are_the_same() -> None:
    chance = random.Random(4)
    store = a_store(*(settled(number) for number in range(2, 2 * STRETCH + 50, 2)))
    trials = KeptTrials(store.queries, EXPERIMENT_ID)
    texts = KeptTexts(trials)
    for round_ in range(12):
        some = [chance.randrange(1, 2 * STRETCH + 60) for _ in range(4)]
        taken = {entry.number for entry in trials.entries}
        put(
            store,
            *(
                a_trial(
                    number=number,
                    status=chance.choice([TrialStatus.RUNNING, TrialStatus.SUCCEEDED]),
                    parameters={"x": chance.choice([1, 0.5, math.nan, "text"]), f"y{round_}": 1},
                    started_at=START + chance.random(),
                    value=chance.choice([None, math.inf, 0.125]),
                )
                for number in some
                if number % 2 or number not in taken
            ),
        )
        store.commit(Changes(metrics=[a_metric(number=chance.choice(some), sequence=round_ + 1, at=START)]))
        trials.refresh(lambda: None)
        now = START + round_
        assert told(trials, texts, now=now) == told(trials, KeptTexts(trials), now=now)


def test_only_the_stretches_of_changed_trials_are_written_anew() -> None:
    store = a_store(*(settled(number) for number in range(1, 3 * STRETCH + 1)))
    put(store, a_trial(number=3 * STRETCH + 1, status=TrialStatus.RUNNING))
    trials = KeptTrials(store.queries, EXPERIMENT_ID)
    trials.refresh(lambda: None)
    texts, written = KeptTexts(trials), []

    def cells(start: int, end: int) -> str:
        written.append(start)
        return ",".join(["0"] * (end - start))

    whole = b"".join(texts.array(("zero", 6), cells, may_keep=lambda *_: True))
    assert json.loads(whole) == [0] * (3 * STRETCH + 1)
    put(store, a_trial(number=3 * STRETCH + 1, status=TrialStatus.RUNNING, value=1.0))
    trials.refresh(lambda: None)
    assert b"".join(texts.array(("zero", 6), cells, may_keep=lambda *_: True)) == whole
    assert written == [0, STRETCH, 2 * STRETCH, 3 * STRETCH, 3 * STRETCH]


def test_the_columns_asked_for_longest_ago_make_room() -> None:
    trials = KeptTrials(a_store(settled(1)).queries, EXPERIMENT_ID)
    trials.refresh(lambda: None)
    texts = KeptTexts(trials)
    long = "0" * (BYTES_KEPT // 2)
    for name in ("first", "second", "third"):
        texts.array((name, 6), lambda *_: long, may_keep=lambda *_: True)
        assert texts.bytes <= BYTES_KEPT
    written: list[int] = []
    texts.array(("third", 6), lambda *_: str(written.append(1)), may_keep=lambda *_: True)
    assert not written
    texts.array(("first", 6), lambda *_: str(written.append(1)), may_keep=lambda *_: True)
    assert written
    texts.forget()
    assert texts.bytes == 0

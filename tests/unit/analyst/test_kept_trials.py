"""Trials are read once, and again only while they can change."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.builders import EXPERIMENT_ID, START, a_metric, a_trial, an_experiment
from tests.memory_store import MemoryQueries, MemoryStore
from tuner_service.analyst import kept_trials
from tuner_service.analyst.kept_trials import KeptTrials
from tuner_service.dispatcher.changes import Changes
from tuner_service.domain.errors import LimitExceededError
from tuner_service.domain.trial import Trial, TrialStatus
from tuner_service.ports import TrialEntry


class Counted:
    """The queries of a store, and which numbers were asked for by themselves."""

    def __init__(self, queries: MemoryQueries) -> None:
        self._queries = queries
        self.asked: list[list[int]] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self._queries, name)

    def entries_of(self, experiment_id: str, numbers: Sequence[int]) -> Sequence[TrialEntry]:
        self.asked.append(list(numbers))
        return self._queries.entries_of(experiment_id, numbers)


def a_store(*trials: Trial) -> MemoryStore:
    store = MemoryStore()
    store.commit(Changes(experiments={EXPERIMENT_ID: an_experiment()}))
    put(store, *trials)
    return store


def put(store: MemoryStore, *trials: Trial) -> None:
    store.commit(Changes(trials={(EXPERIMENT_ID, trial.number): trial for trial in trials}))


def settled(number: int, value: float = 0.5) -> Trial:
    return a_trial(number=number, status=TrialStatus.SUCCEEDED, value=value, told_line=9)


def refreshed(kept: KeptTrials) -> list[int]:
    before = kept.revision
    kept.refresh(lambda: None)
    return [kept.entries[place].number for place in kept.since(before) or []]


def test_what_has_ended_and_was_told_is_not_read_again() -> None:
    store = a_store(settled(1), a_trial(number=2), replace(settled(3), told_line=None))
    queries = Counted(store.queries)
    kept = KeptTrials(queries, EXPERIMENT_ID)  # type: ignore[arg-type]  # it has every method of the queries
    assert refreshed(kept) == [1, 2, 3]
    assert (refreshed(kept), queries.asked) == ([], [[2, 3]])


def test_a_revision_tells_what_changed_after_it() -> None:
    store = a_store(settled(1), a_trial(number=2))
    kept = KeptTrials(store.queries, EXPERIMENT_ID)
    refreshed(kept)
    first = kept.revision
    put(store, a_trial(number=2, last_step=1))
    assert refreshed(kept) == [2]
    put(store, a_trial(number=3))
    assert refreshed(kept) == [3]
    assert kept.since(first) == [1, 2]
    assert kept.since(kept.revision) == []


def test_a_report_of_anything_is_a_change_to_see() -> None:
    store = a_store(settled(1), a_trial(number=2, started_at=START), a_trial(number=3, started_at=START))
    kept = KeptTrials(store.queries, EXPERIMENT_ID)
    refreshed(kept)
    store.commit(
        Changes(metrics=[a_metric(number=2, values={"aside": 1.0}, first=False, objective=None, at=START + 7)])
    )
    assert refreshed(kept) == [2]
    assert [entry.reported_at for entry in kept.entries] == [None, START + 7, None]


def test_that_a_trial_was_told_to_its_tuner_is_no_change_to_see() -> None:
    store = a_store(replace(settled(1), told_line=None))
    kept = KeptTrials(store.queries, EXPERIMENT_ID)
    refreshed(kept)
    put(store, settled(1))
    assert refreshed(kept) == []


def test_a_lower_number_that_comes_later_is_found_in_its_place() -> None:
    store = a_store(settled(1), settled(5))
    kept = KeptTrials(store.queries, EXPERIMENT_ID)
    refreshed(kept)
    put(store, settled(3), settled(6))
    assert refreshed(kept) == [3, 6]
    assert [entry.number for entry in kept.entries] == [1, 3, 5, 6]


def test_with_very_many_gaps_everything_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_trials, "GAPS_LIMIT", 2)
    store = a_store(settled(1), settled(9))
    kept = KeptTrials(store.queries, EXPERIMENT_ID)
    refreshed(kept)
    put(store, settled(4))
    assert refreshed(kept) == [4]


@pytest.mark.parametrize("revision", ["", "x.1", "00000000.1", "{life}.99", "{life}.x", "{life}"])
def test_a_revision_of_another_life_or_of_later_is_not_known(revision: str) -> None:
    kept = KeptTrials(a_store(settled(1)).queries, EXPERIMENT_ID)
    refreshed(kept)
    assert kept.since(revision.format(life=kept.revision.split(".")[0])) is None


def test_an_experiment_with_too_many_trials_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_trials, "TRIALS_LIMIT", 2)
    kept = KeptTrials(a_store(settled(1), settled(2), settled(3)).queries, EXPERIMENT_ID)
    with pytest.raises(LimitExceededError, match="more than 2 trials"):
        kept.refresh(lambda: None)


def test_parameters_are_flat_and_follow_a_change() -> None:
    store = a_store(a_trial(number=1, parameters={"layer": {"_name": "conv", "kernel": 3}}))
    kept = KeptTrials(store.queries, EXPERIMENT_ID)
    refreshed(kept)
    assert kept.parameters() == [{"layer._name": "conv", "layer.kernel": 3}]
    put(store, a_trial(number=1, parameters={"lr": 0.5}), a_trial(number=2, parameters={"lr": 0.25}))
    refreshed(kept)
    assert kept.parameters() == [{"lr": 0.5}, {"lr": 0.25}]


@pytest.mark.parametrize("seed", range(20))
def test_whatever_comes_in_whatever_order_is_what_a_new_reader_finds(seed: int) -> None:
    chance = random.Random(seed)
    store = a_store()
    kept = KeptTrials(store.queries, EXPERIMENT_ID)
    shown: dict[int, TrialEntry] = {}
    ended: set[int] = set()
    for _ in range(30):
        for _ in range(chance.randrange(4)):
            number = chance.randrange(1, 25)
            if number in ended:
                continue
            trial = a_trial(number=number, last_step=chance.randrange(5))
            if chance.random() < 0.3:
                trial = settled(number, value=chance.random())
                ended.add(number)
            put(store, trial)
        before = kept.revision
        kept.refresh(lambda: None)
        places = kept.since(before)
        assert places is not None
        shown |= {kept.entries[place].number: kept.entries[place] for place in places}
        fresh = KeptTrials(store.queries, EXPERIMENT_ID)
        fresh.refresh(lambda: None)
        assert kept.entries == fresh.entries == [shown[number] for number in sorted(shown)]

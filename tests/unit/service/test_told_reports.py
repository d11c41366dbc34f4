"""Streams of an experiment tell when its trials reported the last time, whatever it was that they reported."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import EXPERIMENT_ID, START, a_metric, a_trial, an_attempt
from tests.unit.service.test_events import World, rows, running
from tuner_service.dispatcher.changes import TOUCHED_LIMIT
from tuner_service.domain.trial import TrialStatus
from tuner_service.service import events
from tuner_service.service.patches import ALL
from tuner_service.service.views import moment


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "PATCHES_PER_S", 1_000.0)


def test_when_trials_reported_is_told_though_nothing_else_of_them_has_changed_and_nothing_is_looked_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(world: World) -> None:
        trial = a_trial(number=1, started_at=START)
        world.commit(trial, a_trial(number=2, started_at=START))
        one, everything = await world.open(), await world.open(ALL)
        monkeypatch.setattr(world.store.queries, "reported_at", lambda *_: 1 / 0)
        world.commit(metrics=[a_metric(sequence=n, step=None, first=False, at=START + n) for n in (1, 2)])
        (event,), (of_all,) = await one.more(), await everything.more()
        at_its_end = [a_metric(sequence=3, at=START + 3), a_metric(number=2, at=START + 4)]
        world.commit(replace(trial, status=TrialStatus.SUCCEEDED, ended_at=START + 3), metrics=at_its_end)
        (ended,) = await one.more()

        assert event["data"]["reported"] == {EXPERIMENT_ID: {"number": [1], "reported_at": [moment(START + 2)]}}
        assert "trials" not in event["data"]
        assert "reported" not in of_all["data"]
        assert list(rows(ended)) == [1]
        assert ended["data"]["reported"] == {EXPERIMENT_ID: {"number": [2], "reported_at": [moment(START + 4)]}}

    running(scenario)


def test_a_reader_that_comes_back_is_told_when_all_that_go_on_reported_the_last_time() -> None:
    async def scenario(world: World) -> None:
        paused = a_trial(number=2, started_at=START)
        trials = [a_trial(number=1, started_at=START), paused, a_trial(number=3, started_at=START)]
        attempts = [an_attempt(number=1), an_attempt(number=3)]
        world.commit(*trials, attempts={attempt.key: attempt for attempt in attempts})
        world.commit(metrics=[a_metric(number=number, at=START + number) for number in (1, 2)])
        world.commit(replace(paused, status=TrialStatus.PAUSED))
        (event,), (nothing,) = (await world.open(last="1-memory")).told, (await world.open(last="3-memory")).told

        moments = [moment(START + number) for number in (1, 2)]
        assert event["data"]["reported"] == {EXPERIMENT_ID: {"number": [1, 2], "reported_at": moments}}
        assert nothing["data"] == {"sequence": 3}

    running(scenario)


def test_more_trials_that_reported_than_a_patch_holds_are_a_gap_live_and_replayed() -> None:
    async def scenario(world: World) -> None:
        numbers = range(TOUCHED_LIMIT + 1)
        attempts = [an_attempt(number=number) for number in numbers]
        world.commit(*(a_trial(number=n, started_at=START) for n in numbers), attempts={a.key: a for a in attempts})
        reader = await world.open()
        await reader.until(world.commit(metrics=[a_metric(number=number) for number in numbers]))
        back = await world.open(last="1-memory")

        assert [one.told[-1]["data"]["reason"] for one in (reader, back)] == ["too_many", "too_many"]

    running(scenario)

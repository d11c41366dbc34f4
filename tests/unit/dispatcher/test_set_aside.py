"""An experiment that cannot be gone on with: nothing is decided about it, its trials run on and keep what they hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.builders import EXPERIMENT_ID
from tests.unit.dispatcher.harness import AGENT, EXITED, Harness, a_final
from trials.wire.messages import Acknowledge, Busy, Forget, Stop
from tuner_service.dispatcher import commands as c
from tuner_service.dispatcher import effects as e
from tuner_service.domain.errors import ConflictError
from tuner_service.domain.resources import QuotaGroup
from tuner_service.domain.trial import Attempt, TrialOutput

WHY = "its rows are damaged"


@pytest.fixture
def aside(h: Harness) -> Attempt:
    """The attempt of an experiment that was set aside while it ran; its agent is connected."""
    h.run(trial={"cpus": 2})
    attempt = h.attempt(1)
    observed = h.observed(1)
    h.dispatcher = h._new_dispatcher()
    for loaded in h.store.load():
        h.dispatcher.restore(replace(loaded, damage=WHY))
    h.effects = h.dispatcher.recover(h.at)
    h._save()
    assert not h.orders(e.StartWorker)
    h.connect(observed)
    assert not h.orders(Stop)
    return attempt


def test_what_its_trials_hold_nobody_else_is_given_until_it_is_deleted(h: Harness, aside: Attempt) -> None:
    ledger = h.dispatcher.state.ledger
    assert aside.holdings
    assert EXPERIMENT_ID in ledger.experiment_cpus
    h.delete()

    assert EXPERIMENT_ID not in ledger.experiment_cpus
    assert h.changes.deleted_experiments == [EXPERIMENT_ID]


def test_of_another_copy_of_the_database_they_hold_nothing_here(h: Harness) -> None:
    h.run(trial={"cpus": 2})
    h.dispatcher = h._new_dispatcher("a copy")
    for loaded in h.store.load():
        h.dispatcher.restore(replace(loaded, damage=WHY))

    assert not h.dispatcher.state.ledger.experiment_cpus


def test_the_quota_group_that_it_draws_from_stays_until_it_is_deleted(h: Harness) -> None:
    h.handle(c.QuotaGroupSet(at=h.at, group=QuotaGroup(name="vision", cpus=4)))
    h.begin(quota_group="vision")
    h.dispatcher = h._new_dispatcher()
    h.dispatcher.restore_groups(h.store.quota_groups())
    for loaded in h.store.load():
        h.dispatcher.restore(replace(loaded, damage=WHY))
    h.dispatcher.recover(h.at)
    h._save()

    with pytest.raises(ConflictError, match=EXPERIMENT_ID):
        h.handle(c.QuotaGroupDeleted(at=h.at, name="vision"))
    h.delete()
    h.handle(c.QuotaGroupDeleted(at=h.at, name="vision"))


def test_nothing_else_can_be_asked_of_it(h: Harness, aside: Attempt) -> None:
    for ask in (h.pause, h.stop, h.resume):
        with pytest.raises(ConflictError, match=WHY) as raised:
            ask()
        assert raised.value.allowed == ("delete",)


def test_its_agent_is_told_neither_to_stop_nor_to_forget_and_to_say_its_reports_later(
    h: Harness, aside: Attempt
) -> None:
    h.started_as(aside)
    assert not h.effects
    place: dict[str, Any] = {"address": "192.0.2.1", "host": "one", "port": 1}
    h.handle(c.PartPrepared(at=h.at, agent_id=AGENT, key=aside.key, nonce=aside.nonce, **place))
    assert not h.effects
    h.report_as(aside, a_final(0.5))
    assert [type(message) for message in h.told_to(AGENT)] == [Busy]
    h.exit_as(aside, EXITED)
    assert not h.orders(Forget)
    assert not h.orders(Acknowledge)


def test_what_a_trial_left_is_not_taken(h: Harness, aside: Attempt) -> None:
    output = TrialOutput(attempt=1, asset="a" * 64, size=7, files=1)
    with pytest.raises(ConflictError, match=WHY):
        h.handle(c.OutputCollected(at=h.at, agent_id=AGENT, key=aside.key, nonce=aside.nonce, output=output))


def test_whoever_was_at_work_when_a_step_failed_is_named(h: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    h.run()
    assert h.dispatcher.at_work == ""

    def failing(*_: Any) -> None:
        raise KeyError("gone")

    with monkeypatch.context() as patched:
        patched.setattr("tuner_service.dispatcher.dispatcher.schedule.advance", failing)
        with pytest.raises(KeyError):
            h.dispatcher.handle(c.ExperimentPaused(at=h.at, experiment_id=EXPERIMENT_ID))
    assert h.dispatcher.at_work == EXPERIMENT_ID
    h.restart()

"""An experiment that cannot be gone on with: nothing is decided about it, its trials run on and keep what they hold."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from tests.builders import (
    EXPERIMENT_ID,
    START,
    a_checkpoint,
    a_line,
    a_metric,
    a_spec,
    a_trial,
    an_attempt,
    an_experiment,
)
from tests.unit.dispatcher.harness import AGENT, EXITED, Harness, a_final
from trials.wire.messages import Acknowledge, Busy, Forget, Stop
from tuner_service.dispatcher import commands as c
from tuner_service.dispatcher import effects as e
from tuner_service.dispatcher.changes import (
    Changes,
    MetricsCut,
    SearchSpaceRevision,
    SkippedLine,
    StoredDecision,
    StoredIdempotencyKey,
    StoredSnapshot,
)
from tuner_service.dispatcher.items import Queue
from tuner_service.dispatcher.placement import Decision
from tuner_service.dispatcher.quotas import Claim
from tuner_service.domain.archives import Archive, ArchivePhase
from tuner_service.domain.errors import ConflictError
from tuner_service.domain.resources import QuotaGroup
from tuner_service.domain.trial import Attempt, DecisionKind, TrialOutput

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


@pytest.mark.parametrize(
    ("where", "command"),
    [
        ("away.agents.lose_on", c.TimePassed(at=START + 100.0)),
        ("provided.lose_on", c.AgentLost(at=START, agent_id=AGENT)),
        ("nodes.agents.lose_on", c.NodeRemoved(at=START, agent_id=AGENT, force=True)),
        ("nodes.launching.ask_to_stop", c.NodeChanged(at=START, agent_id=AGENT, trouble="", drained=True)),
        ("devices.mind_loss", c.DevicesChanged(at=START, agent_id=AGENT, devices=())),
    ],
    ids=lambda one: type(one).__name__ if not isinstance(one, str) else None,
)
def test_of_what_befalls_a_whole_node_it_is_named_whose_trial_failed(
    h: Harness, where: str, command: c.Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    h.run()
    if isinstance(command, c.TimePassed):
        h.dispatcher.state.service_lost_s = 1.0
        h.handle(c.AgentDisconnected(at=h.at, agent_id=AGENT))

    def failing(*_: Any, **__: Any) -> None:
        raise KeyError("gone")

    with monkeypatch.context() as patched:
        patched.setattr(f"tuner_service.dispatcher.{where}", failing)
        with pytest.raises(KeyError):
            h.dispatcher.handle(command)
    assert h.dispatcher.at_work == EXPERIMENT_ID
    h.restart()


@pytest.mark.parametrize("fails_alone", [True, False])
def test_where_nobody_can_be_placed_it_is_named_whose_claims_are_the_reason(
    h: Harness, fails_alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for experiment_id in ("first", EXPERIMENT_ID):
        h.handle(c.ExperimentCreated(at=h.at, experiment_id=experiment_id, spec=a_spec(trial={"cpus": 1})))
        h.handle(c.TrialAdded(at=h.at, experiment_id=experiment_id, parameters={"x": 0.1}))

    def failing(claims: list[Claim], **_: Any) -> Decision:
        if EXPERIMENT_ID in {claim.experiment_id for claim in claims} and (fails_alone or len(claims) > 1):
            raise OverflowError("too many cores")
        return Decision(placed=[], preempted=[])

    with monkeypatch.context() as patched:
        patched.setattr("tuner_service.dispatcher.starting.decide", failing)
        with pytest.raises(OverflowError):
            h.dispatcher.handle(a_node(h.at))
    assert h.dispatcher.at_work == (EXPERIMENT_ID if fails_alone else "")
    h.restart()


def a_node(at: float) -> c.AgentConnected:
    return c.AgentConnected(at=at, agent_id=AGENT, cpus=4, memory_bytes=1 << 30, attempts=())


def test_changes_are_told_apart_by_whom_they_concern() -> None:
    both = Changes(blobs={"d": b"x"}, quota_groups={"vision": None})
    for name in ("one", "other"):
        trial, attempt = a_trial(experiment_id=name), an_attempt(experiment_id=name)
        checkpoint = a_checkpoint(experiment_id=name)
        both.experiments[name] = an_experiment(id=name)
        both.search_spaces.append(SearchSpaceRevision(experiment_id=name, line=1, search_space={}, at=START))
        both.trials[name, 1], both.attempts[attempt.key] = trial, attempt
        decided = StoredDecision(experiment_id=name, line=1, kind=DecisionKind.START, number=1)
        both.decisions.append(decided)
        both.journal.append(a_line(experiment_id=name))
        both.skipped_lines.append(SkippedLine(experiment_id=name, line=1, queue=Queue.TUNER))
        both.metrics.append(a_metric(experiment_id=name))
        both.metric_cuts.append(MetricsCut(experiment_id=name, number=1, line=1, sequence=1))
        both.checkpoints.append(checkpoint)
        both.dropped_checkpoints.append(checkpoint)
        both.named_assets.append((name, "a"))
        both.unnamed_assets.append((name, "b"))
        both.snapshots.append(StoredSnapshot(experiment_id=name, queue=Queue.TUNER, line=1, state="", at=START))
        both.idempotency_keys.append(StoredIdempotencyKey(key=name, body_digest="", experiment_id=name, at=START))
        both.removing[name] = Archive(phase=ArchivePhase.REMOVING, upto=0)
        both.deleted_experiments.append(name)

    one, other = (both.of(name.__eq__) for name in ("one", "other"))
    for part in (field.name for field in fields(Changes)):
        mine, theirs, all_ = getattr(one, part), getattr(other, part), getattr(both, part)
        match part:
            case "quota_groups" | "fresh_blobs":
                assert not mine, "no experiment's"
            case "blobs":
                assert mine == all_
            case _:
                assert len(mine) == len(theirs) == 1, part
                assert mine != theirs
                joined = mine | theirs if isinstance(all_, dict) else mine + theirs
                assert joined == all_

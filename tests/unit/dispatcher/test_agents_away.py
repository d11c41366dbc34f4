"""Agents without a connection: their trials run on, until service_lost_timeout gives them to others."""

from __future__ import annotations

from tests.unit.dispatcher.harness import AGENT, KILLED, Harness, an_intermediate
from trials.wire.messages import Acknowledge, Stop
from tuner_service.domain.trial import AttemptStatus, TrialReason, TrialStatus

OTHER = "agent-2"
LIMIT_S, GRACE_S = 60.0, 30.0


def begin(h: Harness, *, limit_s: float | None = LIMIT_S) -> None:
    """One trial runs on AGENT."""
    h.dispatcher.state.service_lost_s = limit_s
    h.connect()
    h.create(trial={"stop_grace_s": GRACE_S})
    h.ready()
    h.suggest()
    h.started(1)


def test_a_short_silence_says_nothing(h: Harness) -> None:
    begin(h)
    h.disconnect()
    h.connect(agent_id=OTHER)

    h.after(LIMIT_S + GRACE_S - 1)
    h.connect(h.observed(1))
    h.after(LIMIT_S + GRACE_S)

    assert (h.trial(1).status, h.attempt(1).agent_id) == (TrialStatus.RUNNING, AGENT)


def test_after_the_timeout_and_the_grace_a_trial_goes_on_elsewhere_uncharged(h: Harness) -> None:
    begin(h)
    h.report(1, an_intermediate(0, 1.0))
    first = h.attempt(1)
    h.disconnect()
    h.connect(agent_id=OTHER)

    h.after(LIMIT_S)
    assert h.attempt(1) == first  # it has its grace to save
    h.after(GRACE_S)

    assert (h.attempt(1).agent_id, h.trial(1).charged) == (OTHER, 0)
    (lost,) = [row for row in h.store.queries.attempts(h.xs.id, 1) if row.key == first.key]
    assert (lost.status, lost.exit.tail if lost.exit else "") == (
        AttemptStatus.LOST,
        f"agent {AGENT} was not connected for 60 s (service_lost_timeout)",
    )
    assert h.dispatcher.state.away == {}


def test_late_reports_of_what_was_given_up_are_refused_and_it_is_stopped(h: Harness) -> None:
    begin(h)
    first, observed = h.attempt(1), h.observed(1)
    h.disconnect()
    h.connect(agent_id=OTHER)
    h.after(LIMIT_S + GRACE_S)

    h.connect(observed)
    assert [stop.nonce for stop in h.told_to(AGENT, Stop)] == [first.nonce]
    before = h.trial(1)
    h.report_as(first, an_intermediate(0, 99.0))

    assert h.trial(1) == before
    assert h.changes.metrics == []
    assert [told.sequence for told in h.told_to(AGENT, Acknowledge)] == [1]  # so that it comes to its exit


def test_without_the_timeout_nobody_is_given_up(h: Harness) -> None:
    begin(h, limit_s=None)
    h.disconnect()
    h.connect(agent_id=OTHER)

    h.after(1e6)

    assert h.attempt(1).agent_id == AGENT
    assert h.dispatcher.state.away == {}


def test_a_service_that_was_restarted_waits_anew_for_the_agents_that_rows_name(h: Harness) -> None:
    begin(h)
    h.restart()
    h.dispatcher.state.service_lost_s = LIMIT_S
    h.connect(agent_id=OTHER)

    h.after(LIMIT_S + GRACE_S - 1)
    assert h.attempt(1).agent_id == AGENT
    h.after(1)

    assert h.attempt(1).agent_id == OTHER


def test_a_trial_that_was_to_stop_ends_when_its_agent_is_given_up(h: Harness) -> None:
    begin(h)
    h.disconnect()
    h.stop_trial(1)
    assert h.trial(1).status is TrialStatus.STOPPING

    h.after(LIMIT_S + GRACE_S)

    assert (h.trial(1).status, h.trial(1).reason) == (TrialStatus.CANCELED, TrialReason.STOPPED_BY_USER)


def test_an_agent_that_holds_nothing_is_forgotten(h: Harness) -> None:
    begin(h)
    h.exit(1, KILLED)
    h.connect(agent_id=OTHER)
    h.disconnect(OTHER)

    h.after(LIMIT_S)

    assert h.dispatcher.state.away == {}

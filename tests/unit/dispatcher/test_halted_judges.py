"""An assessor that raised judges nothing until a person has looked: trials go on, and come to their ends."""

from __future__ import annotations

import pytest

from tests import memory_store
from tests.unit.dispatcher.harness import AGENT, EXITED, STOPPED, Harness, a_final, an_intermediate
from tests.unit.dispatcher.test_asks import LEASE_S
from tests.unit.dispatcher.test_asks import begin as begin_asked
from trials.wire.messages import Acknowledge, Busy, Forget, Stop
from tuner_service.dispatcher import agents
from tuner_service.dispatcher import step as step_module
from tuner_service.dispatcher.items import AlgorithmFault, MetricsReported, Queue, StopAdvised, Taken
from tuner_service.dispatcher.limits import UNJUDGED_REPORTS_RETRY_S
from tuner_service.domain.errors import UnavailableError
from tuner_service.domain.experiment import AlgorithmSpec, ExperimentReason, ExperimentStatus
from tuner_service.domain.trial import TrialStatus

ASSESSED = AlgorithmSpec(name="median_stop")
FULL = 3  # lines


@pytest.fixture(autouse=True)
def _short_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents, "ASSESSOR_QUEUE_LIMIT", FULL)


def with_a_full_queue(h: Harness, *, deterministic: bool = False, halted: bool = True, **trial: object) -> Harness:
    """Trial 1 has reported as much as may wait for the assessor, which has raised."""
    h.run(assessor=ASSESSED, trial=trial, deterministic=deterministic)
    h.take(Queue.ASSESSOR)  # where it is told what was asked for
    for step in range(FULL):
        h.report(1, an_intermediate(step, 0.5))
    if halted:
        h.fault(AlgorithmFault.RAISED, queue=Queue.ASSESSOR)
        assert h.experiment.reason is ExperimentReason.ALGORITHM_FAILED
    return h


def come_to_the_end(h: Harness, record: object = EXITED) -> None:
    """As its agent tells it: what is left of its reports, again and again, with its exit."""
    attempt, left = h.attempt(1), (an_intermediate(FULL, 0.4), a_final(0.3))
    known = attempt.acknowledged
    h.report(1, *left, first=known + 1)
    assert h.orders(Busy)
    h.exit_as(attempt, record)  # type: ignore[arg-type]
    assert [told.sequence for told in h.orders(Acknowledge)] == [known]
    h.report_as(attempt, *left, first=known + 1)
    assert [told.sequence for told in h.orders(Acknowledge)] == [known + 2]
    h.exit_as(attempt, record)  # type: ignore[arg-type]
    assert h.orders(Forget)


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_trial_that_ends_while_nobody_judges_gives_on_what_it_holds(h: Harness, deterministic: bool) -> None:
    with_a_full_queue(h, deterministic=deterministic)
    come_to_the_end(h)
    assert not h.xs.attempts
    if not deterministic:
        assert (h.trial(1).status, h.trial(1).value) == (TrialStatus.SUCCEEDED, 0.3)


@pytest.mark.parametrize("deterministic", [False, True])
def test_an_experiment_whose_judge_has_raised_can_be_stopped(h: Harness, deterministic: bool) -> None:
    with_a_full_queue(h, deterministic=deterministic)
    h.stop()
    assert h.orders(Stop)

    come_to_the_end(h, STOPPED)
    assert h.experiment.status is ExperimentStatus.STOPPED
    h.delete()


def test_and_so_can_one_whose_service_was_started_anew_meanwhile(h: Harness) -> None:
    """Its agent says hello with the exit."""
    with_a_full_queue(h)
    h.stop()
    attempt = h.attempt(1)
    h.restart()
    h.connect(h.observed(1, exit=STOPPED, spooled=FULL + 1))
    h.report_as(attempt, a_final(0.3))
    assert h.orders(Busy), "the new worker has not raised yet"
    h.ready()
    h.fault(AlgorithmFault.RAISED, queue=Queue.ASSESSOR)

    h.report_as(attempt, a_final(0.3), first=FULL + 1)
    h.exit_as(attempt, STOPPED)
    assert h.experiment.status is ExperimentStatus.STOPPED


def test_what_ended_meanwhile_is_judged_once_somebody_judges_again(h: Harness) -> None:
    with_a_full_queue(h)
    come_to_the_end(h)
    h.resume()
    h.ready()
    assert len(h.pending(Queue.ASSESSOR)) == FULL + 2
    h.take(Queue.ASSESSOR)
    assert not h.pending(Queue.ASSESSOR)


@pytest.mark.parametrize("deterministic", [False, True])
def test_reports_of_what_ended_meanwhile_stay_in_their_rows_beyond_the_limit(
    monkeypatch: pytest.MonkeyPatch, h: Harness, deterministic: bool
) -> None:
    """Also of a service that is started anew."""
    for module in (step_module, memory_store):
        monkeypatch.setattr(module, "ASSESSOR_REPORTS_LIMIT", FULL)
    with_a_full_queue(h, deterministic=deterministic)
    come_to_the_end(h)
    before = reports_of(h)
    assert [item.unread for item in before] == [0] * FULL + [1]
    assert not before[-1].reports

    h.restart()
    h.ready()
    assert [item.unread > 0 for item in reports_of(h)] == [False] * FULL + [True]


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_stop_at_a_report_that_stayed_in_its_row_is_carried_out(
    monkeypatch: pytest.MonkeyPatch, h: Harness, deterministic: bool
) -> None:
    monkeypatch.setattr(step_module, "ASSESSOR_REPORTS_LIMIT", 1)
    h.run(assessor=ASSESSED, deterministic=deterministic)
    h.take(Queue.ASSESSOR)
    h.report(1, an_intermediate(0, 0.5))
    h.report(1, an_intermediate(1, 0.4, acc=0.7), an_intermediate(2, 0.3))
    first, second = reports_of(h)
    assert (first.unread, second.unread) == (0, 2)

    read = h.store.reports_on(h.experiment.id, second.line)
    stop = StopAdvised(line=second.line, sequence=read.sequences[0], message="hopeless")
    h.answer(Queue.ASSESSOR, Taken(line=first.line), stop, read=(read,))
    assert h.trial(1).stopped_at_line == second.line
    assert h.journal("stop_advised") == [{"number": 1, "step": 1, "message": "hopeless"}]
    if deterministic:
        assert h.trial(1).last_metrics == {"loss": 0.4, "acc": 0.7}


def reports_of(h: Harness) -> list[MetricsReported]:
    return [item for item in h.pending(Queue.ASSESSOR) if isinstance(item, MetricsReported)]


def test_while_somebody_judges_trials_that_have_ended_wait_like_others(h: Harness) -> None:
    with_a_full_queue(h, halted=False)
    h.report(1, a_final(0.3))
    h.exit(1)
    h.report(1, a_final(0.3), first=FULL + 1)
    assert h.orders(Busy)
    assert h.xs.attempts


def test_reports_are_told_less_often_while_nobody_judges(h: Harness) -> None:
    with_a_full_queue(h)
    h.report(1, an_intermediate(FULL, 0.4))
    assert [told.retry_after_s for told in h.orders(Busy)] == [UNJUDGED_REPORTS_RETRY_S]
    assert not h.changes


def test_a_trial_whose_reports_are_refused_is_not_silent(h: Harness) -> None:
    with_a_full_queue(h, heartbeat_s=30.0)
    for _ in range(3):
        h.after(20)
        assert not h.orders(Stop)
        h.report(1, an_intermediate(FULL, 0.4), first=FULL + 1)
        assert h.orders(Busy)
    h.after(31)
    assert h.told_to(AGENT, Stop)


def test_an_agent_that_has_only_the_word_that_a_trial_has_reported_is_believed(h: Harness) -> None:
    """It says so while it brings a checkpoint away, before the report that names it."""
    h.run(trial={"heartbeat_s": 30.0})
    for _ in range(3):
        h.after(20)
        assert not h.orders(Stop)
        h.report(1)
        assert not h.changes


def test_the_lease_of_an_evaluator_whose_reports_are_refused_is_renewed(h: Harness) -> None:
    begin_asked(h, assessor=ASSESSED)
    h.suggest()
    h.ask("a")
    for step in range(FULL):
        h.tell("a", 0.5, step=step)
    for _ in range(3):
        h.after(LEASE_S - 1)
        with pytest.raises(UnavailableError):
            h.tell("a", 0.5, step=FULL)
    assert h.attempt(1).nonce == "a"

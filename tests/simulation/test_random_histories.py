"""Histories that nobody thought of: whole experiments with kills, and single commands in any order.

Whatever was killed, a deterministic experiment ends with the rows of a run that was left in peace.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests import memory_store
from tests.simulation.histories import check_history
from tests.unit.dispatcher.harness import (
    CRASHED,
    EXITED,
    KILLED,
    STOPPED,
    Harness,
    a_checkpoint_record,
    a_final,
    an_intermediate,
)
from tests.unit.dispatcher.test_devices import gpus
from tests.unit.dispatcher.test_quota_groups import begin_other
from trials.wire.records import ExitCause, ExitRecord
from tuner_service.dispatcher import commands as c
from tuner_service.dispatcher import step
from tuner_service.dispatcher.items import AlgorithmFault, MetricsReported, Queue, StopAdvised, Taken
from tuner_service.domain.errors import ConflictError, InputError, NotFoundError, NotHeldError
from tuner_service.domain.experiment import AlgorithmSpec, ExperimentReason, ExperimentStatus
from tuner_service.domain.trial import Attempt

SEEDS = 60
UNREAD_SEEDS = 9
GANG_SEEDS = 15  # each takes as long as three others
END_LIMIT = 500  # steps in which every experiment must come to its end, once all goes well
EXITS = (
    EXITED,
    CRASHED,
    KILLED,
    STOPPED,
    ExitRecord(cause=ExitCause.SUPERVISOR_LOST),
    ExitRecord(cause=ExitCause.OUT_OF_MEMORY),
)


@pytest.mark.parametrize("deterministic", [True, False], ids=["deterministic", "free"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_is_killed_the_experiment_ends_as_it_would_have(seed: int, deterministic: bool) -> None:
    print(f"to replay: python -m tests.simulation.histories --first {seed} --seeds 1")
    check_history(seed, deterministic=deterministic)


@pytest.mark.parametrize("deterministic", [True, False], ids=["deterministic", "free"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_is_killed_evaluators_that_ask_end_it_as_it_would_have(seed: int, deterministic: bool) -> None:
    print(f"to replay: python -m tests.simulation.histories --first {seed} --seeds 1")
    check_history(seed, deterministic=deterministic, kind="asked")


@pytest.mark.parametrize("deterministic", [True, False], ids=["deterministic", "free"])
@pytest.mark.parametrize("seed", range(GANG_SEEDS))
def test_whatever_is_killed_or_cut_off_trials_of_several_nodes_end_it_as_it_would_have(
    seed: int, deterministic: bool
) -> None:
    print(f"to replay: python -m tests.simulation.histories --first {seed} --seeds 1 --kinds 'of several nodes'")
    check_history(seed, deterministic=deterministic, kind="of several nodes")


@pytest.mark.parametrize("deterministic", [True, False], ids=["deterministic", "free"])
def test_reports_that_stay_in_their_rows_until_they_are_told_change_nothing(
    monkeypatch: pytest.MonkeyPatch, deterministic: bool
) -> None:
    monkeypatch.setattr(step, "ASSESSOR_REPORTS_LIMIT", 1)
    monkeypatch.setattr(memory_store, "ASSESSOR_REPORTS_LIMIT", 1)
    unread = [check_history(seed, deterministic=deterministic).unread for seed in range(UNREAD_SEEDS)]
    assert sum(unread) > UNREAD_SEEDS, unread


class AnyCommands(RuleBasedStateMachine):
    """Valid and invalid commands in any order. The harness checks the invariants after each of them."""

    @initialize(
        deterministic=st.booleans(),
        assessed=st.booleans(),
        trials=st.integers(1, 6),
        parallel=st.integers(1, 3),
        max_attempts=st.integers(1, 2),
        failures=st.integers(1, 4),
        workers=st.integers(1, 2),
        asked=st.booleans(),
        preemptible=st.booleans(),
    )
    def create(  # what an experiment is made of
        self,
        *,
        deterministic: bool,
        assessed: bool,
        trials: int,
        parallel: int,
        max_attempts: int,
        failures: int,
        workers: int,
        asked: bool,
        preemptible: bool,
    ) -> None:
        self.h = Harness()
        self.asked, self.tokens = asked, 0
        self.past: list[Attempt] = []
        self.h.create(
            deterministic=deterministic,
            workers=1 if deterministic else workers,
            preemptible=preemptible,
            assessor=AlgorithmSpec(name="median_stop") if assessed else None,
            budget={"trials": trials, "parallel": parallel, "failures": failures},
            trial={
                "max_attempts": max_attempts,
                "heartbeat_s": None if deterministic or asked else 40.0,
                "lease_s": 40.0 if asked else None,
                "gpus": 0.0 if asked else 1.0,
            },
        )

    def has_attempt(self) -> bool:
        return hasattr(self, "h") and bool(self.h.xs.attempts) and not self.asked

    def is_held(self) -> bool:
        return hasattr(self, "h") and bool(self.h.xs.attempts) and self.asked

    def live(self, pick: int) -> int:
        """The number of some trial with a live attempt."""
        numbers = sorted(self.h.xs.attempts)
        number = numbers[pick % len(numbers)]
        self.past.append(self.h.attempt(number))
        return number

    # ── people ──────────────────────────────────────────────────────────────────────────────────
    @rule(request_=st.sampled_from([Harness.pause, Harness.resume, Harness.stop]))
    def a_person_asks(self, request_: Any) -> None:
        self._may_be_refused(request_)

    @rule(number=st.integers(0, 9))
    def a_person_gives_a_trial_up(self, number: int) -> None:
        self._may_be_refused(lambda h: h.stop_trial(number + 1))

    @rule(trials=st.integers(1, 8))
    def a_person_wants_another_budget(self, trials: int) -> None:
        self._may_be_refused(lambda h: h.resume(trials=trials))

    @rule(pick=st.integers(0, 9))
    def a_person_adds_a_trial(self, pick: int) -> None:
        """Or tries one that ended once more."""
        self._may_be_refused(lambda h: h.add_trial(0.03, retry_of=pick or None))

    @rule(trials=st.none() | st.integers(1, 8), parallel=st.none() | st.integers(1, 3), priority=st.integers(-1, 1))
    def a_person_changes_limits(self, trials: int | None, parallel: int | None, priority: int) -> None:
        budget = {"trials": trials, "parallel": parallel}
        self._may_be_refused(lambda h: h.change(budget=budget, priority=priority, note=f"priority {priority}"))

    @rule(imports=st.booleans())
    def the_tuner_learns_more(self, imports: bool) -> None:
        self._may_be_refused(lambda h: h.import_outcomes(0.4) if imports else h.change_space(lr={"type": "float"}))

    def _may_be_refused(self, request_: Any) -> None:
        before = copy.deepcopy(self.h.dispatcher.state)
        try:
            request_(self.h)
        except (ConflictError, InputError, NotFoundError):
            assert self.h.dispatcher.state == before
            assert not self.h.dispatcher.take_changes()

    # ── the worker ──────────────────────────────────────────────────────────────────────────────
    @rule()
    def the_worker_is_ready(self) -> None:
        self.h.ready()

    @rule(kind=st.sampled_from(["suggest", "suggest", "suggest", "suggest_nothing_yet", "suggest_no_more"]))
    def the_tuner_answers(self, kind: str) -> None:
        if self.h.xs.requests:
            getattr(self.h, kind)()
        else:
            self.h.take(Queue.TUNER)

    @rule(count=st.integers(1, 3), stop=st.booleans())
    def the_assessor_answers(self, count: int, stop: bool) -> None:
        answers = [
            StopAdvised(line=item.line, sequence=item.sequences[0], message="hopeless")
            if stop and isinstance(item, MetricsReported)
            else Taken(line=item.line)
            for item in self.h.pending(Queue.ASSESSOR)[:count]
        ]
        self.h.answer(Queue.ASSESSOR, *answers)

    @rule(line=st.integers(0, 50), queue=st.sampled_from(list(Queue)))
    def an_answer_comes_out_of_turn(self, line: int, queue: Queue) -> None:
        if all(item.line != line for item in self.h.pending(queue)[:1]):
            self.h.answer(queue, Taken(line=line))

    @rule(fault=st.sampled_from(list(AlgorithmFault)), queue=st.sampled_from(list(Queue)))
    def the_algorithm_faults(self, fault: AlgorithmFault, queue: Queue) -> None:
        self.h.fault(fault, queue=queue)

    @rule()
    def the_worker_dies(self) -> None:
        self.h.worker_dies()

    # ── the agent ───────────────────────────────────────────────────────────────────────────────
    @rule(forgets=st.booleans())
    def the_agent_connects(self, forgets: bool) -> None:
        held = [] if forgets else [self.h.observed(number) for number in self.h.xs.attempts]
        self.h.connect(*held, devices=gpus(2))

    @rule()
    def the_agent_goes(self) -> None:
        self.h.disconnect()

    @precondition(has_attempt)
    @rule(pick=st.integers(0, 9))
    def an_attempt_starts(self, pick: int) -> None:
        self.h.started(self.live(pick))

    @precondition(has_attempt)
    @rule(pick=st.integers(0, 9), step=st.integers(0, 3), loss=st.sampled_from([0.1, 0.5, float("nan")]))
    def an_attempt_reports(self, pick: int, step: int, loss: float) -> None:
        self.h.report(self.live(pick), an_intermediate(step, loss), a_checkpoint_record(step))

    @precondition(has_attempt)
    @rule(pick=st.integers(0, 9), index=st.integers(1, 3))
    def a_script_wants_further_parameters(self, pick: int, index: int) -> None:
        self.h.want(self.live(pick), index)

    @precondition(has_attempt)
    @rule(pick=st.integers(0, 9), first=st.integers(1, 6))
    def reports_come_doubled_or_with_a_gap(self, pick: int, first: int) -> None:
        number = self.live(pick)
        sent = dict(self.h.sent_reports)
        self.h.report(number, an_intermediate(9, 0.3), a_final(0.3), first=first)
        known = self.h.xs.attempts.get(number)
        self.h.sent_reports = sent if known is None else {**sent, known.nonce: known.acknowledged}

    @precondition(has_attempt)
    @rule(pick=st.integers(0, 9), record=st.sampled_from(EXITS), final=st.booleans())
    def an_attempt_ends(self, pick: int, record: ExitRecord, final: bool) -> None:
        number = self.live(pick)
        if final:
            self.h.report(number, a_final(0.4))
        self.h.exit(number, record, last_sequence=self.h.attempt(number).acknowledged)

    @rule(pick=st.integers(0, 99), record=st.sampled_from(EXITS))
    def a_late_attempt_speaks(self, pick: int, record: ExitRecord) -> None:
        gone = [a for a in self.past if all(a.nonce != live.nonce for live in self.h.xs.attempts.values())]
        if gone:
            attempt = gone[pick % len(gone)]
            self.h.report_as(attempt, a_final(0.0))
            assert not self.h.changes
            self.h.exit_as(attempt, record)
            assert not self.h.changes
            self.h.started_as(attempt)

    # ── evaluators ──────────────────────────────────────────────────────────────────────────────
    @precondition(lambda self: hasattr(self, "h"))
    @rule()
    def an_evaluator_asks(self) -> None:
        self.tokens += 1
        self._may_be_refused(lambda h: h.ask(f"token-{self.tokens}"))

    @precondition(is_held)
    @rule(pick=st.integers(0, 9))
    def an_evaluator_asks_again(self, pick: int) -> None:
        number = self.live(pick)
        assert self.h.ask(self.h.attempt(number).nonce) == number

    @precondition(is_held)
    @rule(
        pick=st.integers(0, 9),
        told=st.sampled_from(
            [
                {"loss": 0.3, "step": 0},
                {"loss": float("nan"), "step": 2},
                {"step": 3},
                {"ends": False},
                {"loss": 0.2},
                {"error": "bad luck"},
                {},
            ]
        ),
    )
    def an_evaluator_tells(self, pick: int, told: dict[str, Any]) -> None:
        token = self.h.attempt(self.live(pick)).nonce
        self._may_be_refused(lambda h: h.tell(token, **told))

    @precondition(is_held)
    @rule(pick=st.integers(0, 9))
    def an_agent_speaks_of_what_an_evaluator_holds(self, pick: int) -> None:
        attempt = self.h.attempt(self.live(pick))
        self.h.report_as(attempt, a_final(0.0), first=1)
        self.h.exit_as(attempt)
        assert not self.h.changes

    @rule(pick=st.integers(0, 99))
    def a_late_evaluator_tells(self, pick: int) -> None:
        gone = [a for a in self.past if all(a.nonce != live.nonce for live in self.h.xs.attempts.values())]
        if gone:
            with pytest.raises(NotHeldError):
                self.h.tell(gone[pick % len(gone)].nonce, 0.0)

    # ── others ──────────────────────────────────────────────────────────────────────────────────
    @rule(priority=st.integers(-1, 2))
    def another_experiment_wants_a_device(self, priority: int) -> None:
        if hasattr(self, "h") and "other" not in self.h.dispatcher.state.experiments:
            begin_other(self.h, "default", trials=1)
            self.h.handle(c.ExperimentChanged(at=self.h.at, experiment_id="other", priority=priority))

    @rule()
    def the_other_ones_trial_begins_anew(self) -> None:
        self._end_other()

    def _end_other(self) -> None:
        for xs in self.h.dispatcher.state.experiments.values():
            for attempt in list(xs.attempts.values()) if xs.id == "other" else ():
                self.h.exit_as(attempt, STOPPED)

    # ── time, and the service itself ────────────────────────────────────────────────────────────
    @rule(seconds=st.sampled_from([0.1, 3.0, 15.0, 70.0]))
    def time_passes(self, seconds: float) -> None:
        self.h.after(seconds)

    @rule()
    def the_service_is_killed(self) -> None:
        self.h.restart()

    @rule()
    def bytes_arrive(self) -> None:
        self.h.handle(c.BlobReceived(at=self.h.at, digest="ab", data=b"x"))

    # ── and in the end ──────────────────────────────────────────────────────────────────────────
    def teardown(self) -> None:
        """Whatever happened: when all goes well from here on, the experiment comes to its end."""
        if not hasattr(self, "h"):
            return
        if "other" in self.h.dispatcher.state.experiments:
            self.h.handle(c.ExperimentStopped(at=self.h.at, experiment_id="other"))
        for _ in range(END_LIMIT):
            if self.h.experiment.status is ExperimentStatus.COMPLETED:
                break
            self._go_well()
        assert self.h.experiment.status is ExperimentStatus.COMPLETED, self.h.experiment
        told = self.h.told()
        assert len(set(told)) == len(told), "told twice"
        trials = self.h.store.queries.trials(self.h.experiment.id)
        assert {t.number for t in trials} == set(told)
        # The space of an ended experiment may be changed: then it is exhausted no more, and waits for a resume.
        if self.h.experiment.reason is ExperimentReason.BUDGET_REACHED:
            kept = sum(t.status.eats_budget and not t.is_added for t in trials)
            assert kept >= (self.h.experiment.spec.budget.trials or 0), "budget is left"

    def _go_well(self) -> None:
        h = self.h
        h.after(6)
        self._end_other()
        if h.experiment.status in {ExperimentStatus.PAUSED, ExperimentStatus.STOPPED, ExperimentStatus.FAILED}:
            h.resume()
        h.ready()
        h.connect(*(h.observed(number) for number in h.xs.attempts), devices=gpus(2))
        h.take(Queue.ASSESSOR)
        while h.xs.requests and h.xs.worker.takes_items:
            h.suggest()
        h.take(Queue.TUNER)
        if self.asked:
            self._evaluators_go_well()
            return
        for number in list(h.xs.attempts):
            if number in h.xs.attempts:
                h.report(number, a_final(0.2), first=h.attempt(number).acknowledged + 1)
            if number in h.xs.attempts:
                h.exit(number, last_sequence=h.attempt(number).acknowledged)

    def _evaluators_go_well(self) -> None:
        self.tokens += 1
        if self.h.experiment.status is ExperimentStatus.RUNNING:
            self.h.ask(f"token-{self.tokens}")
        for attempt in list(self.h.xs.attempts.values()):
            self.h.tell(attempt.nonce, 0.2)


AnyCommands.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=50,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
test_any_commands_in_any_order_keep_the_invariants = AnyCommands.TestCase

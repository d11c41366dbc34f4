"""What people change while a search goes on."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import EXPERIMENT_ID, START, a_spec
from tests.unit.dispatcher.harness import CRASHED, KILLED, STOPPED, Harness, an_intermediate
from trials.wire.messages import Launch, Stop
from trials.wire.plain import to_plain
from tuner_service.dispatcher import commands as c
from tuner_service.dispatcher import effects as e
from tuner_service.dispatcher import importing
from tuner_service.dispatcher.items import (
    CustomTrialAdded,
    NoMoreSuggestions,
    NoSuggestionYet,
    Queue,
    ResultsImported,
    SearchSpaceUpdated,
    Suggested,
    Taken,
    TrialEnded,
)
from tuner_service.dispatcher.limits import (
    ADDED_TRIALS_LIMIT,
    IMPORTED_OUTCOMES_LIMIT,
    LAUNCH_REPEAT_S,
    QUEUE_WARNING_LENGTH,
    TUNER_QUEUE_LIMIT,
)
from tuner_service.domain.errors import ConflictError, InputError, NotFoundError
from tuner_service.domain.experiment import AlgorithmSpec, ExperimentReason, ExperimentStatus
from tuner_service.domain.trial import TrialOutcome, TrialReason, TrialStatus

SPACE: dict[str, Any] = {"lr": {"type": "float", "low": 0.5, "high": 0.9}}


# ── limits and labels ───────────────────────────────────────────────────────────────────────────
def test_a_raised_parallelism_is_used_at_once(h: Harness) -> None:
    h.run(trials=1, budget={"parallel": 1})
    assert h.asked_for() == []

    h.change(budget={"parallel": 2})

    assert h.asked_for() == [2]
    assert h.experiment.spec.budget.parallel == 2


def test_attempts_beyond_a_lowered_parallelism_go_on_and_no_more_are_launched(h: Harness) -> None:
    h.run(trials=3, budget={"parallel": 3})
    h.change(budget={"parallel": 1})
    assert h.orders(Stop) == []

    h.exit(1, STOPPED)
    h.exit(2, STOPPED)
    assert h.statuses() == {1: "waiting", 2: "waiting", 3: "running"}
    h.exit(3, STOPPED)
    assert h.statuses() == {1: "running", 2: "waiting", 3: "waiting"}


def test_trials_lowered_below_what_was_asked_for_end_the_experiment_with_those_it_has(h: Harness) -> None:
    h.run(trials=2, budget={"trials": 10, "parallel": 2})
    h.change(budget={"trials": 1})

    h.succeed(1)
    assert h.asked_for() == []
    h.succeed(2)
    assert h.experiment.reason is ExperimentReason.BUDGET_REACHED


def test_a_bound_can_be_taken_away_again_where_another_one_is_left(h: Harness) -> None:
    h.run(trials=2, budget={"trials": 2, "parallel": 2})
    assert h.asked_for() == []
    with pytest.raises(ConflictError, match="needs trials, or a duration, or both"):
        h.change(budget={"unbounded": frozenset({"trials"})})
    h.change(budget={"duration_s": 60.0, "unbounded": frozenset({"trials"})})
    assert (h.experiment.spec.budget.trials, h.experiment.spec.budget.duration_s) == (None, 60.0)
    h.succeed(1)
    assert h.asked_for() == [3]

    with pytest.raises(ConflictError, match="cannot do without that bound"):
        h.change(budget={"unbounded": frozenset({"duration_s"})})
    h.change(budget={"trials": 9, "unbounded": frozenset({"duration_s"})})
    assert (h.experiment.spec.budget.trials, h.experiment.spec.budget.duration_s) == (9, None)


def test_a_grid_ends_without_a_bound_and_a_deterministic_search_keeps_its_duration(h: Harness) -> None:
    h.begin(tuner=AlgorithmSpec(name="grid"), deterministic=True)
    h.change(budget={"unbounded": frozenset({"trials"})})
    assert h.experiment.spec.budget.trials is None

    with pytest.raises(ConflictError, match="deterministic"):
        h.change(budget={"unbounded": frozenset({"duration_s"})})


def test_one_training_keeps_its_bound_of_trials(h: Harness) -> None:
    h.begin(search_space={}, budget={"trials": 1, "duration_s": 60.0})
    with pytest.raises(ConflictError, match="one training needs trials"):
        h.change(budget={"unbounded": frozenset({"trials"})})


def test_a_lowered_duration_that_is_over_stops_the_experiment(h: Harness) -> None:
    h.run(trials=1)
    h.after(60)
    h.change(budget={"duration_s": 30.0})
    assert h.experiment.status is ExperimentStatus.STOPPING


def test_a_lowered_bound_of_failures_that_is_reached_ends_the_experiment(h: Harness) -> None:
    h.run(trials=1, budget={"parallel": 1})
    h.exit(1, CRASHED)
    h.change(budget={"failures": 1})
    assert h.experiment.reason is ExperimentReason.TOO_MANY_FAILURES


def test_name_note_tags_and_priority_are_kept_and_written_down(h: Harness) -> None:
    h.begin()
    h.change(name="letters", note="tried on Monday", tags=("first", "small"), priority=3)

    experiment = h.experiment
    assert (experiment.spec.name, experiment.note, experiment.tags, experiment.priority) == (
        "letters",
        "tried on Monday",
        ("first", "small"),
        3,
    )
    (changed,) = h.journal("experiment_changed")
    assert changed == {"name": "letters", "note": "tried on Monday", "tags": ["first", "small"], "priority": 3}


def test_a_project_is_kept_and_written_down_with_whoever_changed_it(h: Harness) -> None:
    h.begin()
    h.change(project="letters", by="token of Ada")

    assert h.experiment.spec.project == "letters"
    assert h.journal("experiment_changed") == [{"project": "letters", "by": "token of Ada"}]


def test_whether_its_trials_may_have_to_leave_is_kept_and_written_down(h: Harness) -> None:
    h.begin()
    h.change(preemptible=True)

    assert h.experiment.spec.preemptible is True
    assert h.journal("experiment_changed") == [{"preemptible": True}]


def test_what_stays_as_it_is_writes_nothing(h: Harness) -> None:
    h.begin()
    h.change(name=h.experiment.spec.name, note="", budget={"trials": 20})
    assert not h.changes


def test_of_an_ended_experiment_only_the_labels_change(h: Harness) -> None:
    h.begin()
    h.stop()
    h.change(note="stopped: the data was wrong")
    assert h.experiment.note == "stopped: the data was wrong"

    with pytest.raises(ConflictError, match="use `tuner resume"):
        h.change(budget={"trials": 30})
    with pytest.raises(ConflictError, match="only its name, project, note and tags"):
        h.change(priority=1)


def test_while_it_stops_its_limits_do_not_change(h: Harness) -> None:
    h.run(trials=1)
    h.stop()
    with pytest.raises(ConflictError, match="wait until it has stopped"):
        h.change(budget={"trials": 30})


@pytest.mark.parametrize("budget", [{"parallel": 3}, {"duration_s": 10.0}])
def test_what_decides_the_result_of_a_deterministic_experiment_does_not_change(
    h: Harness, budget: dict[str, Any]
) -> None:
    h.run(trials=1, deterministic=True)
    with pytest.raises(ConflictError, match="part of the result"):
        h.change(budget=budget)
    h.change(budget={"trials": 5, "failures": 2})
    assert h.experiment.spec.budget.trials == 5


# ── priority ────────────────────────────────────────────────────────────────────────────────────
OTHER = "other"


def beside_another(h: Harness, *, cpus: int, priority: int = 0, **other: Any) -> None:
    """The harness's experiment and ``other``, each with a trial that waits for one core; the agent comes next."""
    h.create(trial={"cpus": 1.0})
    h.ready()
    h.suggest()
    spec = a_spec(**({"trial": {"cpus": 1.0}} | other))
    h.handle(c.ExperimentCreated(at=START, experiment_id=OTHER, spec=spec, priority=priority))
    generation = h.dispatcher.state.experiments[OTHER].worker.generation
    names: dict[str, Any] = {"at": START, "experiment_id": OTHER, "generation": generation}
    h.handle(c.WorkerReady(**names))
    (request,) = h.dispatcher.state.experiments[OTHER].requests
    answer = Suggested(line=request.line, parameters={"lr": 0.1})
    h.handle(c.QueueAnswered(queue=Queue.TUNER, answers=(answer,), **names))
    h.connect(cpus=cpus)


def launched(h: Harness) -> list[str]:
    return [str(order.key) for order in h.orders(Launch)]


def raise_priority(h: Harness, experiment_id: str, priority: int) -> list[e.Effect]:
    return h.handle(c.ExperimentChanged(at=START, experiment_id=experiment_id, priority=priority))


def test_a_scarce_core_goes_to_the_older_experiment_where_none_has_priority(h: Harness) -> None:
    beside_another(h, cpus=1)
    assert launched(h) == [f"{EXPERIMENT_ID}/1/1"]


def test_a_scarce_core_goes_to_the_higher_priority(h: Harness) -> None:
    beside_another(h, cpus=0)
    raise_priority(h, OTHER, 1)

    h.connect(cpus=1)

    assert launched(h) == [f"{OTHER}/1/1"]


def test_a_priority_that_an_experiment_was_created_with_counts_as_one_set_later(h: Harness) -> None:
    beside_another(h, cpus=1, priority=1)

    assert launched(h) == [f"{OTHER}/1/1"]


def test_a_core_that_falls_free_goes_to_the_higher_priority(h: Harness) -> None:
    beside_another(h, cpus=1)
    raise_priority(h, OTHER, 1)
    h.started(1)
    h.add_trial()

    h.succeed(1)
    assert launched(h) == [f"{OTHER}/1/1"]


def test_of_two_pauses_that_end_at_one_moment_the_trial_of_the_higher_priority_goes_on(h: Harness) -> None:
    beside_another(h, cpus=2)
    raise_priority(h, OTHER, 1)
    for _ in range(2):
        for experiment_id in (EXPERIMENT_ID, OTHER):
            h.exit_as(h.dispatcher.state.experiments[experiment_id].attempts[1], KILLED)
    h.connect(cpus=1)
    assert launched(h) == []

    h.after(1.0)

    assert launched(h) == [f"{OTHER}/1/3"]


@pytest.mark.parametrize(
    "other",
    [{"trial": {"cpus": 2.0}}, {"trial": {"cpus": 0.0}, "budget": {"parallel": 1}}],
    ids=["too large for every agent", "needs no core"],
)
def test_no_core_is_kept_for_what_could_not_use_it(h: Harness, other: dict[str, Any]) -> None:
    beside_another(h, cpus=0, **other)
    raise_priority(h, OTHER, 1)
    h.connect(cpus=1)
    assert f"{EXPERIMENT_ID}/1/1" in launched(h)


# ── added trials ────────────────────────────────────────────────────────────────────────────────
def test_an_added_trial_runs_beside_the_budget_and_its_outcome_is_told(h: Harness) -> None:
    h.run(trials=1, budget={"trials": 2, "parallel": 3})
    h.add_trial(0.07)
    added = h.trial(3)
    assert (added.parameters, added.source, added.reason) == ({"lr": 0.07}, "custom", TrialReason.LAUNCHED)
    assert h.pending(Queue.TUNER)[-1] == CustomTrialAdded(line=added.decided_line, number=3, parameters={"lr": 0.07})

    h.start_next()
    h.started(3)
    for number in (1, 2, 3):
        h.succeed(number)

    assert h.told() == [1, 2, 3]
    assert h.experiment.reason is ExperimentReason.BUDGET_REACHED
    assert h.experiment.counts == {"succeeded": 3}


def test_an_added_trial_that_fails_spares_the_budget_once(h: Harness) -> None:
    h.run(trials=1, budget={"trials": 2, "parallel": 2})
    h.suggest()
    h.add_trial()
    h.succeed(1)
    h.exit(3, CRASHED)
    h.succeed(2)

    assert h.experiment.status is ExperimentStatus.COMPLETED
    assert h.experiment.spared == 1


def test_an_added_trial_waits_while_the_experiment_is_paused(h: Harness) -> None:
    h.run(trials=1)
    h.pause()
    h.add_trial()
    assert h.statuses()[3] == "waiting"
    h.resume()
    assert h.statuses()[3] == "running"


def test_an_added_trial_survives_a_restart_and_is_told_to_the_tuner(h: Harness) -> None:
    h.run(trials=1)
    h.add_trial(0.07)
    before = h.pending(Queue.TUNER)
    h.restart()
    assert h.pending(Queue.TUNER) == before

    h.ready()
    h.suggest()
    h.take(Queue.TUNER)
    cursor = h.experiment.tuner_cursor
    (added,) = [i for i in h.store.history(EXPERIMENT_ID, Queue.TUNER, after=0, upto=cursor) if i.line == cursor]
    assert added == CustomTrialAdded(line=cursor, number=3, parameters={"lr": 0.07})


def test_a_failed_trial_is_tried_again_as_a_new_one(h: Harness) -> None:
    h.run(trials=1)
    h.exit(1, CRASHED)
    h.add_trial(retry_of=1)

    retried = h.trial(3)
    assert (retried.source, retried.retry_of) == ("retry", 1)
    assert h.journal("trial_added") == [{"number": 3, "parameters": {"lr": 0.02}, "retry_of": 1}]


@pytest.mark.parametrize("number", [0, 2, 3])
def test_what_is_no_trial_is_not_tried_again(h: Harness, number: int) -> None:
    h.run(trials=1)  # and number 2 is asked for
    with pytest.raises(NotFoundError):
        h.add_trial(retry_of=number)


def test_a_trial_that_runs_is_not_tried_again(h: Harness) -> None:
    h.run(trials=1)
    with pytest.raises(ConflictError, match="when it has ended"):
        h.add_trial(retry_of=1)


def test_no_trial_is_added_to_an_experiment_that_is_stopping(h: Harness) -> None:
    h.run(trials=1)
    h.stop()
    with pytest.raises(ConflictError, match="wait until it has stopped, then add"):
        h.add_trial()
    h.exit(1, STOPPED)
    h.add_trial()
    assert h.experiment.runs_added_only


def test_there_is_a_bound_on_waiting_trials(h: Harness) -> None:
    h.create()
    h.ready()
    for _ in range(ADDED_TRIALS_LIMIT):
        h.dispatcher.handle(c.TrialAdded(at=START, experiment_id=EXPERIMENT_ID, parameters={}))
        h.xs.queues[Queue.TUNER].pending.pop()
    with pytest.raises(ConflictError, match="which is the limit"):
        h.add_trial()


def test_deterministic_an_added_trial_takes_its_place_in_the_line_and_the_assessor_hears_of_it(h: Harness) -> None:
    h.run(trials=2, deterministic=True, assessor=AlgorithmSpec(name="median_stop"))
    h.take(Queue.ASSESSOR)
    h.add_trial()
    assert [type(item) for item in h.pending(Queue.ASSESSOR)] == [CustomTrialAdded]
    h.take(Queue.ASSESSOR)

    h.succeed(2)
    h.succeed(1)
    h.take(Queue.TUNER)
    assert h.told() == [1, 2]
    assert h.asked_for() == [4]
    h.suggest()
    h.succeed(3)
    assert h.told() == [1, 2, 3]


def test_deterministic_a_trial_added_while_a_suggestion_is_asked_for_in_vain_is_told_all_the_same(h: Harness) -> None:
    h.run(trials=1, deterministic=True)
    assert h.asked_for() == [2]
    h.add_trial()
    h.suggest_nothing_yet()
    h.succeed(1)
    assert h.experiment.free_numbers == ()  # asked for again, since more is known
    h.suggest_nothing_yet()
    assert h.experiment.free_numbers == (2,)

    h.succeed(3)
    assert h.told() == [1, 3]
    assert h.asked_for() == [2]


# ── results from elsewhere ──────────────────────────────────────────────────────────────────────
def test_imported_results_go_to_the_tuner_alone_and_survive_a_restart(h: Harness) -> None:
    h.run(trials=1, assessor=AlgorithmSpec(name="median_stop"))
    h.import_outcomes(0.3, 0.4)
    imported = h.pending(Queue.TUNER)[-1]
    assert isinstance(imported, ResultsImported)
    assert [outcome.value for outcome in imported.outcomes] == [0.3, 0.4]
    assert h.pending(Queue.ASSESSOR) == []

    h.restart()
    assert h.pending(Queue.TUNER)[-1] == imported


def test_an_ended_experiment_keeps_imported_results_for_its_tuner(h: Harness) -> None:
    h.run(trials=1)
    h.stop()
    h.exit(1, STOPPED)
    h.import_outcomes(0.3)
    assert h.orders(e.Deliver) == []

    h.resume()
    delivered = [order.item for order in h.orders(e.Deliver)]
    assert isinstance(delivered[-1], ResultsImported)


def test_there_is_a_bound_on_results_in_one_request(h: Harness) -> None:
    h.begin()
    with pytest.raises(InputError, match=f"at most {IMPORTED_OUTCOMES_LIMIT}"):
        h.import_outcomes(*[0.5] * (IMPORTED_OUTCOMES_LIMIT + 1))


def test_a_tuner_that_waits_is_asked_again_when_it_has_learned_more(h: Harness) -> None:
    h.run(trials=1)
    h.suggest_nothing_yet()
    assert h.asked_for() == []
    h.import_outcomes(0.3)
    assert h.asked_for() == [2]


@pytest.mark.parametrize("nothing", [NoSuggestionYet, NoMoreSuggestions])
def test_a_tuner_that_had_nothing_before_it_learned_more_is_asked_again(h: Harness, nothing: Any) -> None:
    h.run(trials=1)
    h.change_space(**SPACE)
    (request,) = h.xs.requests
    h.answer(Queue.TUNER, *(Taken(line=i.line) for i in h.pending(Queue.TUNER) if i.line < request.line))
    h.answer(Queue.TUNER, nothing(line=request.line))

    assert h.asked_for() == [2]
    assert not h.experiment.exhausted


# ── the search space ────────────────────────────────────────────────────────────────────────────
def test_a_changed_space_is_a_revision_and_the_spec_keeps_the_first(h: Harness) -> None:
    h.run(trials=1)
    h.change_space(**SPACE)

    assert h.store.queries.search_space(EXPERIMENT_ID) == SPACE
    assert h.experiment.spec.search_space != SPACE
    assert isinstance(h.pending(Queue.TUNER)[-1], SearchSpaceUpdated)
    h.restart()
    assert isinstance(h.pending(Queue.TUNER)[-1], SearchSpaceUpdated)


def test_a_larger_space_ends_the_exhaustion(h: Harness) -> None:
    h.run(trials=1)
    h.suggest_no_more()
    assert h.asked_for() == []
    h.change_space(**SPACE)
    assert h.asked_for() == [2]


def test_an_exhausted_experiment_that_is_over_goes_on_with_a_larger_space(h: Harness) -> None:
    h.run(trials=1)
    h.suggest_no_more()
    h.succeed(1)
    assert h.experiment.reason is ExperimentReason.SPACE_EXHAUSTED
    with pytest.raises(ConflictError, match="change its search space to a larger one"):
        h.resume()

    h.change_space(**SPACE)
    h.resume()
    assert h.asked_for() == [2]


# ── queues ──────────────────────────────────────────────────────────────────────────────────────
def test_a_long_queue_is_warned_of_once_until_it_was_short_again(h: Harness) -> None:
    h.run(trials=1, assessor=AlgorithmSpec(name="median_stop"))
    warnings: list[e.WarnQueueLength] = []

    def report(steps: range) -> None:
        for step in steps:
            h.report(1, an_intermediate(step, 0.5))
            warnings.extend(h.orders(e.WarnQueueLength))

    report(range(QUEUE_WARNING_LENGTH + 10))
    assert [(w.queue, w.depth) for w in warnings] == [(Queue.ASSESSOR, QUEUE_WARNING_LENGTH + 1)]

    h.take(Queue.ASSESSOR, upto=QUEUE_WARNING_LENGTH)
    report(range(50, 65))
    assert len(warnings) == 1
    h.take(Queue.ASSESSOR)
    report(range(100, 100 + QUEUE_WARNING_LENGTH + 1))
    assert len(warnings) == 2


def test_how_long_the_queues_are_can_be_asked(h: Harness) -> None:
    h.run(trials=1, assessor=AlgorithmSpec(name="median_stop"))
    h.report(1, an_intermediate(0, 0.5))
    assert h.dispatcher.queue_depths(EXPERIMENT_ID) == {"tuner": 1, "assessor": 1}
    assert h.dispatcher.queue_depths("other") == {}


def test_beyond_its_bound_people_put_nothing_more_into_the_tuners_queue(h: Harness) -> None:
    h.begin()
    outcome = TrialOutcome(number=0, status=TrialStatus.SUCCEEDED, parameters={"lr": 0.5}, value=0.5)
    lines = tuple(importing.lines_of([outcome]))
    while len(h.xs.queues[Queue.TUNER].pending) < TUNER_QUEUE_LIMIT:
        h.dispatcher.handle(c.OutcomesImported(at=START, experiment_id=EXPERIMENT_ID, lines=lines))
    for refused in (h.add_trial, h.import_outcomes, h.change_space):
        with pytest.raises(ConflictError, match="wait for the tuner"):
            refused()


# ── beside them ─────────────────────────────────────────────────────────────────────────────────
def test_a_stop_that_was_not_confirmed_in_its_time_is_ordered_again(h: Harness) -> None:
    h.run(trials=1, trial={"stop_grace_s": 30.0})
    h.stop_trial(1)
    h.after(30)
    assert h.orders(Stop) == []
    h.after(LAUNCH_REPEAT_S + 1)
    assert len(h.orders(Stop)) == 1


def test_an_experiment_that_does_not_exist_is_not_changed(h: Harness) -> None:
    with pytest.raises(NotFoundError):
        h.change(note="x")


def test_what_an_added_trial_ended_with_is_told_with_its_source(h: Harness) -> None:
    h.run(trials=1)
    h.add_trial()
    h.suggest()
    h.exit(3, CRASHED)
    ended = h.pending(Queue.TUNER)[-1]
    assert isinstance(ended, TrialEnded)
    assert (ended.outcome.number, ended.outcome.source, ended.outcome.status) == (3, "custom", TrialStatus.FAILED)


SIZE_OF_ONE = 170  # bytes of what import_outcomes makes, or one more


def test_large_results_stand_on_several_lines_in_their_order(h: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many parameters they have: a line is told a worker in one frame."""
    monkeypatch.setattr(importing, "IMPORTED_LINE_BYTES", 2 * SIZE_OF_ONE)
    h.begin()
    h.import_outcomes(0.1, 0.2, 0.3, 0.4, 0.5)
    known = [item for item in h.pending(Queue.TUNER) if isinstance(item, ResultsImported)]
    assert [[outcome.value for outcome in item.outcomes] for item in known] == [[0.1, 0.2], [0.3, 0.4], [0.5]]

    outcomes = [outcome for item in known for outcome in item.outcomes]
    other = Harness()
    other.handle(
        c.ExperimentCreated(
            at=other.at, experiment_id=EXPERIMENT_ID, spec=a_spec(), known=tuple(importing.lines_of(outcomes))
        )
    )
    assert [len(item.outcomes) for item in other.pending(Queue.TUNER) if isinstance(item, ResultsImported)] == [2, 2, 1]


def test_who_carries_out_commands_encodes_no_results(h: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be 100,000 of them, and no experiment goes on meanwhile."""
    h.begin()
    outcome = TrialOutcome(number=0, status=TrialStatus.SUCCEEDED, parameters={"lr": 0.5}, value=0.5)
    (line,) = importing.lines_of([outcome])
    monkeypatch.setattr(importing, "to_plain", pytest.fail)
    monkeypatch.setattr(importing, "_encode", pytest.fail)
    h.handle(c.OutcomesImported(at=h.at, experiment_id=EXPERIMENT_ID, lines=(line,)))

    (payload,) = h.journal("outcomes_imported")
    assert payload == {"outcomes": [to_plain(outcome)]}

"""Quota groups: made, changed and deleted while experiments draw from them."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from tests.builders import EXPERIMENT_ID, a_spec
from tests.unit.dispatcher.harness import Harness, a_final
from tests.unit.dispatcher.test_devices import gpus
from tuner_service.dispatcher import commands as c
from tuner_service.dispatcher import limits
from tuner_service.dispatcher.items import Queue, Suggested, SuggestionRequested, Taken
from tuner_service.domain.errors import AlreadyThereError, ConflictError, InputError, NotFoundError
from tuner_service.domain.resources import QuotaGroup
from tuner_service.domain.trial import Attempt


def put(h: Harness, name: str, count: float | None = None, *, borrows: bool = True) -> None:
    h.handle(c.QuotaGroupSet(at=h.at, group=QuotaGroup(name=name, gpus=count, borrows=borrows)))


def delete(h: Harness, name: str) -> None:
    h.handle(c.QuotaGroupDeleted(at=h.at, name=name))


def begin(h: Harness, group: str, trials: int = 4) -> None:
    h.connect(devices=gpus(4))
    h.create(budget={"trials": 20, "parallel": 9}, trial={"gpus": 1.0}, quota_group=group)
    h.ready()
    for _ in range(trials):
        h.suggest()


def running(h: Harness, experiment_id: str = EXPERIMENT_ID) -> int:
    return len(h.dispatcher.state.experiments[experiment_id].attempts)


def begin_other(h: Harness, group: str, trials: int = 4) -> None:
    spec = a_spec(budget={"trials": 20, "parallel": 9}, trial={"gpus": 1.0}, quota_group=group)
    h.handle(c.ExperimentCreated(at=h.at, experiment_id="other", spec=spec))
    names: dict[str, Any] = {"at": h.at, "experiment_id": "other", "generation": other(h).worker.generation}
    h.handle(c.WorkerReady(**names))
    for _ in range(trials):
        (request,) = other(h).requests
        answer = Suggested(line=request.line, parameters={"lr": 0.1})
        h.handle(c.QueueAnswered(queue=Queue.TUNER, answers=(answer,), **names))


def other(h: Harness) -> Any:
    return h.dispatcher.state.experiments["other"]


def test_of_two_who_make_a_group_at_a_time_one_is_refused(h: Harness) -> None:
    made = c.QuotaGroupSet(at=h.at, group=QuotaGroup(name="vision", gpus=1), must_be_new=True)
    h.handle(made)
    with pytest.raises(AlreadyThereError, match="stays as it is"):
        h.handle(replace(made, group=QuotaGroup(name="vision", gpus=2)))
    assert h.store.queries.quota_groups()[0].gpus == 1


def test_a_group_that_may_not_borrow_holds_its_quota_and_more_once_that_is_raised(h: Harness) -> None:
    put(h, "small", 1, borrows=False)
    begin(h, "small")
    assert running(h) == 1

    put(h, "small", 3, borrows=False)
    assert running(h) == 3
    put(h, "small", 3)
    assert running(h) == 4


def test_what_was_borrowed_is_given_back_with_the_next_trial_that_ends(h: Harness) -> None:
    put(h, "three", 3)
    put(h, "one", 1)
    begin(h, "one", trials=6)
    assert running(h) == 4
    begin_other(h, "three")
    assert running(h, "other") == 0

    for number in (1, 2, 3):
        h.succeed(number)

    assert (running(h), running(h, "other")) == (1, 3)


def test_two_experiments_on_one_machine_share_its_devices_alike_and_never_one_of_them(h: Harness) -> None:
    begin(h, "default", trials=2)
    begin_other(h, "default", trials=4)
    for _ in range(2):
        h.suggest()

    held = [u for xs in (h.xs, other(h)) for a in xs.attempts.values() for one in a.holdings for u in one.shares]
    assert (running(h), running(h, "other")) == (2, 2)
    assert sorted(held) == ["g0", "g1", "g2", "g3"]
    h.succeed(1)
    h.succeed(2)
    assert (running(h), running(h, "other")) == (2, 2), "what fell free went to each of them"


def test_a_lowered_quota_stops_nothing_that_runs(h: Harness) -> None:
    put(h, "small", 4, borrows=False)
    begin(h, "small")
    put(h, "small", 1, borrows=False)
    assert running(h) == 4

    h.succeed(1)
    assert running(h) == 3


def test_groups_are_there_after_a_restart(h: Harness) -> None:
    put(h, "small", 1, borrows=False)
    begin(h, "small", trials=2)
    h.restart()
    h.connect(h.observed(1), devices=gpus(4))

    assert running(h) == 1


def test_an_experiment_of_a_group_that_is_not_there_is_refused_with_those_that_are(h: Harness) -> None:
    put(h, "vision", 2)

    with pytest.raises(InputError, match="there is no quota group 'visoin'; known: default, vision") as refused:
        h.create(quota_group="visoin")

    assert refused.value.faults[0].pointer == "/quota_group"


def test_a_group_in_use_is_not_deleted_and_one_that_nobody_uses_any_more_is(h: Harness) -> None:
    put(h, "small", 1)
    begin(h, "small", trials=0)
    with pytest.raises(ConflictError, match="in use by 8f3k2; stop them first"):
        delete(h, "small")

    h.stop()
    delete(h, "small")

    assert h.store.quota_groups() == []
    with pytest.raises(ConflictError, match="draws from quota group 'small', which was deleted"):
        h.resume()
    put(h, "small", 1)
    h.resume()


def test_of_many_users_a_few_are_named(h: Harness) -> None:
    put(h, "small", 1)
    for number in range(7):
        spec = a_spec(quota_group="small")
        h.handle(c.ExperimentCreated(at=h.at, experiment_id=f"e{number}", spec=spec))

    with pytest.raises(ConflictError, match="in use by e0, e1, e2, e3, e4, …;"):
        delete(h, "small")


def test_the_default_group_may_have_a_quota_and_lose_it_again(h: Harness) -> None:
    put(h, "default", 1, borrows=False)
    begin(h, "default")
    assert running(h) == 1

    delete(h, "default")

    assert running(h) == 4
    with pytest.raises(NotFoundError, match="no quota of the group 'default'; the group itself is always there"):
        delete(h, "default")
    with pytest.raises(NotFoundError, match="no quota group 'another'"):
        delete(h, "another")


def test_there_are_no_more_groups_than_the_limit(h: Harness) -> None:
    for number in range(limits.QUOTA_GROUPS_LIMIT):
        put(h, f"g{number}")

    with pytest.raises(ConflictError, match="which is the limit"):
        put(h, "one-more")
    put(h, "g1", 5)


# ── over a long time ────────────────────────────────────────────────────────────────────────────
def suggest_for(h: Harness, experiment_id: str) -> None:
    xs = h.dispatcher.state.experiments[experiment_id]
    while xs.openings:
        answers = [
            Suggested(line=item.line, parameters={"lr": 0.1})
            if isinstance(item, SuggestionRequested)
            else Taken(line=item.line)
            for item in xs.queues[Queue.TUNER].pending
        ]
        names = {"at": h.at, "experiment_id": experiment_id, "generation": xs.worker.generation}
        h.handle(c.QueueAnswered(queue=Queue.TUNER, answers=tuple(answers), **names))


def end(h: Harness, attempt: Attempt) -> None:
    h.report_as(attempt, a_final(0.5))
    h.exit_as(attempt)


def test_shares_are_honoured_over_time_and_what_was_lent_comes_back_within_one_trial() -> None:
    """Trials of random length; the small group is alone at first, so that it holds all four devices."""
    h, rng = Harness(), random.Random(5)
    put(h, "three", 3)
    put(h, "one", 1)
    h.connect(devices=gpus(4))
    ends: dict[str, tuple[float, Attempt]] = {}
    used = Counter[str]()
    longest = 0.0
    for round_ in range(300):
        if round_ in {0, 40}:
            name, group = ("small", "one") if round_ == 0 else ("large", "three")
            spec = a_spec(budget={"trials": 9_999, "parallel": 6}, trial={"gpus": 1.0}, quota_group=group)
            h.handle(c.ExperimentCreated(at=h.at, experiment_id=name, spec=spec))
            generation = h.dispatcher.state.experiments[name].worker.generation
            h.handle(c.WorkerReady(at=h.at, experiment_id=name, generation=generation))
            longest = max((at for at, _ in ends.values()), default=h.at)
        for xs in h.dispatcher.state.experiments.values():
            suggest_for(h, xs.id)
            for attempt in xs.attempts.values():
                ends.setdefault(attempt.nonce, (h.at + rng.uniform(0.5, 1.5), attempt))
        held = Counter(attempt.key.experiment_id for _, attempt in ends.values())
        assert held.total() == 4, "no device is idle while somebody wants it"
        if round_ > 40 and h.at > longest:
            assert held == {"large": 3, "small": 1}
        at, attempt = min(ends.values(), key=lambda entry: entry[0])
        if round_ > 40:
            used.update({name: round((at - h.at) * 1e6) * count for name, count in held.items()})
        h.at = at
        del ends[attempt.nonce]
        end(h, attempt)

    assert used["large"] / used.total() == pytest.approx(0.75, abs=0.05)

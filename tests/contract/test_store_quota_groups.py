"""``ports.Store`` and ``ports.Queries``: quota groups, and what attempts hold."""

from __future__ import annotations

from typing import Any

from tests.builders import EXPERIMENT_ID, a_trial, an_attempt, an_experiment
from tests.contract.stores import OTHER_ID, changes_for
from tuner_service.dispatcher.changes import Changes
from tuner_service.domain.resources import Holding, QuotaGroup
from tuner_service.domain.trial import AttemptStatus

SMALL = QuotaGroup(name="small", gpus=1.5, cpus=2.5, memory_bytes=2**40, borrows=False)
FREE = QuotaGroup(name="free")


def test_quota_groups_survive_by_name(store: Any) -> None:
    assert list(store.quota_groups()) == []

    store.commit(Changes(quota_groups={"small": SMALL, "free": FREE}))

    assert list(store.quota_groups()) == [FREE, SMALL]
    assert list(store.queries.quota_groups()) == [FREE, SMALL]


def test_a_quota_group_is_replaced_and_deleted(store: Any) -> None:
    store.commit(Changes(quota_groups={"small": SMALL, "free": FREE}))
    changed = QuotaGroup(name="small", gpus=None)

    store.commit(Changes(quota_groups={"small": changed, "free": None}))

    assert list(store.quota_groups()) == [changed]


def test_a_quota_group_is_written_beside_an_experiment_that_is_deleted(store: Any) -> None:
    store.commit(changes_for())

    store.commit(Changes(quota_groups={"free": FREE}, deleted_experiments=[EXPERIMENT_ID]))

    assert list(store.quota_groups()) == [FREE]


def test_what_an_attempt_holds_survives(store: Any) -> None:
    holding = Holding(agent_id="n1", cpus=0.5, memory_bytes=7, shares={"GPU-1": 0.25, "GPU-2": 1.0}, gpu_memory_bytes=9)
    holds = an_attempt(holdings=(holding,))

    store.commit(changes_for(a_trial(), attempts={holds.key: holds}))

    (loaded,) = store.load()
    assert loaded.attempts == (holds,)


def test_the_live_attempts_of_all_experiments_are_found(store: Any) -> None:
    live, ended = an_attempt(), an_attempt(attempt=2, status=AttemptStatus.EXITED)
    other = an_attempt(experiment_id=OTHER_ID)
    store.commit(changes_for(a_trial(), attempts={live.key: live, ended.key: ended}))
    trial = a_trial(experiment_id=OTHER_ID)
    store.commit(changes_for(trial, experiment=an_experiment(id=OTHER_ID), attempts={other.key: other}))

    assert set(map(str, (a.key for a in store.queries.all_live_attempts()))) == {str(live.key), str(other.key)}


def test_the_memory_that_trials_were_seen_to_use_survives(store: Any) -> None:
    store.commit(changes_for(experiment=an_experiment(peak_gpu_bytes=80 << 30)))

    assert store.load()[0].experiment.peak_gpu_bytes == 80 << 30

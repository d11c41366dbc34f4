"""The sequence of commits, and what they touched."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.builders import EXPERIMENT_ID, a_checkpoint, a_line, a_trial
from tests.contract.stores import OTHER_ID, changes_for
from tuner_service.dispatcher.changes import TOUCHED_LIMIT, Changes, SearchSpaceRevision, Touched
from tuner_service.domain.errors import StorageError
from tuner_service.domain.resources import QuotaGroup
from tuner_service.ports import StoredSession, StoredToken


def test_commits_are_numbered_without_a_hole(store: Any) -> None:
    assert store.queries.sequence() == 0
    assert [store.commit(changes_for()) for _ in range(3)] == [1, 2, 3]
    assert store.queries.sequence() == 3


def test_a_commit_that_fails_uses_no_number(store: Any) -> None:
    store.commit(changes_for())
    with pytest.raises(Exception, match=r"UNIQUE|(?i:foreign key)|names|unknown"):
        store.commit(Changes(trials={("nobody", 1): a_trial(experiment_id="nobody")}))

    assert store.queries.sequence() == 1
    assert store.commit(changes_for()) == 2


def test_a_rehearsal_fails_as_the_commit_would_and_leaves_nothing(store: Any) -> None:
    store.commit(changes_for(lines=(a_line(),)))
    store.rehearse(changes_for(a_trial(), experiment_id=EXPERIMENT_ID, lines=(a_line(line=2),)))
    for _ in range(2):
        with pytest.raises(StorageError, match=r"(?i:unique)|written before"):
            store.rehearse(changes_for(lines=(a_line(),)))

    assert store.queries.trial(EXPERIMENT_ID, 1) is None
    assert store.queries.sequence() == 1
    assert store.commit(changes_for(a_trial(), lines=(a_line(line=2),))) == 2
    assert [line.line for line in store.queries.journal(EXPERIMENT_ID)] == [1, 2]


def test_what_commits_touched_is_told_together(store: Any) -> None:
    store.commit(changes_for(a_trial(number=1)))
    store.commit(changes_for(a_trial(number=2)))
    store.commit(changes_for(a_trial(number=3), a_trial(number=2)))
    store.commit(changes_for(experiment_id=OTHER_ID))

    assert store.queries.touched_after(1) == Touched(trials={EXPERIMENT_ID: {2, 3}, OTHER_ID: set()})
    assert store.queries.touched_after(4) == Touched()


def test_checkpoints_search_spaces_and_quota_groups_are_named(store: Any) -> None:
    space = SearchSpaceRevision(experiment_id=EXPERIMENT_ID, line=1, search_space={}, at=1.0)
    group = QuotaGroup(name="g", gpus=1.0, borrows=True)
    store.commit(
        changes_for(
            a_trial(number=1), checkpoints=[a_checkpoint(number=1)], search_spaces=[space], quota_groups={"g": group}
        )
    )

    assert store.queries.touched_after(0) == Touched(
        trials={EXPERIMENT_ID: {1}},
        checkpoints={EXPERIMENT_ID: {1}},
        search_spaces={EXPERIMENT_ID},
        quota_groups=True,
    )


def test_of_what_was_removed_nothing_else_is_said(store: Any) -> None:
    store.commit(changes_for(a_trial(number=1)))
    store.commit(Changes(deleted_experiments=[EXPERIMENT_ID]))

    assert store.queries.touched_after(0) == Touched(removed={EXPERIMENT_ID})


def test_of_very_many_trials_only_the_experiment_is_named(store: Any) -> None:
    store.commit(changes_for(*[a_trial(number=number) for number in range(1, TOUCHED_LIMIT + 2)]))
    store.commit(changes_for(a_trial(number=1)))

    assert store.queries.touched_after(0) == Touched(trials={EXPERIMENT_ID: None})
    assert store.queries.touched_after(1) == Touched(trials={EXPERIMENT_ID: {1}})


@pytest.mark.parametrize("sequence", [-1, 2, 2**62])
def test_nothing_is_known_of_a_commit_that_never_was(store: Any, sequence: int) -> None:
    store.commit(changes_for())

    assert store.queries.touched_after(sequence) is None


def test_rows_are_found_by_their_numbers(store: Any) -> None:
    store.commit(changes_for(*[a_trial(number=number, last_value=float("nan")) for number in range(1, 5)]))

    found = store.queries.trials_of(EXPERIMENT_ID, {4, 2, 9})

    assert [trial.number for trial in found] == [2, 4]
    assert all(trial.last_value != trial.last_value for trial in found)


def test_sessions_are_kept_until_they_are_dropped(store: Any) -> None:
    sessions = [
        StoredSession(id=f"s{n}", sha256="a" * 64, token_sha256="b" * 64, created_at=float(n), expires_at=9.0)
        for n in range(3)
    ]
    store.put_session(sessions[1], in_place_of=[])
    store.put_session(sessions[0], in_place_of=[])
    assert list(store.sessions()) == sessions[:2]

    store.put_session(sessions[2], in_place_of=["s0", "nobody"])
    store.drop_sessions(["s1"])
    store.drop_sessions([])

    assert list(store.sessions()) == sessions[2:]


def test_the_last_use_of_a_session_is_noted_where_it_is_there(store: Any) -> None:
    session = StoredSession(id="s", sha256="a" * 64, token_sha256="b" * 64, created_at=1.0, expires_at=9.0, browser="B")
    store.put_session(session, in_place_of=[])
    used = replace(session, address="10.0.0.7", last_used_at=2.5)

    store.note_uses([used, replace(used, id="gone")])

    assert list(store.sessions()) == [used]


def test_tokens_are_kept_by_their_names_with_all_that_is_known_of_them(store: Any) -> None:
    whole = StoredToken(
        name="gpu-box",
        role="agent",
        sha256="ab" * 32,
        created_at=1.5,
        agent_id="gpu-box",
        made_by="home",
        expires_at=90.25,
        revoked_at=80.5,
        last_used_at=70.5,
    )
    plain = StoredToken(name="ann", role="operator", sha256="cd" * 32, created_at=2.5)
    store.put_token(whole)
    store.put_token(plain)
    assert list(store.tokens()) == [plain, whole]

    replaced = replace(whole, sha256="ef" * 32, revoked_at=None)
    store.put_token(replaced, in_place_of=["ann", "nobody"])
    store.note_uses_of_tokens({"gpu-box": 99.5, "ann": 99.5})
    store.note_uses_of_tokens({})

    assert list(store.tokens()) == [replace(replaced, last_used_at=99.5)]

"""Tokens of people and agents: what each opens, until when, and what is kept of them."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from tests.api_service import FixedClock
from tests.memory_store import MemoryStore
from tuner_service.domain.errors import ConflictError, InputError, LimitExceededError, NotFoundError, StorageError
from tuner_service.ports import StoredToken
from tuner_service.service import tokens as module
from tuner_service.service.access import Role
from tuner_service.service.tokens import AGAIN_S, LOCAL_AGENT, USES_NOTED_S, Tokens, TokenState, hash_of

HOME_SECRET = "of-the-home"  # of a test


@pytest.fixture
def tokens() -> Tokens:
    return some_tokens(MemoryStore())


def some_tokens(store: Any, clock: FixedClock | None = None) -> Tokens:
    home = {hash_of(HOME_SECRET): Role.ADMIN, hash_of("of-the-agent"): Role.AGENT}
    return Tokens(home=home, store=store, clock=clock or FixedClock())


def restarted(tokens: Tokens) -> Tokens:
    return Tokens(home=tokens.home, store=tokens.store, clock=tokens.clock)


def add(tokens: Tokens, name: str = "ann", role: Role = Role.OPERATOR, lasts_s: float | None = None) -> str:
    return tokens.add(name, role, lasts_s=lasts_s, by="home")[0]


def the_row(tokens: Tokens, name: str = "ann") -> StoredToken:
    return next(row for row in tokens.all() if row.name == name)


def test_a_token_is_known_by_its_secret_and_by_no_other_text(tokens: Tokens) -> None:
    secret = add(tokens)

    for known in (tokens, restarted(tokens)):
        found = known.find(secret)
        assert found is not None
        assert (found.name, found.role, found.agent_id) == ("ann", Role.OPERATOR, None)
        home = known.find(HOME_SECRET)
        assert home is not None
        assert (home.name, home.role) == ("home", Role.ADMIN)
        for text in ("", secret[:-1], secret + "x", secret.swapcase(), hash_of(secret), "ann", "\udcff"):
            assert known.find(text) is None
    assert len(secret) == 43
    assert secret not in repr(tokens)
    assert HOME_SECRET not in repr(tokens)


def test_an_agents_token_is_for_the_agent_of_its_name(tokens: Tokens) -> None:
    found, own = tokens.find(add(tokens, "gpu-box", Role.AGENT)), tokens.find("of-the-agent")

    assert found is not None
    assert own is not None
    assert (found.agent_id, own.agent_id) == ("gpu-box", LOCAL_AGENT)


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "a..b", "../a", "a/b", "-a", ".a", "a b", "é", "a\n", "x" * 65, "local", "home", "home-agent"],
)
def test_a_name_that_means_something_else_is_refused(tokens: Tokens, name: str) -> None:
    with pytest.raises(InputError, match="/name"):
        add(tokens, name)
    assert tokens.all() == []


def test_a_token_that_was_revoked_opens_nothing_and_its_name_may_be_given_again(tokens: Tokens) -> None:
    secret = add(tokens)
    found = tokens.find(secret)
    assert found is not None
    with pytest.raises(ConflictError, match="there is a token 'ann' already"):
        add(tokens)

    tokens.revoke("ann")

    for known in (tokens, restarted(tokens)):
        assert known.find(secret) is None
        assert not known.is_good(found)
        assert known.state_of(the_row(known)) is TokenState.REVOKED
    for change in (tokens.revoke, lambda name: tokens.rotate(name, lasts_s=None, by="home")):
        with pytest.raises(NotFoundError, match="it was revoked"):
            change("ann")
    other = add(tokens)
    assert tokens.find(secret) is None
    assert tokens.find(other) is not None


def test_a_token_that_has_expired_opens_nothing(tokens: Tokens) -> None:
    secret, clock = add(tokens, lasts_s=60.0), tokens.clock
    assert isinstance(clock, FixedClock)
    found = tokens.find(secret)
    assert found is not None
    clock.at += 59.9
    assert tokens.is_good(found)
    clock.at += 0.1

    assert tokens.find(secret) is None
    assert not tokens.is_good(found)
    assert tokens.state_of(the_row(tokens)) is TokenState.EXPIRED

    secret, row = tokens.rotate("ann", lasts_s=None, by="home")
    assert row.expires_at == clock.at + 60.0
    assert tokens.find(secret) is not None


def test_a_secret_that_was_exchanged_opens_nothing(tokens: Tokens) -> None:
    before = add(tokens)
    found = tokens.find(before)
    assert found is not None

    after, row = tokens.rotate("ann", lasts_s=None, by="bob")

    assert tokens.find(before) is None
    assert not tokens.is_good(found)
    assert tokens.find(after) is not None
    assert (row.role, row.made_by, row.expires_at) == ("operator", "bob", None)


def test_the_tokens_of_the_home_are_files_and_not_removed_here(tokens: Tokens) -> None:
    with pytest.raises(ConflictError, match="remove that and start the service again"):
        tokens.revoke("home")
    with pytest.raises(NotFoundError):
        tokens.revoke("nobody")


def test_when_a_token_was_used_is_known_at_once_and_written_now_and_then(tokens: Tokens) -> None:
    secret = add(tokens)
    assert the_row(tokens).last_used_at is None
    assert tokens.find(secret) is not None

    assert the_row(tokens).last_used_at == tokens.clock.now()
    assert [row.last_used_at for row in tokens.store.tokens()] == [None]
    tokens.note_uses()
    assert [row.last_used_at for row in tokens.store.tokens()] == [tokens.clock.now()]


def test_uses_that_the_disk_does_not_take_are_tried_again(tokens: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens.find(add(tokens))

    def refuse(_: object) -> None:
        raise StorageError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(tokens.store, "note_uses_of_tokens", refuse)
        tokens.note_uses()
    assert [row.last_used_at for row in tokens.store.tokens()] == [None]
    tokens.note_uses()
    assert [row.last_used_at for row in tokens.store.tokens()] == [tokens.clock.now()]


def test_a_token_is_good_where_no_thread_can_be_had_and_its_uses_are_noted_later(
    tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret, clock = add(tokens), tokens.clock
    assert isinstance(clock, FixedClock)
    noting: list[Any] = []
    clock.at += USES_NOTED_S
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        assert tokens.find(secret) is not None
    monkeypatch.setattr(threading.Thread, "start", lambda thread: noting.append(thread))  # noqa: PLW0108
    assert tokens.find(secret) is not None
    assert not noting, "not with each use: it is tried again after a while"
    clock.at += AGAIN_S
    assert tokens.find(secret) is not None

    (thread,) = noting
    thread.run()
    assert [row.last_used_at for row in tokens.store.tokens()] == [clock.at]


def no_thread(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_a_change_that_the_disk_does_not_take_is_none(tokens: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = add(tokens)

    def refuse(*_: object, **__: object) -> None:
        raise StorageError("the disk is full")

    monkeypatch.setattr(tokens.store, "put_token", refuse)
    for change in (
        lambda: add(tokens, "bob"),
        lambda: tokens.revoke("ann"),
        lambda: tokens.rotate("ann", lasts_s=None, by="home"),
    ):
        with pytest.raises(StorageError):
            change()
    assert tokens.find(secret) is not None
    assert [row.name for row in tokens.all()] == ["ann"]


def test_there_are_so_many_tokens_and_so_many_revoked_ones_and_no_more(
    tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TOKENS_LIMIT", 3)
    monkeypatch.setattr(module, "REVOKED_KEPT", 2)
    for name in ("a", "b", "c"):
        add(tokens, name)
    with pytest.raises(LimitExceededError, match="3 tokens"):
        add(tokens, "d")
    for name in ("b", "a", "c"):
        tokens.revoke(name)
        tokens.clock.at += 1  # type: ignore[attr-defined]  # of the test's clock
    add(tokens, "d")

    assert [row.name for row in tokens.all()] == ["a", "c", "d"]
    assert [row.name for row in tokens.store.tokens()] == ["a", "c", "d"]


def test_a_row_whose_role_nobody_knows_opens_nothing(tokens: Tokens) -> None:
    secret = add(tokens)
    tokens.store.put_token(replace(the_row(tokens), role="emperor"))

    after = restarted(tokens)

    assert after.find(secret) is None
    assert the_row(after).role == "emperor"

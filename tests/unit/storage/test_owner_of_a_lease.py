"""When a service that waits may take the lease, whichever clock was set meanwhile."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from tuner_service.storage.postgresql.lease import LEASE_S, RENEW_S, process_mark
from tuner_service.storage.postgresql.owner import SILENCE_S, Owner, Renewals


def an_owner(*, renewals: int = 0, has_expired: bool = False, host: str | None = "a") -> Owner:
    return Owner(
        service="s", epoch=4, renewals=renewals, has_expired=has_expired, host=host, pid=1, process="", home=None
    )


def seen(*looks: tuple[float, Owner]) -> bool:
    """Whether the lease has run out at the last of them."""
    renewals = Renewals()
    for now, owner in looks:
        renewals.has_renewed(owner, now)
    return renewals.has_run_out(looks[-1][1], looks[-1][0])


def test_a_lease_that_ran_out_before_anybody_looked_is_taken_at_once() -> None:
    assert seen((100.0, an_owner(has_expired=True)))


def test_a_lease_that_is_held_is_left_alone() -> None:
    assert not seen((100.0, an_owner()))
    assert not seen((100.0, an_owner()), (100.0 + LEASE_S, an_owner()))


def test_a_living_service_keeps_its_lease_though_the_servers_clock_was_set_forward() -> None:
    forward = an_owner(renewals=1, has_expired=True)
    assert not seen((100.0, an_owner()), (100.3, forward))
    assert not seen((100.0, an_owner()), (100.5, an_owner(renewals=1)), (100.9, forward))
    assert not seen((100.0, an_owner(has_expired=True)), (100.5, forward)), "it renewed before our eyes"


@pytest.mark.parametrize("has_expired", [False, True], ids=["set back", "right"])
def test_who_does_not_renew_for_a_whole_lease_has_lost_it_whatever_the_servers_clock_says(has_expired: bool) -> None:
    ends = 100.5 + LEASE_S + RENEW_S + 0.1
    assert seen(
        (100.0, an_owner()), (100.5, an_owner(renewals=1)), (ends, an_owner(renewals=1, has_expired=has_expired))
    )


def test_a_lease_that_runs_out_before_our_eyes_is_taken_after_a_silence() -> None:
    looks = (100.0, an_owner()), (100.5, an_owner(renewals=1))
    assert seen(*looks, (100.6 + SILENCE_S, an_owner(renewals=1, has_expired=True)))


def test_what_a_service_that_ended_in_order_has_left_is_taken_at_once() -> None:
    assert seen((100.0, an_owner()), (100.1, an_owner(has_expired=True, host=None)))


def test_only_a_change_between_two_looks_is_a_renewal() -> None:
    renewals = Renewals()
    assert not renewals.has_renewed(an_owner(renewals=7), 1.0)
    assert not renewals.has_renewed(an_owner(renewals=7), 2.0)
    assert renewals.has_renewed(an_owner(renewals=8), 3.0)
    assert renewals.silent_s(3.5) == 0.5


@pytest.mark.parametrize(
    ("mark", "has_died"),
    [
        ("BOOT SPACE PID 1", True),
        ("BOOT SPACE PID START", False),
        ("another SPACE PID 1", False),
        ("BOOT another PID 1", False),
        ("", False),
    ],
    ids=["ended here", "lives here", "of another machine", "of another namespace", "unknown"],
)
def test_only_of_its_own_machine_a_service_says_that_another_one_has_died(mark: str, has_died: bool) -> None:
    """A number elsewhere is another process here, or none."""
    mine = process_mark(os.getpid()).split()
    for name, text in zip(("BOOT", "SPACE", "PID", "START"), mine, strict=True):
        mark = mark.replace(name, text)

    assert replace(an_owner(), process=mark).has_died is has_died

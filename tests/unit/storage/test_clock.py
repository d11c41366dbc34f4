from __future__ import annotations

import time

from tuner_service import clock


def test_the_clock_tells_seconds_since_the_epoch() -> None:
    assert abs(clock.SystemClock().now() - time.time()) < 5


def test_the_clock_never_goes_back() -> None:
    system = clock.SystemClock()
    times = [system.now() for _ in range(1000)]

    assert times == sorted(times)


def test_experiment_ids_are_short_and_have_no_signs_that_look_alike() -> None:
    names = {clock.new_experiment_id() for _ in range(500)}

    assert all(len(name) == 5 for name in names)
    assert not set("".join(names)) & set("01iloILO")
    assert len(names) > 490


def test_secrets_and_names_differ_each_time() -> None:
    assert len({clock.new_token() for _ in range(50)}) == 50
    assert len({clock.new_name("agent") for _ in range(50)}) == 50
    assert clock.new_name("agent").startswith("agent-")


def test_it_goes_on_from_a_time_that_the_machine_has_not_come_to_yet() -> None:
    system = clock.SystemClock()
    two_days = system.now() + 2 * 86_400

    system.not_before(two_days)

    first = system.now()
    assert first >= two_days
    assert system.now() >= first
    assert system.now() < two_days + 3_600


def test_an_earlier_time_changes_nothing() -> None:
    system = clock.SystemClock()
    before = system.now()
    system.not_before(0.0)
    assert before <= system.now() < before + 3_600

"""What the resume benchmark says of a search that was killed."""

from __future__ import annotations

from benchmarks.resume.__main__ import Event, figures


def events(*told: tuple[str, float, int]) -> list[Event]:
    return [Event(what=what, x=x, step=step, at=float(place)) for place, (what, x, step) in enumerate(told)]


UNDISTURBED = events(*(("ended", x, -1) for x in (0.1, 0.2, 0.3, 0.4)))


def test_a_search_that_goes_on_where_it_was_has_lost_and_repeated_nothing() -> None:
    before = events(("began", 0.1, -1), ("step", 0.1, 0), ("ended", 0.1, -1), ("began", 0.2, -1), ("step", 0.2, 0))
    after = events(
        ("began", 0.2, -1), ("step", 0.2, 1), ("ended", 0.2, -1), ("began", 0.3, -1), ("ended", 0.3, -1),
        ("began", 0.4, -1), ("ended", 0.4, -1),
    )  # fmt: skip

    assert figures(UNDISTURBED, before, after, resumed_at=-0.5) == {
        "ran again": 0,
        "different points": 4,
        "same points, %": 100,
        "steps repeated": 0,
        "first trial, s": 0.5,
    }


def test_what_runs_again_is_lost_or_differs_is_counted() -> None:
    before = events(("began", 0.1, -1), ("step", 0.1, 0), ("ended", 0.1, -1), ("began", 0.2, -1))
    after = events(("began", 0.1, -1), ("step", 0.1, 0), ("ended", 0.1, -1), ("began", 0.7, -1), ("ended", 0.7, -1))

    found = figures(UNDISTURBED, before, after, resumed_at=0.0)

    assert (found["ran again"], found["different points"], found["same points, %"], found["steps repeated"]) == (
        1,
        2,
        50,
        1,
    )

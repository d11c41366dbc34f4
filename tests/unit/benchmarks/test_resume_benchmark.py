"""What the resume benchmark says of a search that was killed."""

from __future__ import annotations

from benchmarks.resume.__main__ import MOMENT_S, Event, figures
from benchmarks.writing import Row


def events(*told: tuple[str, float, int]) -> list[Event]:
    return [Event(what=what, x=x, step=step, at=float(place)) for place, (what, x, step) in enumerate(told)]


def killed(before: list[Event], after: list[Event], *, resumed_at: float, killed_at: float = 100.0) -> Row:
    return {"before": before, "killed_at": killed_at, "resumed_at": resumed_at, "after": after}


UNDISTURBED = events(*(("ended", x, -1) for x in (0.1, 0.2, 0.3, 0.4)))


def test_a_search_that_goes_on_where_it_was_has_lost_and_repeated_nothing() -> None:
    before = events(("began", 0.1, -1), ("step", 0.1, 0), ("ended", 0.1, -1), ("began", 0.2, -1), ("step", 0.2, 0))
    after = events(
        ("began", 0.2, -1), ("step", 0.2, 1), ("ended", 0.2, -1), ("began", 0.3, -1), ("ended", 0.3, -1),
        ("began", 0.4, -1), ("ended", 0.4, -1),
    )  # fmt: skip

    assert figures(UNDISTURBED, killed(before, after, resumed_at=-0.5)) == {
        "ran again": 0,
        "different points": 4,
        "same points, %": 100,
        "steps repeated": 0,
        "first trial, s": 0.5,
    }


def test_what_runs_again_is_lost_or_differs_is_counted() -> None:
    before = events(("began", 0.1, -1), ("step", 0.1, 0), ("ended", 0.1, -1), ("began", 0.2, -1))
    after = events(("began", 0.1, -1), ("step", 0.1, 0), ("ended", 0.1, -1), ("began", 0.7, -1), ("ended", 0.7, -1))

    found = figures(UNDISTURBED, killed(before, after, resumed_at=0.0))

    assert (found["ran again"], found["different points"], found["same points, %"], found["steps repeated"]) == (
        1,
        2,
        50,
        1,
    )


def test_a_trial_whose_end_nobody_can_have_stored_yet_has_not_ended() -> None:
    before = events(("began", 0.1, -1), ("step", 0.1, 0), ("ended", 0.1, -1))
    after = events(("began", 0.1, -1), ("step", 0.1, 0), ("ended", 0.1, -1))

    at_its_end, later = (
        figures(UNDISTURBED, killed(before, after, resumed_at=0.0, killed_at=2.0 + since)) for since in (0.0, MOMENT_S)
    )

    assert (at_its_end["ran again"], later["ran again"]) == (0, 1)

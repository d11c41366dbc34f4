"""What the dispatch benchmark reads off the times that trials wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.dispatch.loads import Load, figures, next_figures

LOAD = Load(name="few", trials=8)


@pytest.fixture
def times(tmp_path: Path) -> Path:
    """Two searches of eight trials: from second 1 and, three times as slow, from second 100."""
    file = tmp_path / "times"
    lines = [
        f"{start + step * place} {start + step * (place + 1)}"
        for start, step in ((1, 1), (101, 3))
        for place in range(8)
    ]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def test_each_search_of_one_process_is_counted_from_its_own_beginning(times: Path) -> None:
    found = {"began_at": 0.0, "whole_s": 10.0, "next": {"began_at": 100.0, "whole_s": 26.0}}

    first, following = figures(times, LOAD, found), next_figures(times, LOAD, found)

    assert (first["first_s"], first["whole_s"], first["steady_a_second"]) == (1.0, 10.0, 1.0)
    assert (following["first_s"], following["whole_s"]) == (1.0, 26.0)
    assert following["steady_a_second"] == pytest.approx(1 / 3)


def test_a_search_with_too_few_trials_is_left_out(times: Path) -> None:
    found = {"began_at": 0.0, "whole_s": 10.0, "next": {"began_at": 110.0, "whole_s": 26.0}}

    assert next_figures(times, LOAD, found) == {"error": "5 trials ran, not 8"}


def test_a_process_that_did_not_go_on_has_no_next_search(times: Path) -> None:
    assert "error" in next_figures(times, LOAD, {"began_at": 0.0, "whole_s": 10.0})

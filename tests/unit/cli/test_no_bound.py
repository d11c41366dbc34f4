"""``none`` for a bound of the budget, on a command line and in a call, is null in the body."""

from __future__ import annotations

import pytest

from tuner_service.cli.main import build_parser
from tuner_service.cli.typed import budget_of
from tuner_service.program.bodies import budget_body


@pytest.mark.parametrize("command", ["set", "resume", "clone"])
def test_none_is_no_bound_and_what_is_left_out_is_not_sent(command: str) -> None:
    typed = build_parser().parse_args([command, "8f3", "--trials", "none", "--duration", "2h"])

    assert budget_of(typed) == {"budget": {"trials": None, "duration": "2h"}}
    assert budget_of(build_parser().parse_args([command, "8f3", "--duration", "none"])) == {
        "budget": {"duration": None}
    }


def test_a_program_says_the_same() -> None:
    assert budget_body({"trials": "none", "duration": None, "parallel": 2}) == {
        "budget": {"trials": None, "parallel": 2}
    }
    assert budget_body({"trials": None}) == {}

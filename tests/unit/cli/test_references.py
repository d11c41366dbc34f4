"""What a person writes to name an experiment or a session; an unset variable of a shell names nothing."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tuner_service.cli.context import resolve_experiment, resolve_trial
from tuner_service.cli.output.exit_codes import CommandError, ExitCode
from tuner_service.cli.verbs import get, sessions
from tuner_service.client import Client, ProblemError

ONE = {"id": "8f3k2", "name": "only", "created_at": "now"}


class Answer:
    def json(self) -> dict[str, Any]:
        return {"items": [{"id": "0123abcd"}, {"id": "0456abcd"}]}


class Service:
    """Of one experiment and two sessions."""

    def experiment(self, reference: str) -> dict[str, Any]:
        if reference != ONE["id"]:
            raise ProblemError(status=404, problem={"title": "Not Found", "status": 404, "detail": "none"})
        return ONE

    def experiments(self) -> list[dict[str, Any]]:
        return [ONE]

    def call(self, *_: object) -> Answer:
        return Answer()


SERVICE = cast("Client", Service())


def test_an_empty_text_names_no_experiment_also_where_there_is_one_only() -> None:
    assert [resolve_experiment(SERVICE, text) for text in ("8f3k2", "8f", "only", "@last")] == [ONE["id"]] * 4
    with pytest.raises(CommandError, match="is a variable of your shell not set") as refused:
        resolve_experiment(SERVICE, "")
    assert refused.value.code is ExitCode.USAGE


def test_an_empty_text_names_no_session() -> None:
    assert sessions._found(SERVICE, "0123")["id"] == "0123abcd"
    with pytest.raises(CommandError, match="no session '' is open"):
        sessions._found(SERVICE, "")


def test_the_beginning_of_several_ids_is_a_mistake_of_who_writes_it() -> None:
    with pytest.raises(CommandError, match="several sessions: 0123abcd, 0456abcd") as refused:
        sessions._found(SERVICE, "0")
    assert refused.value.code is ExitCode.USAGE
    several = Service()
    several.experiments = lambda: [ONE, {**ONE, "id": "8f555"}]  # type: ignore[method-assign]
    with pytest.raises(CommandError, match="names 2 experiments") as refused:
        resolve_experiment(cast("Client", several), "8f")
    assert refused.value.code is ExitCode.USAGE


@pytest.mark.parametrize("number", ["", "-1", "1.5", "²", "9" * 5_000])
@pytest.mark.parametrize("resolve", [resolve_trial, get._trial])
def test_what_is_no_number_of_a_trial_is_refused(resolve: Any, number: str) -> None:
    with pytest.raises(CommandError, match="names no trial") as caught:
        resolve(SERVICE, f"only/{number}")
    assert caught.value.code is ExitCode.USAGE

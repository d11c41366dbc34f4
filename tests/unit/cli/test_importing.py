"""`tuner import` sends a long file in portions, and says of the whole file what is wrong with one."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tuner_service.cli.verbs import import_results
from tuner_service.client import ProblemError


class Client:
    """Refuses a portion with a result that is called bad."""

    def import_results(self, _: str, body: dict[str, Any]) -> dict[str, int]:
        names = [result["parameters"]["name"] for result in body["results"]]
        if "bad" in names:
            error = {"pointer": f"/results/{names.index('bad')}/parameters/name", "detail": "lies outside"}
            raise ProblemError(status=422, problem={"detail": "1 thing is wrong", "errors": [error]})
        return {"imported": len(names)}


@pytest.fixture(autouse=True)
def _service(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def connected(_: object) -> Iterator[Client]:
        yield Client()

    monkeypatch.setattr(import_results, "connected", connected)
    monkeypatch.setattr(import_results, "settings_of", lambda _: None)
    monkeypatch.setattr(import_results, "resolve_experiment", lambda _, reference: reference)
    monkeypatch.setattr(import_results, "RESULTS_AT_ONCE", 2)


def import_named(tmp_path: Path, *names: str) -> int:
    file = tmp_path / "found.json"
    file.write_text(json.dumps([{"parameters": {"name": name}, "value": 1.0} for name in names]))
    return import_results.run(
        argparse.Namespace(reference="8f3k2", file=str(file), experiment=None, outside_space=False)
    )


def test_a_file_of_several_portions_is_told_as_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert import_named(tmp_path, *"abcde") == 0
    assert capsys.readouterr().err == "the tuner of 8f3k2 is told 5 results\n"


def test_what_is_wrong_with_a_later_portion_is_named_by_its_place_in_the_file_and_what_was_told_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ProblemError, match="/results/3/parameters/name: lies outside"):
        import_named(tmp_path, "a", "b", "c", "bad")
    assert "the first 2 results were told; leave them out" in capsys.readouterr().err


def test_of_a_first_portion_that_is_refused_nothing_was_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ProblemError, match="/results/1/parameters/name: lies outside"):
        import_named(tmp_path, "a", "bad", "c")
    assert capsys.readouterr().err == ""

"""Pictures over HTTP: who asks for what, and what is said where nothing can be drawn."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api_service import an_api_service
from tuner_service.api.routes import figures
from tuner_service.domain.errors import NotInstalledError


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What was to be drawn; the picture itself is drawn in a process, which tests of this tier do not start."""
    asked: list[dict[str, Any]] = []

    def draw(given: dict[str, Any], check: Any) -> bytes:
        asked.append(given)
        return b"a picture"

    monkeypatch.setattr(figures, "draw_apart", draw)
    monkeypatch.setattr(figures, "require_matplotlib", lambda: None)
    return asked


@pytest.mark.parametrize("kind", list(figures.Picture))
def test_each_kind_is_drawn_of_the_answers_it_shows(kind: figures.Picture, drawn: list[dict[str, Any]]) -> None:
    api = an_api_service()
    place = f"/api/v1/experiments/{api.create()}"
    answer = api.client.get(f"{place}/plot.png?kind={kind.value}")
    assert (answer.status_code, answer.content, answer.headers["content-type"]) == (200, b"a picture", "image/png")
    assert {name.value for name in figures.VIEWS[kind]} == drawn[0]["views"].keys()
    again = api.client.get(f"{place}/plot.png?kind={kind.value}", headers={"if-none-match": answer.headers["etag"]})
    assert (again.status_code, len(drawn)) == (304, 1)


def test_parallel_coordinates_of_a_wide_space_have_as_many_axes_as_are_drawn() -> None:
    table = figures._question("e", figures.Kind.TABLE, figures.Picture.PARALLEL, 0.0)
    assert table.options["members"] == figures.AXES_SHOWN


def test_without_matplotlib_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise NotInstalledError("pip install 'tuner-service[plot]'")

    monkeypatch.setattr(figures, "require_matplotlib", missing)
    api = an_api_service()
    answer = api.client.get(f"/api/v1/experiments/{api.create()}/plot.svg")
    assert answer.status_code == 501
    assert "tuner-service[plot]" in answer.json()["detail"]


def test_an_unknown_kind_and_an_unknown_experiment_are_refused(drawn: list[dict[str, Any]]) -> None:
    api = an_api_service()
    assert api.client.get(f"/api/v1/experiments/{api.create()}/plot.png?kind=pie").status_code == 422
    assert api.client.get("/api/v1/experiments/nobody/plot.png").status_code == 404
    assert drawn == []

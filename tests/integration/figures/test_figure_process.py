"""A picture is drawn in a process of its own, with bounds on its time and its memory."""

from __future__ import annotations

import pytest

from tests.unit.figures.test_drawing import views
from tuner_service.domain.errors import LimitExceededError, NotInstalledError
from tuner_service.figures import process
from tuner_service.service.questions import NotWantedError


def wanted() -> None:
    """Somebody waits."""


@pytest.mark.parametrize(("form", "begin"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_it_is_drawn(form: str, begin: bytes) -> None:
    asked = {"kind": "history", "form": form, "views": views(30)}
    assert process.draw_apart(asked, wanted).startswith(begin)


def test_what_cannot_be_drawn_is_told_with_what_to_do() -> None:
    with pytest.raises(LimitExceededError, match=r"KeyError.*take the data instead"):
        process.draw_apart({"kind": "history", "form": "png", "views": {}}, wanted)


def test_one_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "DRAWING_LIMIT_S", 0.01)
    with pytest.raises(LimitExceededError, match=r"longer than 0\.01 s"):
        process.draw_apart({"kind": "history", "form": "png", "views": views(30)}, wanted)


def test_one_that_nobody_waits_for_is_ended() -> None:
    def check() -> None:
        raise NotWantedError

    with pytest.raises(NotWantedError):
        process.draw_apart({"kind": "history", "form": "png", "views": views(30)}, check)


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(NotInstalledError, match=r"tuner-service\[plot\]"):
        process.draw_apart({}, wanted)

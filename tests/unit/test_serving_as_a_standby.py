"""What ``serve`` hands to the server of a standby; that waits, and is asked meanwhile."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tuner_service import wiring
from tuner_service.api.standby import StandbyApp
from tuner_service.config import Settings


class TakesOverError(Exception):
    """The active service is gone: here the test ends."""


def take_over(*_: object, **__: object) -> Any:
    raise TakesOverError


@pytest.fixture
def apps(monkeypatch: pytest.MonkeyPatch) -> list[StandbyApp]:
    """That the servers of standbys answer with; of this process and its ports nothing is touched."""
    found = list[StandbyApp]()
    lasting: dict[str, Any] = dict.fromkeys(("start", "stop", "close", "active", "app"), lambda *_: None)

    def a_server(_: object, app: StandbyApp, **__: object) -> Any:
        found.append(app)
        return SimpleNamespace(**lasting)

    monkeypatch.setattr("tuner_service.api.standby.StandbyServer", a_server)
    monkeypatch.setattr("tuner_service.standing_by.Standby", lambda *_, **__: SimpleNamespace(**lasting))
    monkeypatch.setattr(wiring, "running_core", take_over)
    monkeypatch.setattr(wiring, "listening_socket", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(wiring, "kept_bounded", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(wiring, "url_of", lambda *_, **__: "https://localhost:1")
    for module, name in ((wiring.os, "umask"), (wiring.signal, "signal"), (wiring.gc, "freeze")):
        monkeypatch.setattr(module, name, lambda *_: 0)
    for name in ("log_to_standard_error", "guard_the_door"):
        monkeypatch.setattr(wiring, name, lambda _: None)
    return found


def test_a_standby_warns_of_the_end_of_its_own_certificate(
    apps: list[StandbyApp], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Agents and browsers come to its address the moment that it takes over; the active service has another one."""
    certificate = SimpleNamespace(context=None, warning=lambda _: "the TLS certificate /c ends in 9 days")
    monkeypatch.setattr(wiring, "certificate_of", lambda _: certificate)
    with pytest.raises(TakesOverError):
        wiring.serve(Settings(home=tmp_path, db=""), is_standby=True)

    (app,) = apps
    assert app._warnings() == {"certificate": "the TLS certificate /c ends in 9 days"}


def test_a_standby_without_tls_warns_of_nothing(apps: list[StandbyApp], tmp_path: Path) -> None:
    with pytest.raises(TakesOverError):
        wiring.serve(Settings(home=tmp_path, db=""), is_standby=True)

    (app,) = apps
    assert app._warnings() == {}

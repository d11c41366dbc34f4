"""``tuner watch`` and ``tuner run``: a service that is started again, at another address perhaps, is waited for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tuner_service.cli import lasting
from tuner_service.cli.lasting import ABSENCE_S
from tuner_service.cli.output import progress
from tuner_service.cli.output.exit_codes import ExitCode
from tuner_service.client import ProblemError, UnreachableError

GONE, STARTING = UnreachableError("no service answers at http://there"), ProblemError(status=503)


def a_view(status: str) -> dict[str, Any]:
    budget = {"trials": 1, "parallel": 1, "duration": None}
    empty: dict[str, Any] = {"counts": {}, "best": None, "running_s": 1.0, "message": "", "reason": "budget_reached"}
    return {"id": "8f3k2", "name": "n", "status": status, "budget": budget, **empty}


class Service:
    """Answers as it is told to; time passes only where somebody waits."""

    def __init__(self, *answers: str | Exception) -> None:
        self._answers: Iterator[str | Exception] = iter(answers)
        self._last = answers[-1]
        self.found: list[float] = []
        self.pauses: list[float] = []
        self.now = 0.0

    def experiment(self, _: str, *, wait_s: float | None = None) -> dict[str, Any]:
        answer = next(self._answers, self._last)
        if isinstance(answer, Exception):
            raise answer
        return a_view(answer)

    def readiness(self) -> dict[str, Any]:
        return {"parts": {}}

    def another(self) -> Service:
        raise UnreachableError("no events here")

    def find(self) -> Service:
        self.found.append(self.now)
        return self

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def close(self) -> None: ...


def followed(service: Service, monkeypatch: pytest.MonkeyPatch, *, timeout_s: float | None = None) -> ExitCode:
    monkeypatch.setattr(lasting, "sleep", service.sleep)
    monkeypatch.setattr(lasting, "monotonic", lambda: service.now)
    monkeypatch.setattr(progress.time, "monotonic", lambda: service.now)
    return progress.follow(service, "8f3k2", find=service.find, timeout_s=timeout_s)  # type: ignore[arg-type,return-value]


def test_a_service_that_comes_back_is_found_and_watched_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    service = Service("running", GONE, GONE, STARTING, "running", "completed")
    assert followed(service, monkeypatch) == ExitCode.OK

    err = capsys.readouterr().err
    assert err.count("waiting for the service, 60 s at most") == 1
    assert err.count("answers again") == 1
    assert len(service.found) == 3
    assert sorted(service.pauses) == service.pauses


def test_one_that_does_not_is_given_up_after_a_while_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    service = Service("running", GONE)
    with pytest.raises(UnreachableError):
        followed(service, monkeypatch)

    assert ABSENCE_S < service.now < ABSENCE_S + 5
    assert "`tuner resume 8f3k2 --wait` starts it and goes on" in capsys.readouterr().err


def test_whoever_waits_for_a_time_waits_no_longer_while_it_is_away(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    service = Service("running", GONE)
    assert followed(service, monkeypatch, timeout_s=10) == ExitCode.TIMEOUT

    assert service.now == 10
    assert "gave up waiting after 10 s" in capsys.readouterr().err


def test_what_the_service_refuses_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service("running", ProblemError(status=404))
    with pytest.raises(ProblemError):
        followed(service, monkeypatch)
    assert service.pauses == []

"""`tuner logs -f` while the service, or the agent that has the log, is away."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tuner_service.cli.main import _parse
from tuner_service.cli.output.exit_codes import ExitCode
from tuner_service.cli.verbs import logs
from tuner_service.client import Answer, ProblemError, UnreachableError
from tuner_service.program.following_logs import LogFollowing
from tuner_service.program.reading import LogQuery

GONE, AWAY = UnreachableError("no service answers"), ProblemError(503, {"detail": "its agent is away"})


def piece(data: bytes, end: int, *, ended: bool = False) -> Answer:
    headers = {"log-attempt": "1", "log-end": str(end), "log-size": str(end), "log-ended": "true" if ended else "false"}
    headers["log-offset"] = str(end - len(data))
    return Answer(status=200, headers=headers, data=data)


class Service:
    """Answers as it is told to, and notes where it was asked to begin; time passes only where somebody waits."""

    def __init__(self, *answers: Answer | Exception) -> None:
        self._answers: Iterator[Answer | Exception] = iter(answers)
        self._last = answers[-1]
        self.offsets: list[int] = []
        self.connections = 0
        self.now = 0.0

    def connect(self, _: object) -> Service:
        self.connections += 1
        return self

    def experiment(self, reference: str) -> dict[str, Any]:
        return {"id": reference}

    def log(self, _experiment: str, _number: int, query: dict[str, Any]) -> Answer:
        self.offsets.append(query["offset"])
        answer = next(self._answers, self._last)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def close(self) -> None:
        pass


def followed(monkeypatch: pytest.MonkeyPatch, service: Service, *options: str) -> int:
    monkeypatch.setattr(logs, "settings_of", lambda _: SimpleNamespace())
    monkeypatch.setattr(logs, "require_service", service.connect)
    monkeypatch.setattr("tuner_service.cli.context.require_service", service.connect)
    monkeypatch.setattr(logs, "sleep", service.sleep)
    monkeypatch.setattr(logs, "monotonic", lambda: service.now)
    return logs.run(_parse(["logs", "8f3k2/1", *options]))


@pytest.mark.parametrize("trouble", [GONE, AWAY])
def test_it_goes_on_where_it_was_once_there_is_an_answer(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes], trouble: Exception
) -> None:
    service = Service(piece(b"one\n", 4), trouble, trouble, piece(b"two\n", 8, ended=True))

    assert followed(monkeypatch, service, "-f") == ExitCode.OK

    said = capfdbinary.readouterr()
    assert said.out == b"one\ntwo\n"
    assert said.err.count(b"waiting") == 1
    assert service.offsets == [0, 4, 4, 4]
    assert service.connections == 4  # to find the trial, to begin, and after each trouble


def test_it_ends_where_that_lasts_too_long_and_asks_less_and_less_often(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    service = Service(piece(b"", 0), GONE)

    with pytest.raises(UnreachableError):
        followed(monkeypatch, service, "-f")

    assert "tuner logs -f 8f3k2/1" in capsys.readouterr().err
    assert logs.ABSENCE_S < service.now < logs.ABSENCE_S + 2 * logs.LONGEST_POLL_S
    assert len(service.offsets) < 25


def test_what_the_node_keeps_no_more_is_said_beside_the_log(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    service = Service(piece(b"one\n", 4), piece(b"three\n", 20, ended=True))

    assert followed(monkeypatch, service, "-f") == ExitCode.OK

    said = capfdbinary.readouterr()
    assert said.out == b"one\nthree\n"
    assert b"10 bytes of the log before this are not kept any more" in said.err


def test_a_program_that_follows_a_log_is_told_in_it() -> None:
    following = LogFollowing(("8f3k2", 1), LogQuery(stderr=False, attempt=None, node=None, rank=None))
    service = Service(piece(b"one\n", 4), piece(b"three\n", 20, ended=True))
    line = SimpleNamespace(call=lambda ask: ask(service))

    found = [following.look(line) for _ in range(2)]  # type: ignore[arg-type]

    assert found == ["one\n", "\n[10 bytes of the log before this are not kept any more]\nthree\n"]


@pytest.mark.parametrize(("trouble", "options"), [(GONE, ()), (AWAY, ()), (ProblemError(404, {}), ("-f",))])
def test_what_is_not_followed_or_not_there_ends_at_once(
    monkeypatch: pytest.MonkeyPatch, trouble: Exception, options: tuple[str, ...]
) -> None:
    service = Service(trouble)

    with pytest.raises(type(trouble)):
        followed(monkeypatch, service, *options)

    assert service.now == 0

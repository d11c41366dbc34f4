"""Logs that are followed, downloads and quota groups of a program, over kills of the service and of the program."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import CommandLine, command_line
from tests.forked import Child
from tests.waiting import wait_until
from tuner_service import (
    ConflictError,
    Experiment,
    NotFoundError,
    Service,
    TunerError,
    aio,
    connect,
    quick_start,
)
from tuner_service.program import downloads, waiting
from tuner_service.program.downloads import Download

FILES = 20


def train(x: float) -> float:
    gate = Path(os.environ["GATE"])
    print("één", flush=True)
    while not gate.exists():
        time.sleep(0.01)
    print("zwei", flush=True)
    folder = Path("outputs/deep")
    folder.mkdir(parents=True)
    for number in range(FILES):
        (folder / f"{number}.txt").write_text(str(number) * 1000)
    return x


@pytest.fixture(scope="module")
def tuner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    with command_line(tmp_path_factory.mktemp("left")) as line:
        line.begin_service()
        yield line


@pytest.fixture
def service(tuner: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """In a folder of its own, whose gate is closed; one that an earlier test has killed is started."""
    for name, value in (tuner.environment() | {"GATE": str(tmp_path / "gate")}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    with connect() as found:
        yield found


def begun(service: Service, **options: Any) -> Experiment:
    space = {"x": {"type": "float", "low": 0, "high": 1}}
    gate = {"GATE": os.environ["GATE"]}
    return quick_start(
        function=train, objective="loss", search_space=space, trials=1, output="outputs", environment=gate,
        service=service, **options,
    )  # fmt: skip


def left(service: Service) -> Experiment:
    Path(os.environ["GATE"]).touch()
    return begun(service).wait(progress=False)


def content(folder: Path) -> dict[str, str]:
    return {p.relative_to(folder).as_posix(): p.read_text() for p in folder.rglob("*") if p.is_file()}


WHOLE = {f"deep/{number}.txt": str(number) * 1000 for number in range(FILES)}


def test_logs_are_followed_over_the_end_of_the_service(
    tuner: CommandLine, service: Service, capfd: pytest.CaptureFixture[str]
) -> None:
    experiment = begun(service)
    wait_until(lambda: experiment.show()["running"] and experiment.show()["running"][0]["pid"])
    followed = experiment.trial(1).follow_logs()
    text = next(followed)

    async def awaited() -> str:
        trial = await (await (await aio.connect()).experiment(experiment.id)).trial(1)
        return "".join([piece async for piece in trial.follow_logs()])

    os.kill(tuner.service_pid(), signal.SIGKILL)
    Path(os.environ["GATE"]).touch()
    for piece in followed:
        text += piece
    assert text == "één\nzwei\n"
    assert asyncio.run(awaited()) == text == experiment.trial(1).logs()
    assert list(experiment.trial(1).follow_logs(stderr=True)) == []
    assert "was killed; it is started again" in capfd.readouterr().err


def test_what_a_trial_left_is_downloaded_whole_or_not_at_all(service: Service, tmp_path: Path) -> None:
    experiment = left(service)
    best = experiment.best

    assert content(best.download("best")) == WHOLE
    with pytest.raises(TunerError, match="is there already; name a folder that is new or empty"):
        best.download("best")
    with pytest.raises(NotFoundError, match="it keeps none"):
        best.download("other", checkpoint="best")
    assert not (tmp_path / "other").exists()

    async def awaited() -> Path:
        trial = await (await (await aio.connect()).experiment(experiment.id)).best
        return await trial.download(tmp_path / "awaited", progress=False)

    assert content(asyncio.run(awaited())) == WHOLE


def test_a_program_that_is_killed_while_it_downloads_goes_on_with_what_came(service: Service, tmp_path: Path) -> None:
    trial = left(service).best

    def killed() -> None:
        def told(self: Download, what: str, done: int, total: int) -> None:
            if done > total / 2:
                os.kill(os.getpid(), signal.SIGKILL)

        downloads.Download._told = told  # type: ignore[method-assign]  # in this child alone
        trial.download("best")

    child = Child(killed, tmp_path / "output")
    assert child.wait(60)
    assert child.code == -signal.SIGKILL, (tmp_path / "output").read_text()
    assert not (tmp_path / "best").exists()
    (partial,) = tmp_path.glob("best.*.part")
    came = {p.name: p.stat().st_ino for p in partial.rglob("*.txt") if not p.name.startswith(".")}
    assert came

    assert content(trial.download("best")) == WHOLE
    now = {p.name: p.stat().st_ino for p in (tmp_path / "best").rglob("*.txt")}
    assert {name: now[name] for name in came} == came  # not fetched again


def test_a_download_goes_on_when_a_service_elsewhere_was_killed_and_is_back(
    tuner: CommandLine, service: Service, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    experiment = left(service)
    elsewhere = connect(url=service.url, token=(tuner.home / "token").read_text().strip())
    told, kills = Download._told, [tuner.service_pid()]

    def kill_once(self: Download, what: str, done: int, total: int) -> None:
        told(self, what, done, total)
        if kills:
            os.kill(kills.pop(), signal.SIGKILL)

    mind = waiting.Absence.mind

    def minded(self: Any, line: Any) -> None:
        mind(self, line)
        connect()  # the one of the home comes back, under its address of the last time

    monkeypatch.setattr(Download, "_told", kill_once)
    monkeypatch.setattr(waiting.Absence, "mind", minded)
    with closing(elsewhere):
        assert content(elsewhere.experiment(experiment.id).best.download("best")) == WHOLE
    assert "no service answers at" in capfd.readouterr().err


def test_quota_groups_are_made_changed_and_deleted(tuner: CommandLine, service: Service) -> None:
    made = service.set_quota_group("research", gpus=0.5, borrow=False)
    assert (made["gpus"], made["borrows"]) == (0.5, False)
    changed = service.set_quota_group("research", gpus="all")
    assert (changed["gpus"], changed["borrows"]) == (None, False)
    assert tuner.read("quota") == service.quota_groups()

    experiment = begun(service, quota_group="research")
    with pytest.raises(ConflictError, match=experiment.id):
        service.rm_quota_group("research")
    experiment.stop(wait=True)
    experiment.rm()
    service.rm_quota_group("research")
    assert [group["name"] for group in service.quota_groups()] == ["default"]

"""Those who wait are woken by the service: with looks an hour apart they see everything at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.command_line import CommandLine, command_line
from tests.waiting import wait_until
from tuner_service import Experiment, Service, WaitTimeoutError, aio, connect, quick_start
from tuner_service.cli import listening
from tuner_service.cli.output import progress
from tuner_service.cli.output.progress import follow
from tuner_service.program import waiting

AN_HOUR = 3_600.0
SOON_S = 20.0  # on a machine that others share; by looking alone it would be an hour


@pytest.fixture(scope="module")
def tuner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    with command_line(tmp_path_factory.mktemp("waiting")) as line:
        line.begin_service()
        yield line


@pytest.fixture
def service(tuner: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    for name, value in tuner.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    for module in (listening, waiting, progress):
        monkeypatch.setattr(module, "QUIET_S", AN_HOUR)
    with connect() as found:
        yield found


def begun(service: Service, *, parallel: int = 1) -> Experiment:
    space = {"x": {"type": "float", "low": 0, "high": 1}}
    return quick_start(
        lease="1h", objective="loss", search_space=space, trials=2, parallel=parallel, tuner="random", service=service
    )


def listeners() -> int:
    return sum(thread.name == "events" for thread in threading.enumerate())


@pytest.fixture(autouse=True)
def _no_listener_is_left() -> Iterator[None]:
    before = listeners()
    yield
    wait_until(lambda: listeners() == before)


def finish(experiment: Experiment) -> None:
    """Once somebody listens."""
    wait_until(listeners)
    while (asked := experiment.ask(timeout=SOON_S)) is not None:
        asked.tell(1.0)


def test_wait_returns_when_it_has_ended(service: Service) -> None:
    experiment = begun(service)
    with ThreadPoolExecutor(1) as threads:
        told = threads.submit(finish, service.experiment(experiment.id))
        assert experiment.wait(timeout=SOON_S, progress=False).status == "completed"
        told.result()


def test_an_awaited_wait_does_so_too_and_can_be_given_up(service: Service) -> None:
    experiment = begun(service)

    async def waited() -> str:
        awaited = await (await aio.connect()).experiment(experiment.id)
        given_up = asyncio.create_task(awaited.wait())
        await asyncio.to_thread(wait_until, listeners)
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        told = asyncio.create_task(asyncio.to_thread(finish, experiment))
        await awaited.wait(timeout=SOON_S)
        await told
        return await awaited.status

    assert asyncio.run(waited()) == "completed"


def test_who_asks_is_woken_when_a_trial_is_to_be_had(service: Service) -> None:
    experiment = begun(service)
    held = experiment.ask()
    assert held is not None
    with pytest.raises(WaitTimeoutError):
        experiment.ask(timeout=0)
    with ThreadPoolExecutor(1) as threads:
        second = threads.submit(lambda: service.experiment(experiment.id).ask(timeout=SOON_S))
        wait_until(listeners)
        held.tell(1.0)
        found = second.result()
    assert found is not None
    assert found.number == 2


def test_stopping_returns_when_it_has_stopped(service: Service) -> None:
    experiment = begun(service)
    experiment.ask()
    experiment.stop(wait=True, timeout=SOON_S)

    assert experiment.view["status"] == "stopped"


def test_the_command_that_watches_is_woken_too(service: Service, capsys: pytest.CaptureFixture[str]) -> None:
    experiment = begun(service)
    client = service.line.line.another()
    with ThreadPoolExecutor(1) as threads:
        told = threads.submit(finish, experiment)
        assert follow(client, experiment.id, timeout_s=SOON_S) == 0
        told.result()
    client.close()
    assert "is completed" in capsys.readouterr().err

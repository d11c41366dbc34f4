"""The node's producer as trials of an agent meet it: started by the first that asks, gone after the last."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.trials.fake_service import AgentProcess, FakeService, is_running
from tests.waiting import wait_until
from trials.files import read_json
from trials.wire.sockets import data_socket_path

SETS = """
import pathlib

class Numbers:
    def __init__(self, length):
        self.length = length
        self.text = pathlib.Path("sets.py").read_text()
        # Every making of the dataset is written down.
        with open(pathlib.Path(__file__).resolve().parent / "made", "a") as file:
            file.write("x")
    def __len__(self):
        return self.length
    def __getitem__(self, index):
        return index

def broken():
    raise ValueError("no such files")
"""
SHARING = """
import os, sys, time, trials, pathlib
with trials.init() as trial:
    options = {"arguments": {"length": 90}, "sharing": {"block_size": 16, "memory_bytes": 16 << 20, "workers": 1}}
    with trials.data.shared("sets:Numbers", 7, collate_fn=list, **options) as loader:
        seen = []
        for number, batch in enumerate(loader):
            seen += batch
            trial.report(step=number, first=batch[0])
            while number == 3 and not pathlib.Path(trial.parameters["go"]).exists():
                time.sleep(0.01)
        assert sorted(seen) == list(range(90)), seen
        trial.report_final(accuracy=loader.stats()["hits"], seed=trial.seed)
"""


@pytest.fixture
def sharing_agent(start_agent: Callable[..., AgentProcess]) -> AgentProcess:
    return start_agent(TUNER_DATA_IDLE_EXIT_S="0.3")


@pytest.fixture
def launch_sharing(service: FakeService, tmp_path: Path) -> Callable[..., None]:
    """The archive of the code is made once: made again a second later, it would have another digest."""
    digests: dict[str, str] = {}

    def launch(*, number: int, script: str = SHARING, **spec: Any) -> None:
        if script not in digests:
            digests[script] = service.code(train=script, sets=SETS)
        parameters = {"go": str(tmp_path / "go")}
        service.launch(
            script,
            nonce=f"n{number}",
            number=number,
            seed=number,
            code_digest=digests[script],
            parameters=parameters,
            **spec,
        )

    return launch


def servers_of(home: Path) -> list[dict[str, Any]]:
    found = [read_json(str(path)) for path in home.glob("agent/data/*/server.json")]
    return [server for server in found if server is not None]


@pytest.mark.usefixtures("sharing_agent")
def test_two_trials_share_one_server_that_is_gone_after_them(
    service: FakeService, launch_sharing: Callable[..., None], home: Path, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    for number in (1, 2):
        launch_sharing(number=number)
    for number in (1, 2):
        wait_until(lambda number=number: len(service.values("first", f"n{number}")) >= 4)
    (server,) = servers_of(home)
    worker = int(Path(f"/proc/{server['pid']}/task/{server['pid']}/children").read_text().split()[0])
    go.touch()

    for number in (1, 2):
        assert service.wait_for_exit(f"n{number}", 60).exit.code == 0
        assert service.values("accuracy", f"n{number}") == [90]
        assert service.values("data/hit_rate", f"n{number}")
    wait_until(lambda: not is_running(server["pid"]) and not is_running(worker))
    wait_until(lambda: not servers_of(home))
    assert not list(home.glob("agent/data/*/work"))
    own = data_socket_path(home)
    assert not {path.suffix for path in own.parent.glob(f"{own.stem[:8]}*")} & {".d", ".lock"}


@pytest.mark.usefixtures("sharing_agent")
def test_a_trial_whose_server_is_killed_goes_on_and_asks_for_another(
    service: FakeService, launch_sharing: Callable[..., None], home: Path, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    launch_sharing(number=1)
    wait_until(lambda: len(service.values("first")) >= 4)
    os.kill(servers_of(home)[0]["pid"], signal.SIGKILL)
    wait_until(lambda: not servers_of(home))
    go.touch()

    assert service.wait_for_exit("n1", 60).exit.code == 0
    launch_sharing(number=2)
    assert service.wait_for_exit("n2", 60).exit.code == 0
    assert service.values("accuracy", "n2") == [90]


def test_a_server_outlives_its_agent_and_is_adopted_by_the_next(
    service: FakeService,
    launch_sharing: Callable[..., None],
    start_agent: Callable[..., AgentProcess],
    home: Path,
    tmp_path: Path,
) -> None:
    go = tmp_path / "go"
    agent = start_agent(TUNER_DATA_IDLE_EXIT_S="0.3")
    launch_sharing(number=1)
    wait_until(lambda: len(service.values("first")) >= 4)
    (server,) = servers_of(home)
    agent.kill()
    start_agent(TUNER_DATA_IDLE_EXIT_S="0.3")
    launch_sharing(number=2)
    wait_until(lambda: len(service.values("first", "n2")) >= 4)
    assert [found["pid"] for found in servers_of(home)] == [server["pid"]]
    go.touch()

    assert service.wait_for_exit("n1", 60).exit.code == 0
    assert service.wait_for_exit("n2", 60).exit.code == 0
    wait_until(lambda: not is_running(server["pid"]))
    wait_until(lambda: not servers_of(home))


@pytest.mark.usefixtures("sharing_agent")
@pytest.mark.parametrize("shared", [True, False])
def test_the_experiment_file_names_the_dataset_and_says_whether_it_is_shared(
    service: FakeService, launch_sharing: Callable[..., None], home: Path, shared: bool
) -> None:
    script = """
import trials
with trials.init() as trial:
    with trials.data.shared(batch_size=7, collate_fn=list) as loader:
        assert sorted(sample for batch in loader for sample in batch) == list(range(60))
        trial.report_final(accuracy=loader.stats()["hit_rate"])
"""
    data = {"shared": shared, "dataset": "sets:Numbers", "arguments": {"length": 60}, "memory": 16 << 20, "workers": 1}
    launch_sharing(number=1, script=script, data=data)

    assert service.wait_for_exit("n1", 60).exit.code == 0
    (hit_rate,) = service.values("accuracy", "n1")
    assert (hit_rate > 0.9) is shared
    assert bool(list(home.glob("agent/data/*/server.log"))) is shared


@pytest.mark.usefixtures("sharing_agent")
def test_garbage_sent_to_the_agent_is_answered_and_ends_nothing(
    service: FakeService, launch_sharing: Callable[..., None], home: Path, tmp_path: Path
) -> None:
    path = data_socket_path(home)
    for garbage in (b"\n", b"[]\n", b'{"nonce": 5}\n', b"x" * (70 << 10), b'{"nonce": "n1"}\n'):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stranger:
            stranger.settimeout(20)
            stranger.connect(str(path))
            stranger.sendall(garbage)
            assert b'"error"' in stranger.recv(1 << 16)
    (tmp_path / "go").touch()
    launch_sharing(number=1)

    assert service.wait_for_exit("n1", 60).exit.code == 0


@pytest.mark.usefixtures("sharing_agent")
def test_a_dataset_that_cannot_be_made_is_told_to_the_trial(
    service: FakeService, launch_sharing: Callable[..., None], home: Path, tmp_path: Path
) -> None:
    script = """
import trials, trials.data
from trials.data.sharing.producer_lookup import _Asker
from trials.data.sharing.producer_main import DatasetName, SharedOrder
with trials.init() as trial:
    for factory in ("sets:broken", "sets:nothing", "no_such_module:x"):
        asker = _Asker(DatasetName(factory=factory), SharedOrder(), memory_bytes=1 << 24, workers=1)
        assert asker.locate() is None
    trial.report_final(accuracy=1)
"""
    launch_sharing(number=1, script=script)

    assert service.wait_for_exit("n1", 60).exit.code == 0
    told = (service.folder("n1") / "stderr.log").read_text()
    assert "ValueError('no such files')" in told
    assert "sets has no function or class nothing" in told
    assert "No module named 'no_such_module'" in told
    assert servers_of(home) == []

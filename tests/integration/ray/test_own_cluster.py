"""The cluster that a service starts for itself: whatever of it is killed, it comes back, and goes with its service."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.harness import Home
from tests.disturbed_ray import COMES_S, provided, ready
from tests.integration.ray.test_nodes_of_ray import begin, completed, is_told_once
from tests.process_table import processes
from tests.ray_cluster import needs_ray
from tests.waiting import wait_until
from tuner_service.executors.ray.local_cluster import remove_left

pytestmark = [needs_ray, pytest.mark.slow]
GONE_S = 90.0
SHARED_MEMORY = Path("/dev/shm")  # where Ray's object store is


@pytest.fixture
def search(tmp_path: Path) -> Iterator[Home]:
    agents = {"cpus": 1, "max": 2, "idle": "1h"}
    table = {"name": "ray", "address": "local", "agents": agents, "service_lost": "10s"}
    home = Home(folder=tmp_path, environment={"TUNER_EXECUTOR": json.dumps(table)})
    try:
        yield home
    finally:
        home.end()
        wait_until(lambda: not of_cluster(home, place_of(home)), timeout_s=GONE_S)


def place_of(search: Home) -> str:
    """Where the files of Ray are."""
    return (search.home / "ray" / "place").read_text()


def of_cluster(search: Home, place: str) -> dict[int, str]:
    """What belongs to the cluster and the nodes on it: command lines by process."""
    names = (place, str(search.home / "ray"))
    nodes = {node["agent"] for node in _nodes_of(search)}
    words = {pid: " ".join(found) for pid, found in processes() if pid != os.getpid()}
    return {pid: line for pid, line in words.items() if any(name in line for name in (*names, *nodes))}


def _nodes_of(search: Home) -> list[dict[str, Any]]:
    file = search.folder / "nodes.json"  # kept: there is nobody to ask once the service is gone
    return list(json.loads(file.read_text())) if file.exists() else []


def ports_of(pids: set[int]) -> set[int]:
    """On which these processes listen."""
    sockets = set()
    for pid in pids:
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                if found := re.fullmatch(r"socket:\[(\d+)]", str(link.readlink())):
                    sockets.add(found[1])
            except OSError:
                continue
    return {port for port, inode in _listening() if inode in sockets}


def _listening() -> list[tuple[int, str]]:
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A":
                found.append((int(words[1].rpartition(":")[2], 16), words[9]))
    return found


def shared_memory_of(pids: set[int]) -> set[str]:
    """Files of shared memory that these processes have mapped."""
    found: set[str] = set()
    for pid in pids:
        try:
            text = Path(f"/proc/{pid}/maps").read_text()
        except OSError:
            continue
        found |= set(re.findall(rf"{SHARED_MEMORY}/\S+", text))
    return found


def one_of(search: Home, place: str, word: str) -> int:
    return wait_until(lambda: next((pid for pid, line in of_cluster(search, place).items() if word in line), 0))


def lets_nobody_else_in(address: str) -> None:
    """Who has no token is told nothing, let alone given a process."""
    from ray._raylet import GcsClient
    from ray.exceptions import AuthenticationError

    with pytest.raises(AuthenticationError):
        GcsClient(address=address)


def test_a_cluster_of_which_a_part_was_killed_comes_back_and_nothing_is_left_of_it_after_its_service(
    search: Home,
) -> None:
    begin(search, steps=10, held_step=2)
    before = {node["agent"] for node in ready(search, 2)}
    search.running(2, step=2)
    first = place_of(search)
    lets_nobody_else_in((search.home / "ray" / "address").read_text())
    os.kill(one_of(search, first, "gcs_server"), signal.SIGKILL)
    wait_until(lambda: place_of(search) != first, timeout_s=COMES_S)
    ready(search, 2)
    search.open_gate()
    assert completed(search)["counts"] == {"succeeded": 4}
    is_told_once(search, steps=10)
    after = provided(search)["nodes"]
    assert not before & {node["agent"] for node in after}

    (search.folder / "nodes.json").write_text(json.dumps(after))
    place = place_of(search)
    had = of_cluster(search, place)
    ports, memory = ports_of(set(had)), shared_memory_of(set(had))
    assert ports
    os.kill(one_of(search, place, "local_cluster"), signal.SIGKILL)
    search.kill_all("service")
    wait_until(lambda: not of_cluster(search, place), timeout_s=GONE_S)
    assert not of_cluster(search, first)
    assert not Path(first).exists()
    assert not ports & {port for port, _ in _listening()}
    assert not [path for path in memory if Path(path).exists()]
    assert Path(place).exists()
    remove_left()  # as the next cluster of any service does
    assert not Path(place).exists()

"""Several processes save one checkpoint together; any number of them goes on from it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trials.checkpoint_files import problem_of

# Rank r of n: loads or makes the state, whose weights are split over the ranks, and says what it has.
SCRIPT = """
import datetime, json, os, random, sys
import torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
import trials

rank, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=120))
mesh = init_device_mesh("cpu", (count,))

def state_of(fill):
    weights = torch.arange(24.0).reshape(6, 4) + fill
    return {"step": int(fill), "model": {"w": distribute_tensor(weights, mesh, [Shard(0)]), "b": torch.ones(3) * fill},
            "names": ["a", ("b", fill)]}

with trials.init() as trial:
    said = {}
    if sys.argv[1] == "save":
        for step in (1, 2):
            if rank == 0:
                trial.report(step=step, default=0.5)
            random.seed(100 * rank + step)
            trial.save_checkpoint(state_of(float(step)), step=step, sharded=True)
        said["drawn"] = random.random()
    elif sys.argv[1] == "refuse":
        try:
            trial.save_checkpoint({"w": torch.ones(1), "g": random.Random()}, step=1, sharded=True)
        except TypeError as error:
            said["error"] = str(error)
    elif sys.argv[1] == "fail":
        try:
            trial.save_checkpoint({"w": torch.ones(1)}, step=1, sharded=True)
        except trials.ShardedCheckpointError as error:
            said["error"] = str(error)
    elif sys.argv[1] == "plain":
        try:
            trial.restore()
        except ValueError as error:
            said["error"] = str(error)
    else:
        state = state_of(0.0)
        found = trial.restore(into=state)
        said["same"] = found is state
        said["step"] = None if found is None else state["step"]
        said["w"] = state["model"]["w"].full_tensor().tolist()
        said["b"] = state["model"]["b"].tolist()
        said["names"] = state["names"]
        said["drawn"] = random.random()
    print(json.dumps(said))
dist.destroy_process_group()
"""


def run(folder: Path, order: str, *, count: int = 2) -> list[dict[str, Any]]:
    """What each rank says."""
    (folder / "train.py").write_text(SCRIPT)
    (folder / "parameters.json").write_text("{}")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environ = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count)}
    environ |= {"TUNER_ATTEMPT_DIR": str(folder), "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", str(folder / "train.py"), order],
            env=environ | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]
    try:
        return [json.loads(rank.communicate(timeout=170)[0].splitlines()[-1]) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


def records(folder: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "reports.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == "checkpoint"]


def lay_out(saved: Path, attempt: Path) -> list[Path]:
    """As the agent does, newest first."""
    found = records(saved)[::-1]
    entries = [
        {"file": str(saved / "checkpoints" / r["name"]), "digest": r["digest"], "step": r["step"]} for r in found
    ]
    (attempt / "restore").mkdir(parents=True)
    (attempt / "restore" / "restore.json").write_text(json.dumps({"checkpoints": entries}))
    return [Path(entry["file"]) for entry in entries]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("saved")
    return folder, run(folder, "save")


def weights(fill: float) -> list[list[float]]:
    return [[4.0 * row + column + fill for column in range(4)] for row in range(6)]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_any_number_of_processes_goes_on_from_it(saved: Any, tmp_path: Path, count: int) -> None:
    folder, told = saved
    lay_out(folder, tmp_path)

    ranks = run(tmp_path, "load", count=count)

    for said in ranks:
        assert (said["same"], said["step"]) == (True, 2)
        assert (said["w"], said["b"], said["names"]) == (weights(2.0), [2.0] * 3, ["a", ["b", 2.0]])
    assert [said["drawn"] for said in ranks][:2] == [said["drawn"] for said in told][:count]


def test_there_is_one_record_and_every_file_has_its_digest(saved: Any) -> None:
    folder, _ = saved
    found = records(folder)

    assert [record["step"] for record in found] == [1, 2]
    for record in found:
        path = folder / "checkpoints" / record["name"]
        assert problem_of(path, record["digest"]) is None
        assert sum(file.stat().st_size for file in path.iterdir()) == record["size"]
        assert record["value"] == 0.5
    assert len(list((folder / "checkpoints").iterdir())) == 2


@pytest.mark.parametrize("damage", ["manifest.json", ".metadata", "__1_0.distcp", "missing"])
def test_where_a_part_is_damaged_the_checkpoint_before_is_used(saved: Any, tmp_path: Path, damage: str) -> None:
    import shutil

    folder = tmp_path / "copy"
    shutil.copytree(saved[0], folder)
    newest, _ = lay_out(folder, tmp_path / "next")
    part = newest / ("__0_0.distcp" if damage == "missing" else damage)
    if damage == "missing":
        part.unlink()
    else:
        data = bytearray(part.read_bytes())
        data[len(data) // 2] ^= 1
        part.write_bytes(data)

    (said,) = run(tmp_path / "next", "load", count=1)

    assert (said["step"], said["w"]) == (1, weights(1.0))
    assert newest.with_name(f"{newest.name}.corrupt").exists()
    assert '"checkpoint_damaged"' in (tmp_path / "next" / "reports.jsonl").read_text()


def test_without_a_state_to_load_into_the_error_says_so(saved: Any, tmp_path: Path) -> None:
    lay_out(saved[0], tmp_path)

    (said,) = run(tmp_path, "plain", count=1)

    assert "trial.restore(into=state)" in said["error"]


def test_what_fails_on_one_rank_fails_on_all_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("in the way")
    first, second = run(tmp_path, "fail")
    assert first["error"] == second["error"]
    assert "rank 0" in first["error"]

    (tmp_path / "checkpoints").unlink()
    first, second = run(tmp_path, "refuse")
    assert "random.Random" in first["error"]
    assert first == second
    assert not (tmp_path / "checkpoints").exists()

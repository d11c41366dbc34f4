"""Several processes save one checkpoint together; any number of them goes on from it."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.api import CheckpointException

from tests.imported_once import ImportedOnce, Run, imported_once, of_a_world
from trials.checkpoints.restoring import restored
from trials.checkpoints.shards import FORMAT, load_sharded, save_sharded
from trials.checkpoints.stores import Entry, first_intact
from trials.checkpoints.verified_files import problem_of

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
        said["errors"] = []
        if rank == 0:  # the place of step 9 is taken
            open(os.environ["TUNER_ATTEMPT_DIR"] + "/checkpoints/.000000009.shards", "w").close()
        for extra in (random.Random() if rank else None, random.Random(), None):
            try:
                trial.save_checkpoint({"w": torch.ones(1), "extra": extra}, step=9, sharded=True)
            except (TypeError, trials.ShardedCheckpointError) as error:
                said["errors"].append(str(error))
    else:
        state = state_of(0.0)
        found = trial.restore(into=state)
        said["same"] = found is state
        said["step"] = None if found is None else state["step"]
        said["w"] = state["model"]["w"].full_tensor().tolist()
        said["b"] = state["model"]["b"].tolist()
        said["names"] = state["names"]
        said["drawn"] = random.random()
        if sys.argv[1] == "load and save":
            state["step"] = 3
            state["model"]["b"] += 1
            trial.save_checkpoint(state, step=3, sharded=True)
    print(json.dumps(said))
dist.destroy_process_group()
"""


IMPORTS = ("torch.distributed.tensor", "torch.distributed.checkpoint", "torch._dynamo", "trials.checkpoints.shards")


@pytest.fixture(scope="module")
def runner() -> Iterator[ImportedOnce]:
    with imported_once(*IMPORTS) as found:
        yield found


def run(runner: ImportedOnce, folder: Path, order: str, *, count: int, are_nodes: bool = False) -> list[dict[str, Any]]:
    """What each rank says. ``are_nodes``: each is on a node of its own, with a folder of its own in ``folder``."""
    ranks = []
    for rank, world in enumerate(of_a_world(count)):
        own = folder / f"node{rank}" if are_nodes else folder
        own.mkdir(exist_ok=True)
        (own / "train.py").write_text(SCRIPT)
        (own / "parameters.json").write_text("{}")
        (own / "attempt.json").write_text(json.dumps({"spec": {"nodes": count if are_nodes else 1}}))
        node = {"NODE_RANK": str(rank), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"} if are_nodes else {"NODE_RANK": "0"}
        variables = world | node | {"TUNER_ATTEMPT_DIR": str(own)}
        ranks.append(Run(script=own / "train.py", arguments=[order], variables=variables))
    return [json.loads(said.splitlines()[-1]) for said in runner.run(*ranks)]


def records(folder: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "reports.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == "checkpoint"]


def entries(saved: Path) -> list[Entry]:
    """As the agent lists them, newest first."""
    found = records(saved)[::-1]
    return [{"file": str(saved / "checkpoints" / r["name"]), "digest": r["digest"], "step": r["step"]} for r in found]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory, runner: ImportedOnce) -> tuple[Path, list[dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("saved")
    return folder, run(runner, folder, "save", count=2)


def weights(fill: float) -> list[list[float]]:
    return [[4.0 * row + column + fill for column in range(4)] for row in range(6)]


def load(folder: Path, told: list[Entry]) -> dict[str, Any]:
    """By a process alone, which this one is."""
    state = {"step": 0, "model": {"w": torch.zeros(6, 4), "b": torch.zeros(3)}, "names": None}
    found = restored(lambda: first_intact(entries(folder), on_damaged=told.append), into=state)
    assert found is not None
    assert found.state is state
    assert found.step == state["step"]
    return state


@pytest.mark.slow
def test_another_number_of_processes_goes_on_from_it(saved: Any, runner: ImportedOnce, tmp_path: Path) -> None:
    folder, told = saved
    (tmp_path / "restore").mkdir(parents=True)
    (tmp_path / "restore" / "restore.json").write_text(json.dumps({"checkpoints": entries(folder)}))

    ranks = run(runner, tmp_path, "load", count=3)

    for said in ranks:
        assert (said["same"], said["step"]) == (True, 2)
        assert (said["w"], said["b"], said["names"]) == (weights(2.0), [2.0] * 3, ["a", ["b", 2.0]])
    assert [said["drawn"] for said in ranks][:2] == [said["drawn"] for said in told]


def laid_out(folder: Path, checkpoint: Path, entry: Entry, *, nodes: int) -> None:
    """As the agent of each node lays it out: a copy of its own."""
    for node in range(nodes):
        target = folder / f"node{node}" / "restore"
        shutil.copytree(checkpoint, target / checkpoint.name)
        listed = {**entry, "file": str(target / checkpoint.name)}
        (target / "restore.json").write_text(json.dumps({"checkpoints": [listed]}))


@pytest.mark.slow
def test_another_number_of_nodes_goes_on_from_it_each_with_a_disk_of_its_own(
    runner: ImportedOnce, tmp_path: Path
) -> None:
    one, two, three = (tmp_path / name for name in ("one", "two", "three"))
    for folder in (one, two, three):
        folder.mkdir()
    state = {"step": 2, "model": {"w": torch.tensor(weights(0.0)), "b": torch.ones(3)}, "names": ["a", ("b", 0.0)]}
    record = save_sharded(one, state, step=2)
    assert record is not None

    laid_out(two, one / record.name, {"file": "", "digest": record.digest, "step": 2}, nodes=2)
    for said in run(runner, two, "load and save", count=2, are_nodes=True):
        assert (said["same"], said["step"], said["w"], said["b"]) == (True, 2, weights(0.0), [1.0] * 3)

    (saved,) = entries(two / "node0")
    assert [path.name for path in (two / "node1" / "checkpoints").glob("*")] == []  # it went to node 0
    laid_out(three, Path(saved["file"]), saved, nodes=3)
    for said in run(runner, three, "load", count=3, are_nodes=True):
        assert (said["same"], said["step"], said["w"], said["b"]) == (True, 3, weights(0.0), [2.0] * 3)

    alone = load(two / "node0", [])
    assert (alone["step"], alone["model"]["w"].tolist(), alone["model"]["b"].tolist()) == (3, weights(0.0), [2.0] * 3)


@pytest.mark.slow
def test_a_process_alone_goes_on_from_it(saved: Any) -> None:
    state = load(saved[0], [])

    assert (state["model"]["w"].tolist(), state["model"]["b"].tolist()) == (weights(2.0), [2.0] * 3)
    assert state["names"] == ["a", ("b", 2.0)]


@pytest.mark.slow
def test_there_is_one_record_and_every_file_has_its_digest(saved: Any) -> None:
    folder, _ = saved
    found = records(folder)

    assert [record["step"] for record in found] == [1, 2]
    for record in found:
        path = folder / "checkpoints" / record["name"]
        assert problem_of(path, record["digest"]) is None
        assert sum(file.stat().st_size for file in path.iterdir()) == record["size"]
        assert record["value"] == 0.5
    assert len(list((folder / "checkpoints").glob("[!.]*"))) == 2


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["manifest.json", ".metadata", "__1_0.distcp", "missing"])
def test_where_a_part_is_damaged_the_checkpoint_before_is_used(saved: Any, tmp_path: Path, damage: str) -> None:
    folder, told = tmp_path / "copy", list[Entry]()
    shutil.copytree(saved[0], folder)
    newest = Path(entries(folder)[0]["file"])
    part = newest / ("__0_0.distcp" if damage == "missing" else damage)
    if damage == "missing":
        part.unlink()
    else:
        data = bytearray(part.read_bytes())
        data[len(data) // 2] ^= 1
        part.write_bytes(data)

    state = load(folder, told)

    assert (state["step"], state["model"]["w"].tolist()) == (1, weights(1.0))
    assert newest.with_name(f"{newest.name}.corrupt").exists()
    assert [entry["step"] for entry in told] == [2]


@pytest.mark.slow
def test_without_a_state_to_load_into_the_error_says_so(saved: Any) -> None:
    with pytest.raises(ValueError, match=r"trial\.restore\(into=state\)"):
        restored(lambda: entries(saved[0])[0])


@pytest.mark.slow
def test_what_fails_on_one_rank_fails_on_all_and_makes_no_checkpoint(saved: Any) -> None:
    first, second = saved[1]

    assert first["errors"] == second["errors"]
    refused_by_one, refused, failed = first["errors"]
    assert refused_by_one.startswith("rank 1: the state holds random.Random")
    assert "random.Random" in refused
    assert "rank 0" in failed
    assert [record["step"] for record in records(saved[0])] == [1, 2]


def test_metadata_that_names_anything_but_values_is_refused(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({"format": FORMAT, "step": 1, "files": {}, "generators": []}))
    (tmp_path / ".metadata").write_bytes(pickle.dumps(os.system))

    with pytest.raises(CheckpointException, match=r"posix\.system, which is not loaded"):
        load_sharded(tmp_path, {"w": torch.zeros(1)})

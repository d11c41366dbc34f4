"""The benchmark of checkpoints in miniature, so that it goes on working."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

import trials
from benchmarks.checkpoints import training as program
from benchmarks.checkpoints.__main__ import TITLES, rows_of, train
from benchmarks.checkpoints.training import KINDS, Saver, Training
from tests.imported_once import ImportedOnce, Run, imported_once


@pytest.mark.slow
def test_the_checkpoints_benchmark_measures_every_kind() -> None:
    found = train(argparse.Namespace(rounds=1, steps=2, width=32, batch=4))

    alone = {kind: [{"first_s": 0.2, "next_s": 0.1}] for kind in TITLES}
    memory = {kind: 300.0 + place for place, kind in enumerate(["none", *TITLES])}
    rows = rows_of(found, alone, memory, 2)

    assert [one["kind"] for one in found["blocks"]] == list(TITLES) == list(KINDS)
    assert [row["what"] for row in rows] == ["no checkpoint", *TITLES.values()]
    assert [row.get("memory, MiB") for row in rows] == [None, 1, 2, 3, 4, 5, 6]
    assert found["bytes"] == 3 * 4 * 4 * (32 * 32 + 32) + 8 * 4


@pytest.fixture(scope="module")
def runner() -> Iterator[ImportedOnce]:
    with imported_once("torch._dynamo", "torch._inductor.config", "trials", program.__name__) as found:
        yield found


@pytest.mark.parametrize(("kind", "further"), [("ours", ()), ("staged_beside", ()), ("kept_stager", ("memory",))])
def test_a_way_to_save_of_the_checkpoints_benchmark_runs_alone(
    kind: str, further: tuple[str, ...], tmp_path: Path, runner: ImportedOnce
) -> None:
    (tmp_path / "parameters.json").write_text("{}")
    arguments = ["1", "1", "16", "4", kind, *further]

    (said,) = runner.run(
        Run(script=Path(program.__file__), arguments=arguments, variables={"TUNER_ATTEMPT_DIR": str(tmp_path)})
    )

    names = {"peak_mib"} if further else {"first_s", "next_s"}
    assert set(json.loads(said.splitlines()[-1])) == names


def test_the_cost_of_a_save_is_the_difference_of_two_blocks_of_one_round() -> None:
    blocks = [
        {"kind": kind, "with_s": without + cost, "without_s": without, "stall_s": 0.01}
        for without, cost in ((1.0, 0.1), (9.0, 0.2), (2.0, 0.3))
        for kind in TITLES
    ]
    alone = {kind: [{"first_s": 0.2, "next_s": 0.1}] for kind in TITLES}

    rows = rows_of({"blocks": blocks, "bytes": 1e6, "errors": {}}, alone, dict.fromkeys(("none", *TITLES), 1.0), 10)

    assert rows[0]["ms/step"] == 200
    assert {row["a save costs, ms"] for row in rows[1:]} == {"200 (100–300)"}
    assert {row["cost, %"] for row in rows[1:]} == {"10.0 (2.2–15.0)"}


def test_a_way_of_torchs_that_fails_is_left_out_with_its_error() -> None:
    blocks = [{"kind": kind, "with_s": 1.0, "without_s": 1.0, "stall_s": 0.0} for kind in ("ours", "torch")]
    errors = dict.fromkeys(set(TITLES) - {"ours", "torch"}, "KeyError()")

    rows = rows_of({"blocks": blocks, "bytes": 1e6, "errors": errors}, {}, {}, 10)

    assert [row.get("left out") for row in rows[1:]] == [errors.get(kind) for kind in TITLES]
    assert {"alone: first, ms", "memory, MiB"}.isdisjoint(rows[1])


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")  # torch's own of ``no_dist``
@pytest.mark.parametrize("kind", ["kept_stager", "staged_beside"])
def test_a_kept_stager_copies_into_the_same_memory_before_the_optimizer_changes_the_state(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNER_ATTEMPT_DIR", str(tmp_path))
    training, trial = Training(8, 2), Mock(spec=trials.Trial)
    staged: list[torch.Tensor] = []
    saver = Saver(trial)
    stager = saver._stagers[kind]._state_dict_stager
    keep = stager.stage
    monkeypatch.setattr(stager, "stage", lambda *given, **named: _kept(keep(*given, **named), staged))
    wanted = []
    for _ in range(2):
        wanted.append(training.model[0].weight.detach().clone())
        saver.save(kind, training.state())
        training.train(trial, 1, before_change=saver.wait_for_staging)
        saver.wait()
        assert torch.equal(staged[-1], wanted[-1])
    saver.close()

    assert staged[0].data_ptr() == staged[1].data_ptr()
    assert not torch.equal(*wanted)


def _kept(state: dict[str, dict[str, torch.Tensor]], staged: list[torch.Tensor]) -> object:
    staged.append(state["model"]["0.weight"])
    return state

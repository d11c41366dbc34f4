"""Asking for further parameters, from the script's side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trials.session import Trial, open_trial
from trials.wire.encoding import decode_record
from trials.wire.records import ParametersWantedRecord


@pytest.fixture
def trial(tmp_path: Path) -> Any:
    (tmp_path / "parameters.json").write_text('{"lr": 0.1}')
    with open_trial(environ={"TUNER_ATTEMPT_DIR": str(tmp_path)}, arguments=[], defaults={"batch": 8}) as opened:
        yield opened


def give(folder: Path, index: int, parameters: dict[str, Any] | None) -> None:
    draft = folder / "draft"
    draft.write_text(json.dumps({"parameters": parameters}))
    draft.rename(folder / f"parameters-{index}.json")


def wanted(folder: Path) -> list[int]:
    records = [decode_record(line) for line in (folder / "reports.jsonl").read_text().splitlines()]
    return [record.index for record in records if isinstance(record, ParametersWantedRecord)]


def test_what_is_given_is_what_the_trial_goes_on_with(trial: Trial, tmp_path: Path) -> None:
    give(tmp_path, 1, {"lr": 0.2})
    assert trial.next_parameters() == {"lr": 0.2, "batch": 8}
    assert trial.parameters == {"lr": 0.2, "batch": 8}


def test_an_answer_that_is_known_already_is_asked_for_all_the_same(trial: Trial, tmp_path: Path) -> None:
    give(tmp_path, 1, {"lr": 0.2})
    trial.next_parameters()
    assert wanted(tmp_path) == [1]


def test_when_there_are_none_the_parameters_stay(trial: Trial, tmp_path: Path) -> None:
    give(tmp_path, 1, None)
    assert trial.next_parameters() is None
    assert trial.next_parameters() is None
    assert trial.parameters["lr"] == 0.1
    assert wanted(tmp_path) == [1, 1]


def test_a_stop_ends_the_wait_without_a_promise_to_ask_again(trial: Trial, tmp_path: Path) -> None:
    (tmp_path / "stop.json").write_text("{}")
    assert trial.next_parameters() is None
    assert not (tmp_path / "cooperates").exists()
    assert '"stop_told"' in (tmp_path / "reports.jsonl").read_text(), "that it leaves now is no end"


def test_in_the_order_of_nni_the_first_call_gives_the_first_ones(trial: Trial, tmp_path: Path) -> None:
    give(tmp_path, 1, {"lr": 0.2})
    give(tmp_path, 2, None)
    given = [trial.first_or_next_parameters() for _ in range(3)]
    assert [None if g is None else g["lr"] for g in given] == [0.1, 0.2, None]


def test_a_checkpoint_brings_back_the_parameters_it_was_saved_under(trial: Trial, tmp_path: Path) -> None:
    give(tmp_path, 1, {"lr": 0.2})
    trial.next_parameters()
    trial.save_checkpoint({"epoch": 3}, step=3)
    trial.close()
    saved = tmp_path / "checkpoints"
    entry = next(saved.iterdir())
    records = [json.loads(line) for line in (tmp_path / "reports.jsonl").read_text().splitlines()]
    digest = next(record["digest"] for record in records if record["kind"] == "checkpoint")
    (tmp_path / "restore").mkdir()
    entry.rename(tmp_path / "restore" / entry.name)
    listed = {"checkpoints": [{"file": entry.name, "digest": digest, "step": 3}]}
    (tmp_path / "restore" / "restore.json").write_text(json.dumps(listed))

    with open_trial(environ={"TUNER_ATTEMPT_DIR": str(tmp_path)}, arguments=[]) as resumed:
        assert resumed.restore() == {"epoch": 3}
        assert resumed.parameters == {"lr": 0.2}
        give(tmp_path, 2, {"lr": 0.3})
        assert resumed.next_parameters() == {"lr": 0.3}


def test_alone_there_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with open_trial(environ={}, arguments=["--lr=0.5"]) as trial:
        assert trial.next_parameters() is None
        assert trial.parameters == {"lr": 0.5}

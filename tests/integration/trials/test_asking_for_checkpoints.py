"""Restoring from another trial, from the script's side."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import wait_until
from trials.checkpoints.file_format import Imaging
from trials.checkpoints.restoring import CheckpointMissingError
from trials.checkpoints.verified_files import write_image
from trials.session import Trial, open_trial


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    (tmp_path / "parameters.json").write_text("{}")
    environ = {"TUNER_ATTEMPT_DIR": str(tmp_path), "TUNER_EXPERIMENT_ID": "8f3k2"}
    with open_trial(environ=environ, arguments=[]) as opened:
        yield opened


@pytest.fixture
def answering(tmp_path: Path) -> Iterator[Callable[[dict[str, Any]], list[dict[str, Any]]]]:
    """Answer one request as the agent does, in a thread; the questions that came."""
    threads: list[threading.Thread] = []
    questions: list[dict[str, Any]] = []

    def work(listing: dict[str, Any]) -> None:
        wanted = tmp_path / "wanted.json"
        wait_until(wanted.exists)
        questions.append(json.loads(wanted.read_text()))
        folder = tmp_path / f"wanted-{questions[-1]['id']}"
        folder.mkdir()
        for entry in listing["checkpoints"]:
            (folder / entry["file"]).write_bytes((tmp_path / entry["file"]).read_bytes())
        (folder / "draft").write_text(json.dumps(listing))
        (folder / "draft").rename(folder / "restore.json")

    def answer(listing: dict[str, Any]) -> list[dict[str, Any]]:
        threads.append(threading.Thread(target=work, args=(listing,)))
        threads[-1].start()
        return questions

    yield answer
    for thread in threads:
        thread.join()


def an_entry(folder: Path, state: Any, step: int) -> dict[str, Any]:
    record = write_image(folder, Imaging().capture(state, step=step))
    return {"file": record.name, "digest": record.digest, "step": step}


def test_the_newest_of_another_trial_is_asked_for_and_restored(trial: Trial, tmp_path: Path, answering: Any) -> None:
    questions = answering({"checkpoints": [an_entry(tmp_path, {"n": 7}, 7)]})

    assert trial.restore(from_trial=4) == {"n": 7}
    assert [(q["number"], q["step"]) for q in questions] == [(4, None)]
    assert not (tmp_path / "wanted.json").exists()
    trial.report(loss=0.5)
    assert '"step":8' in (tmp_path / "reports.jsonl").read_text()


@pytest.mark.parametrize(("named", "number"), [("best", 0), ("8f3k2/3", 3), ("3", 3)])
def test_a_trial_is_named_as_the_command_line_prints_it_or_as_the_best(
    trial: Trial, tmp_path: Path, answering: Any, named: str, number: int
) -> None:
    questions = answering({"checkpoints": [an_entry(tmp_path, {"n": 7}, 7)]})

    assert trial.restore(from_trial=named) == {"n": 7}
    assert [(q["number"], q["step"]) for q in questions] == [(number, None)]


@pytest.mark.parametrize(
    ("named", "error"),
    [
        ("other/3", "'other/3' is not of this experiment, 8f3k2"),
        ("8f3k2/3/1", "'8f3k2/3/1' is not of this experiment"),
        ("worst", "by its number, as 8f3k2/NUMBER, or as 'best', not 'worst'"),
        ("", "not ''"),
        ("8f3k2/-1", "not '8f3k2/-1'"),
        ("\ud800", "not '.ud800'"),
        ("9" * 5000, "there is no trial 9999"),
        (0, "numbers begin at 1, so there is no trial 0"),
        (-1, "there is no trial -1"),
        (2**60, "there is no trial"),
        (1.0, "not float '1.0'"),
        (True, "not bool 'True'"),
        ([1], "not list"),
    ],
)
def test_what_names_no_trial_is_an_error_in_the_script(trial: Trial, tmp_path: Path, named: Any, error: str) -> None:
    with pytest.raises((TypeError, ValueError), match=error):
        trial.restore(from_trial=named)
    assert not (tmp_path / "wanted.json").exists()


def test_one_step_of_this_trial_may_be_asked_for(trial: Trial, tmp_path: Path, answering: Any) -> None:
    questions = answering({"checkpoints": [an_entry(tmp_path, [1], 3)]})

    assert trial.restore(step=3) == [1]
    assert [(q["number"], q["step"]) for q in questions] == [(1, 3)]


def test_without_one_the_error_says_what_the_service_says(trial: Trial, answering: Any) -> None:
    answering({"checkpoints": [], "error": "trial 4 of experiment e has saved no checkpoint so far"})

    with pytest.raises(CheckpointMissingError, match="trial 4 of experiment e has saved no checkpoint so far"):
        trial.restore(from_trial=4)


def test_where_none_is_intact_that_is_an_error_and_told(trial: Trial, tmp_path: Path, answering: Any) -> None:
    entry = an_entry(tmp_path, {}, 1)
    (tmp_path / entry["file"]).write_bytes(b"other")
    answering({"checkpoints": [entry]})

    with pytest.raises(CheckpointMissingError, match="no checkpoint of trial 4 could be had"):
        trial.restore(from_trial=4)
    assert '"checkpoint_damaged"' in (tmp_path / "reports.jsonl").read_text()


def test_a_stop_ends_the_wait(trial: Trial, tmp_path: Path) -> None:
    (tmp_path / "stop.json").write_text("{}")

    with pytest.raises(CheckpointMissingError, match="asked to stop"):
        trial.restore(from_trial=4)
    assert not (tmp_path / "wanted.json").exists()


def test_a_script_alone_has_no_other_trials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with (
        open_trial(environ={}, arguments=[]) as trial,
        pytest.raises(CheckpointMissingError, match="alone, so there is no trial 2"),
    ):
        trial.restore(from_trial=2)

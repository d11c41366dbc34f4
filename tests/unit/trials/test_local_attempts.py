"""What runs on this machine, and what waits to, as it is listed and stopped without service and agent."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from trials.agent import local
from trials.agent.attempts import load_attempt
from trials.agent.home import Home
from trials.agent.local import list_local, stop_local
from trials.files import create_once, to_json
from trials.processes.identity import identity
from trials.wire.attempt import AttemptKey
from trials.wire.attempt_file import AttemptFile
from trials.wire.files import FILE_ATTEMPT, FILE_CLAIM, FILE_STOP, FILES_FORMAT, FORMAT
from trials.wire.launch import LaunchSpec
from trials.wire.plain import to_plain
from trials.wire.records import ExitCause
from tuner_service.cli.local_trials import print_local_trials, stop_local_trials
from tuner_service.cli.output.exit_codes import CommandError, ExitCode
from tuner_service.config import Settings

KEY = AttemptKey(experiment_id="e1", number=3, attempt=2)
SPEC = LaunchSpec(command=("python", "t.py"), parameters={}, seed=1, objective="loss", preload=("torch",))
ENDED_LONG_AGO = {FORMAT: FILES_FORMAT, "boot_id": "b", "pid": 1 << 21, "start_time": 1}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path)
    made.make()
    return made


@pytest.fixture
def waiting(home: Home) -> Path:
    """The folder of an attempt that was laid out, while its fork server imports torch."""
    folder = home.attempt_folder(KEY, "n1")
    folder.mkdir(parents=True)
    (folder / FILE_ATTEMPT).write_text(json.dumps(to_plain(AttemptFile(key=KEY, nonce="n1", lineage="l", spec=SPEC))))
    home.put_live("n1", folder)
    return folder


def settings_of(home: Home) -> Settings:
    return Settings(home=home.path, db="")


def test_one_that_waits_to_start_is_listed(home: Home, waiting: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It was not to be seen for the seconds that its fork server takes to import torch."""
    assert [(found.key, found.pid, found.alive, found.waits) for found in list_local(home.path)] == [
        (KEY, None, False, True)
    ]
    print_local_trials(settings_of(home), output="table")
    assert "waits to start" in capsys.readouterr().out


def test_one_that_waits_to_start_is_stopped_so_that_it_never_does(home: Home, waiting: Path) -> None:
    assert stop_local_trials(settings_of(home), "e1/3") == ExitCode.OK

    held = load_attempt(waiting)
    assert held is not None
    assert held.exit is not None
    assert (held.exit.cause, held.exit.stop_reason) == (ExitCause.STOPPED, "stopped on the machine")
    assert not create_once(str(waiting / FILE_CLAIM), b"{}"), "no parent of trials can claim it any more"
    with pytest.raises(CommandError, match="no trial of e1/3 runs here"):
        stop_local_trials(settings_of(home), "e1/3")


def claimed(folder: Path) -> None:
    (folder / FILE_CLAIM).write_bytes(to_json({FORMAT: FILES_FORMAT, **identity(os.getppid())}))


def test_one_that_is_claimed_meanwhile_is_stopped_as_one_that_runs(
    home: Home, waiting: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its parent looks for the order once it has claimed it; this one does not follow."""
    monkeypatch.setattr(local, "STOP_MARGIN_S", 0.1)
    held_stop = local.HeldAttempt.order_stop

    def order_stop(held: local.HeldAttempt, *, grace_s: float, reason: str) -> None:
        held_stop(held, grace_s=grace_s, reason=reason)
        claimed(waiting)

    monkeypatch.setattr(local.HeldAttempt, "order_stop", order_stop)

    (found,) = stop_local(home.path, grace_s=0.0)

    assert (found.alive, found.waits, found.cause) == (True, False, None)
    assert (waiting / FILE_STOP).exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / FILE_CLAIM).write_text("no claim"),
        lambda folder: (folder / FILE_CLAIM).mkdir(),
        lambda folder: (folder / FILE_CLAIM).symlink_to("nowhere"),
    ],
    ids=["text", "folder", "link"],
)
def test_one_whose_trial_has_damaged_its_claim_is_none_that_waits(
    home: Home, waiting: Path, change: Callable[[Path], object]
) -> None:
    """It may run."""
    change(waiting)

    assert (list_local(home.path), stop_local(home.path)) == ([], [])


def test_one_of_which_a_process_is_there_is_none_that_waits(
    home: Home, waiting: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its trial has taken its claim away, or its supervisor is about to make it."""
    monkeypatch.setattr(local, "tree", lambda _, nonce: {17} if nonce == "n1" else set())

    assert (list_local(home.path), stop_local(home.path)) == ([], [])


def test_one_that_ended_is_none_that_waits(home: Home, waiting: Path) -> None:
    (waiting / FILE_CLAIM).write_text(json.dumps(ENDED_LONG_AGO))

    assert [(found.alive, found.waits) for found in list_local(home.path)] == [(False, False)]

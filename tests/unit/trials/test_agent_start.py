"""Homes that an agent cannot use, or not fully: what it says, and what it goes on without."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from trials.agent import __main__ as agent_main
from trials.agent import bounds
from trials.agent import home as agent_home
from trials.agent.home import Home
from trials.agent.patience import FILE_SERVICE_LOST, Patience
from trials.wire.homes import MARKS, is_foreign
from trials.wire.log_lines import ENV_LOG_FORMAT

FULL = OSError(errno.ENOSPC, "No space left on device", "/home/agent/boot")


def started(home: Path, monkeypatch: pytest.MonkeyPatch, *, name: str = "local") -> None:
    monkeypatch.setenv(ENV_LOG_FORMAT, "json")
    monkeypatch.setattr(sys, "argv", ["agent", "--home", str(home), "--agent-id", name])
    before = os.umask(0o077)
    try:
        agent_main.main()
    finally:
        os.umask(before)


@pytest.mark.parametrize("file", ["lock", "agent.log"])
def test_a_file_that_this_user_may_not_use_is_named_with_what_to_do(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As after an agent that root has started; who runs the tests may be root, so something else is in the way."""
    (tmp_path / "agent" / file).mkdir(parents=True)
    monkeypatch.setattr(agent_main, "_leave_session", lambda: None)

    with pytest.raises(SystemExit) as ended:
        started(tmp_path, monkeypatch)

    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert f"the home {tmp_path} cannot be used: {tmp_path}/agent/{file}: Is a directory" in said
    assert "give its user the right to" in said


def test_a_folder_of_somebody_elses_is_no_agents_and_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As where the home is a project that has an ``agent/code`` of its own: that would be emptied."""
    own = tmp_path / "agent" / "code" / "policy.py"
    own.parent.mkdir(parents=True)
    own.write_text("x")
    monkeypatch.setattr(agent_main, "_leave_session", lambda: None)
    monkeypatch.setattr(agent_main, "_locked", lambda _: None)

    with pytest.raises(SystemExit) as ended:
        started(tmp_path, monkeypatch)

    assert ended.value.code == 2
    assert f"the folder {tmp_path}/agent holds files that are no agent's" in capsys.readouterr().err
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")] == [
        "agent",
        "agent/code",
        str(own.relative_to(tmp_path)),
    ]


@pytest.mark.parametrize("mark", sorted(MARKS))
def test_what_an_agent_was_in_is_its_folder_whatever_is_lost_of_it(mark: str, tmp_path: Path) -> None:
    for path in ("code/digest/train.py", f"{mark}/x"):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).touch()

    assert not is_foreign(tmp_path)


def test_the_folder_of_an_agent_whose_first_start_was_cut_off_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "assets").mkdir()

    assert not is_foreign(tmp_path)
    assert not is_foreign(tmp_path / "nothing")


def test_of_a_full_disk_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(_: object) -> None:
        raise FULL

    monkeypatch.setattr(agent_main, "_locked", full)

    with pytest.raises(SystemExit):
        started(tmp_path, monkeypatch)

    assert "No space left on device; make room there" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("TUNER_NODE_CPUS", "four"),
        ("TUNER_NODE_CPUS", "0"),
        ("TUNER_NODE_MEMORY_BYTES", "32GiB"),
        ("TUNER_NODE_BANDWIDTH", "-1"),
        ("TUNER_NODE_BANDWIDTH", "inf"),
        ("TUNER_SERVICE_LOST_S", "nan"),
    ],
)
def test_a_variable_that_makes_no_sense_is_named_at_the_start(
    name: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, text)

    with pytest.raises(SystemExit):
        started(tmp_path, monkeypatch)

    assert f"the variable {name} is a" in capsys.readouterr().err


def test_variables_that_make_sense_or_are_empty_are_taken() -> None:
    given = {"TUNER_NODE_CPUS": "4", "TUNER_NODE_MEMORY_BYTES": "", "TUNER_NODE_BANDWIDTH": "1e6"}

    assert bounds.fault(given) is None


def test_a_name_that_is_none_is_said_without_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(agent_main, "_leave_session", lambda: None)
    with pytest.raises(SystemExit):
        started(tmp_path, monkeypatch, name="gpu 7")

    assert "agent id 'gpu 7' is no name" in capsys.readouterr().err


@pytest.mark.parametrize("data", [b"\xff\xfe", b"", b"soon", None])
def test_a_patience_that_cannot_be_read_is_asked_for_again(data: bytes | None, tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.make()
    file = home.agent / FILE_SERVICE_LOST
    file.mkdir() if data is None else file.write_bytes(data)

    assert Patience(home).limit_s is None


def test_after_a_start_of_the_machine_a_full_disk_does_not_keep_the_agent_from_its_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path)
    home.make()
    (home.incoming / "blob").touch()

    def full(*_: Any, **__: Any) -> None:
        raise FULL

    monkeypatch.setattr(agent_home, "write_atomically", full)

    for _ in range(2):
        home.drop_unsynced("boot")

    assert home.incoming.is_dir()
    assert list(home.incoming.iterdir()) == []

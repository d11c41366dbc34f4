"""What trials get of the environment, and secrets: by real commands, a real service, forked and spawned trials."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command_line import COMMAND_TIMEOUT_S, CommandLine, command_line

VALUE = "hunter2-of-the-cloud"
SCRIPT = """\
import os, trials
with trials.init() as trial:
    names = ("CLOUD_KEY", "GIVEN", "MY_SETTING", "AA_UNNAMED", "PATH", "TUNER_DB")
    print({name: name in os.environ for name in names}, "length", len(os.environ.get("CLOUD_KEY", "")))
    trial.report_final(accuracy=1.0)
"""


@pytest.fixture
def tuner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CommandLine]:
    for name in ("MY_SETTING", "AA_UNNAMED"):
        monkeypatch.setenv(name, "x")
    with command_line(tmp_path) as line:
        line.begin_service()
        yield line


def set_secret(tuner: CommandLine, name: str, value: str) -> None:
    subprocess.run(
        [sys.executable, "-P", "-m", "tuner_service.cli.main", "secret", "set", name],
        input=value,
        text=True,
        env=tuner.environment(),
        timeout=COMMAND_TIMEOUT_S,
        check=True,
    )


def files_with(folder: Path, text: str) -> set[str]:
    """Of a home that is at rest."""
    paths = [Path(place, name) for place, _, names in os.walk(folder) for name in names]
    return {str(p.relative_to(folder)) for p in paths if not p.is_symlink() and text.encode() in p.read_bytes()}


@pytest.mark.parametrize("isolation", ["fork", "spawn"])
def test_a_trial_gets_its_secret_and_what_is_named_and_the_secret_stands_in_its_file_only(
    tuner: CommandLine, isolation: str
) -> None:
    set_secret(tuner, "cloud", f"{VALUE}\n")
    trial = {
        "code": "code",
        "command": "python secret.py",
        "isolation": isolation,
        "environment": {"CLOUD_KEY": {"secret": "cloud"}, "GIVEN": "1"},
        "pass_environment": ["MY_SETTING", "NOT_SET"],
    }
    file = tuner.experiment_file(trial=trial, budget={"trials": 2})
    (tuner.folder / "code" / "secret.py").write_text(SCRIPT)

    tuner.run("run", file)

    expected = {
        "CLOUD_KEY": True,
        "GIVEN": True,
        "MY_SETTING": True,
        "AA_UNNAMED": False,
        "PATH": True,
        "TUNER_DB": False,
    }
    for number in (1, 2):
        assert tuner.run("logs", f"@last/{number}").strip() == f"{expected} length {len(VALUE)}"
    assert "AA_UNNAMED" in tuner.run("show", "@last")
    shown = tuner.read("show", "@last")
    assert "AA_UNNAMED" in shown["left_out"]
    assert not {"MY_SETTING", "CLOUD_KEY", "GIVEN"} & set(shown["left_out"])
    assert shown["not_set"] == ["NOT_SET"]
    assert shown["trial"]["environment"] == {"CLOUD_KEY": {"secret": "cloud"}, "GIVEN": "1"}
    tuner.run("serve", "--stop")
    assert files_with(tuner.home, VALUE) == {"secrets/cloud"}
    assert (tuner.home / "secrets" / "cloud").stat().st_mode & 0o777 == 0o600


def test_a_secret_that_is_not_set_says_how_to_set_it(tuner: CommandLine) -> None:
    trial = {"code": "code", "command": "python train.py 1 0", "environment": {"KEY": {"secret": "gone"}}}

    tuner.run("run", tuner.experiment_file(trial=trial, budget={"trials": 1, "failures": 1}), code=6)

    assert "tuner secret set gone" in tuner.run("show", "@last/1")


def test_secrets_are_listed_by_name_replaced_and_deleted(tuner: CommandLine) -> None:
    set_secret(tuner, "b", "x")
    set_secret(tuner, "a", "first")
    set_secret(tuner, "a", "second")

    assert [(row["id"], row["bytes"]) for row in tuner.read("secret")] == [("a", 6), ("b", 1)]
    tuner.run("secret", "rm", "b")
    assert "there is no secret b" in tuner.run("secret", "rm", "b", code=3)
    for wrong in ("../token", "", "a/b", ".hidden"):
        tuner.run("secret", "set", wrong, code=2)
    assert [row["id"] for row in tuner.read("secret")] == ["a"]


def test_a_secret_that_is_no_text_is_refused_in_plain_words(tuner: CommandLine) -> None:
    command = [sys.executable, "-P", "-m", "tuner_service.cli.main", "secret", "set", "a"]

    done = subprocess.run(
        command, input=b"\xff\xfe", env=tuner.environment(), timeout=COMMAND_TIMEOUT_S, capture_output=True, check=False
    )

    assert done.returncode == 2
    assert done.stderr.startswith(b"tuner: a secret is text in UTF-8")
    assert tuner.read("secret") == []

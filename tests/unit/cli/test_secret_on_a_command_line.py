"""The address of a database or of a store may hold a password, and others see command lines and what is printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner_service.cli.main import main
from tuner_service.cli.verbs.serve import without_secret

SECRET = "postgresql://me:hunter2@host/tuner"


@pytest.mark.parametrize(
    ("command", "left"),
    [
        (["python", "tuner", "serve", "--db", SECRET, "--port", "0"], ["python", "tuner", "serve", "--port", "0"]),
        (["python", "-m", "m", "serve", "--standby", f"--db={SECRET}"], ["python", "-m", "m", "serve", "--standby"]),
    ],
)
def test_a_service_begins_again_without_the_address_that_holds_a_password(command: list[str], left: list[str]) -> None:
    assert without_secret(command, SECRET) == left


def test_a_password_among_the_settings_of_the_address_counts() -> None:
    url = "postgresql://host/tuner?user=me&password=hunter2"
    assert without_secret(["tuner", "serve", "--db", url], url) == ["tuner", "serve"]


@pytest.mark.parametrize("database", ["postgresql://me@host/tuner", "tuner.db"])
def test_an_address_without_a_password_stays(database: str) -> None:
    assert without_secret(["tuner", "serve", "--db", database], database) == []


def test_what_does_not_stand_on_the_command_line_is_no_reason_to_begin_again() -> None:
    assert without_secret(["python", "-m", "pytest"], SECRET) == []


@pytest.mark.parametrize("setting", ["TUNER_DB", "TUNER_ASSET_STORE", "TUNER_CHECKPOINT_STORE"])
def test_the_settings_are_printed_without_the_passwords_of_their_addresses(
    setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TUNER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv(setting, SECRET if setting == "TUNER_DB" else "s3://key:hunter2@bucket/prefix")

    assert main(["config", "show"]) == 0

    printed = capsys.readouterr().out
    assert ":***@" in printed
    assert "hunter2" not in printed

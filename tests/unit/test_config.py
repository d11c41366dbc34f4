"""Settings: precedence, origins, and every wrong value named with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner_service.config import SETTINGS, Settings, resolve_settings
from tuner_service.domain.errors import InputError


def resolve(tmp_path: Path, *, flags: dict[str, str | None] | None = None, **environment: str) -> Settings:
    return resolve_settings(
        flags or {}, environment=environment, folder=tmp_path, user_file=tmp_path / "user" / "config.toml"
    )


def write_files(tmp_path: Path, *, project: str = "", user: str = "") -> None:
    (tmp_path / "tuner.toml").write_text(project)
    (tmp_path / "user").mkdir()
    (tmp_path / "user" / "config.toml").write_text(user)


def test_the_highest_of_flag_environment_profile_project_user_and_default_wins(tmp_path: Path) -> None:
    write_files(
        tmp_path,
        project='profile = "p"\nport = 4\nhost = "project"\n[profiles.p]\nport = 3\n',
        user='port = 5\nhost = "user"\nlog_level = "error"\n',
    )

    everything = resolve(tmp_path, flags={"port": "1"}, TUNER_PORT="2")
    no_flag = resolve(tmp_path, flags={"port": None}, TUNER_PORT="2")
    no_environment = resolve(tmp_path)

    assert (everything.port, no_flag.port, no_environment.port) == (1, 2, 3)
    assert (no_environment.host, no_environment.log_level) == ("project", "error")
    assert everything.origins["port"] == "flag"
    assert no_environment.origins["port"].endswith("tuner.toml [profiles.p]")
    assert no_environment.origins["allowed_hosts"] == "default"


def test_the_default_home_is_the_users_data_folder(tmp_path: Path) -> None:
    settings = resolve(tmp_path, XDG_DATA_HOME="/data")

    assert settings.home == Path("/data/tuner")
    assert settings.database_file == Path("/data/tuner/tuner.db")
    assert settings.token_file == Path("/data/tuner/token")


def test_paths_are_relative_to_the_folder_and_a_database_may_be_a_url(tmp_path: Path) -> None:
    assert resolve(tmp_path, TUNER_HOME="runs").home == tmp_path / "runs"
    assert resolve(tmp_path, TUNER_DB="copy.db").database_file == tmp_path / "copy.db"
    assert resolve(tmp_path, TUNER_DB="postgresql://host/db").database_file is None


def test_names_come_as_text_or_as_a_list(tmp_path: Path) -> None:
    write_files(tmp_path, project='allowed_hosts = ["a", "b"]\n')

    settings = resolve(tmp_path, TUNER_ALLOWED_ORIGINS="https://x, https://y,")

    assert settings.allowed_hosts == ("a", "b")
    assert settings.allowed_origins == ("https://x", "https://y")


def test_every_wrong_value_is_named_with_its_place(tmp_path: Path) -> None:
    write_files(tmp_path, project='port = 99999\ncolour = "red"\nlog_level = "loud"\n')

    with pytest.raises(InputError) as caught:
        resolve(tmp_path, TUNER_URL="tuner.lan", TUNER_HOME="  ")

    faults = {fault.pointer: fault.message for fault in caught.value.faults}
    assert set(faults) == {"/port", "/colour", "/log_level", "/url", "/home"}
    assert str(tmp_path / "tuner.toml") in faults["/port"]
    assert "environment" in faults["/url"]


@pytest.mark.parametrize("port", ["-1", "65536", "x", "1.5"])
def test_a_port_is_a_port(tmp_path: Path, port: str) -> None:
    with pytest.raises(InputError, match="0 to 65535"):
        resolve(tmp_path, TUNER_PORT=port)


def test_an_unknown_profile_is_refused_naming_those_there_are(tmp_path: Path) -> None:
    write_files(tmp_path, project="[profiles.lab]\nport = 1\n")

    with pytest.raises(InputError, match="no profile 'home'; known: lab"):
        resolve(tmp_path, TUNER_PROFILE="home")


def test_a_file_that_is_not_toml_is_named(tmp_path: Path) -> None:
    write_files(tmp_path, project="port == 1")

    with pytest.raises(InputError, match=r"tuner\.toml is not TOML"):
        resolve(tmp_path)


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("s3://bucket/prefix", "s3://bucket/prefix"),
        ("/shared/weights", "/shared/weights"),
        ("file:///shared/weights", "/shared/weights"),
    ],
)
def test_the_checkpoint_store_is_a_url_or_an_absolute_folder(tmp_path: Path, given: str, used: str) -> None:
    assert resolve(tmp_path, TUNER_CHECKPOINT_STORE=given).checkpoint_store == used
    assert resolve(tmp_path, TUNER_CHECKPOINT_STORE="near").checkpoint_store == str(tmp_path.resolve() / "near")
    assert resolve(tmp_path).checkpoint_store == ""
    assert resolve(tmp_path, TUNER_HOME="h", TUNER_CHECKPOINT_STORE="h/checkpoints").checkpoint_store == ""


def test_a_token_is_not_shown_by_accident(tmp_path: Path) -> None:
    assert "secret" not in repr(resolve(tmp_path, TUNER_TOKEN="secret"))
    assert [setting.name for setting in SETTINGS if not setting.flag] == ["token"]

"""Settings: precedence, origins, and every wrong value named with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner_service.assets.digest_cache import DigestCache
from tuner_service.config import SETTINGS, Setting, Settings, resolve_settings
from tuner_service.domain.errors import InputError
from tuner_service.setting_values import without_password


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
        project='profile = "p"\nport = 4\nlog_level = "debug"\n[profiles.p]\nport = 3\n',
        user='port = 5\nhost = "user"\nlog_level = "error"\n',
    )

    everything = resolve(tmp_path, flags={"port": "1"}, TUNER_PORT="2")
    no_flag = resolve(tmp_path, flags={"port": None}, TUNER_PORT="2")
    no_environment = resolve(tmp_path)

    assert (everything.port, no_flag.port, no_environment.port) == (1, 2, 3)
    assert (no_environment.host, no_environment.log_level) == ("user", "debug")
    assert everything.origins["port"] == "flag"
    assert no_environment.origins["port"].endswith("tuner.toml [profiles.p]")
    assert no_environment.origins["allowed_hosts"] == "default"


def test_the_default_home_is_the_users_data_folder(tmp_path: Path) -> None:
    settings = resolve(tmp_path, XDG_DATA_HOME="/data")

    assert settings.home == Path("/data/tuner")
    assert settings.database_file == Path("/data/tuner/tuner.db")
    assert settings.token_file == Path("/data/tuner/token")


def test_a_user_without_a_home_folder_names_that_of_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(_cls: type[Path]) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", classmethod(nobody))

    assert resolve_settings({}, environment={"TUNER_HOME": "runs"}, folder=tmp_path).home == tmp_path / "runs"
    with pytest.raises(InputError, match=r"no home folder; name the service's with --home or TUNER_HOME, or set HOME"):
        resolve_settings({}, environment={}, folder=tmp_path)
    assert DigestCache().find([]) == {}


def test_a_home_of_a_user_that_there_is_not_is_refused_by_its_setting(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^/home: environment: Could not determine home directory"):
        resolve(tmp_path, TUNER_HOME="~no-such-user/runs")


def test_paths_are_relative_to_the_folder_and_a_database_may_be_a_url(tmp_path: Path) -> None:
    assert resolve(tmp_path, TUNER_HOME="runs").home == tmp_path / "runs"
    assert resolve(tmp_path, TUNER_DB="copy.db").database_file == tmp_path / "copy.db"
    assert resolve(tmp_path, TUNER_DB="postgresql://host/db").database_file is None


@pytest.mark.parametrize("named", ["{folder}/link.db", "sqlite:///{folder}/link.db", "link.db", "sqlite:///link.db"])
def test_a_database_is_the_file_that_links_lead_to_however_it_is_named(tmp_path: Path, named: str) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "there" / "tuner.db")

    assert resolve(tmp_path, TUNER_DB=named.format(folder=tmp_path)).database_file == tmp_path / "there" / "tuner.db"


@pytest.mark.parametrize(
    ("given", "used"), [("2GiB", 2 << 30), ("800 MiB", 800 << 20), ("256mib", 256 << 20), ("0", 0)]
)
def test_the_memory_of_workers_is_a_size(tmp_path: Path, given: str, used: int) -> None:
    assert resolve(tmp_path, TUNER_WORKER_MEMORY=given).worker_memory == used


@pytest.mark.parametrize("given", ["255MiB", "4", "-1GiB", "GiB", "9" * 5_000 + "GiB", "1.5GiB", "lots"])
def test_a_memory_of_workers_that_is_no_size_or_too_small_is_refused(tmp_path: Path, given: str) -> None:
    with pytest.raises(InputError, match="256MiB"):
        resolve(tmp_path, TUNER_WORKER_MEMORY=given)


@pytest.mark.parametrize(
    ("given", "used"), [("never", None), ("90s", 90.0), ("10m", 600.0), ("1.5h", 5_400.0), ("1d", 86_400.0), ("2", 2.0)]
)
def test_how_long_a_lost_service_is_waited_for_is_a_time_or_never(
    tmp_path: Path, given: str, used: float | None
) -> None:
    assert resolve(tmp_path, TUNER_SERVICE_LOST_TIMEOUT=given).service_lost_timeout == used


@pytest.mark.parametrize("given", ["0", "0.5s", "-1m", "1w", "soon", "nan", "inf", "9" * 5_000])
def test_a_wait_for_a_lost_service_that_is_no_time_is_refused(tmp_path: Path, given: str) -> None:
    with pytest.raises(InputError, match='"never"'):
        resolve(tmp_path, TUNER_SERVICE_LOST_TIMEOUT=given)


def test_names_come_as_text_or_as_a_list(tmp_path: Path) -> None:
    write_files(tmp_path, user='allowed_hosts = ["a", "b"]\n')

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


@pytest.mark.parametrize("text", ["profiles = 3\n", "[profiles]\nlab = 3\n"])
def test_profiles_that_are_no_tables_are_refused(tmp_path: Path, text: str) -> None:
    write_files(tmp_path, project=text)

    with pytest.raises(InputError, match=r"profiles are tables, \[profiles.NAME\]"):
        resolve(tmp_path, flags={"profile": "lab"})


@pytest.mark.parametrize("value", ["[" * 10_000, "9" * 5_000])
def test_what_python_does_not_take_is_a_fault_of_the_file(tmp_path: Path, value: str) -> None:
    write_files(tmp_path, project=f"port = {value}\n")

    with pytest.raises(InputError, match=r"tuner\.toml is not TOML"):
        resolve(tmp_path)


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
        ("FILE:/shared/weights", "/shared/weights"),
        ("local:///shared/weights", "/shared/weights"),
        ("simplecache::file:///shared/weights", "simplecache::file:///shared/weights"),
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


OF_PROJECTS = {"port": "8123", "log_level": "debug", "log_format": "json", "profile": "mine"}


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
@pytest.mark.parametrize("table", ["", "[profiles.p]\n"])
def test_the_file_of_a_project_sets_nothing_that_sends_a_token_or_data_anywhere(
    tmp_path: Path, setting: Setting, table: str
) -> None:
    value = OF_PROJECTS.get(setting.name, "http://evil.example")
    write_files(tmp_path, project=f'{table}{setting.name} = "{value}"\n', user="[profiles.mine]\nport = 1\n")

    if setting.name in OF_PROJECTS:
        resolve(tmp_path)
        return
    with pytest.raises(InputError, match=r"tuner\.toml: the file of a project may not set it.*config\.toml") as caught:
        resolve(tmp_path)
    assert [fault.pointer for fault in caught.value.faults] == [f"/{setting.name}"]


def test_what_a_project_may_not_set_is_refused_whatever_else_sets_it(tmp_path: Path) -> None:
    write_files(tmp_path, project='home = "theirs"\n', user='home = "mine"\n')

    with pytest.raises(InputError, match="may not set it"):
        resolve(tmp_path, flags={"home": "here"}, TUNER_HOME="there")


def test_a_token_is_for_the_url_only_where_somebody_put_them_together(tmp_path: Path) -> None:
    write_files(
        tmp_path,
        user='token = "t"\n[profiles.lab]\nurl = "https://lab"\n[profiles.both]\nurl = "https://b"\ntoken = "b"\n',
    )

    assert resolve(tmp_path, TUNER_URL="https://x", TUNER_TOKEN="e").token_is_for_url
    assert resolve(tmp_path, TUNER_PROFILE="lab", TUNER_TOKEN="e").token_is_for_url
    assert resolve(tmp_path, TUNER_PROFILE="both").token_is_for_url
    assert not resolve(tmp_path, TUNER_URL="https://x").token_is_for_url
    assert not resolve(tmp_path, TUNER_PROFILE="lab").token_is_for_url
    assert not resolve(tmp_path, flags={"url": "https://x"}, TUNER_PROFILE="both").token_is_for_url


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:hunter2@host/db", "postgresql://me:***@host/db"),
        ("postgresql+psycopg://me:a:b@c@host:5432/db", "postgresql+psycopg://me:***@host:5432/db"),
        ("postgresql://host/db?user=me&password=hunter2&x=1", "postgresql://host/db?user=me&password=***&x=1"),
        ("s3://key:hunter2@bucket/prefix", "s3://key:***@bucket/prefix"),
        ("sqlite:////home/me/tuner.db", "sqlite:////home/me/tuner.db"),
        ("https://tuner.lan:8443", "https://tuner.lan:8443"),
    ],
)
def test_an_address_is_shown_without_its_password(url: str, shown: str) -> None:
    assert without_password(url) == shown


@pytest.mark.parametrize(
    "url",
    [
        *("http://", "http://:80", "http://host:99999", "http://host:0", "http://host:x", "http://[::1", "http://a b"),
        *("http://a..b", f"http://{'a' * 64}"),
        *(
            "http://host/prefix",
            "http://host?x=1",
            "http://host#x",
            "http://me:hunter2@host",
            "http://host\n.x",
            "http://\0",
        ),
        *("hunter2", "postgresql://me:hunter2@host"),
    ],
)
def test_an_address_that_no_request_can_go_to_is_refused_without_its_password(tmp_path: Path, url: str) -> None:
    with pytest.raises(InputError, match="a service's address") as caught:
        resolve(tmp_path, TUNER_URL=url)

    assert "hunter2@" not in str(caught.value)


@pytest.mark.parametrize("url", ["http://host", "https://tuner.lan:8443/", "http://[::1]:80", "http://127.0.0.1:5"])
def test_an_address_is_a_host_and_a_port(tmp_path: Path, url: str) -> None:
    assert resolve(tmp_path, TUNER_URL=url).url == url.rstrip("/")


@pytest.mark.parametrize("token", ["a\nb", "a\r\nX-Evil: 1", "\u00e4", "\u20ac", "a\0b", "\udcff"])
def test_a_token_that_no_header_takes_is_refused_and_not_shown(tmp_path: Path, token: str) -> None:
    with pytest.raises(InputError, match="environment: a token is one line") as caught:
        resolve(tmp_path, TUNER_TOKEN=token)

    assert token not in str(caught.value)


def test_the_end_of_a_line_is_no_part_of_a_token(tmp_path: Path) -> None:
    assert resolve(tmp_path, TUNER_TOKEN="abc\n").token == "abc"

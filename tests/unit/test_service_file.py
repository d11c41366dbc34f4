"""The files by which commands find a service: whatever stands in them, a damaged one names none."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tuner_service.client import ClientError
from tuner_service.config import Settings, resolve_settings
from tuner_service.local_service import database_holder, database_told, read_service_file, require_its_database

OWN = os.getpid()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return resolve_settings({"home": str(tmp_path)}, environment={}, folder=tmp_path)


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000", "https://[::1]:8000", "http://box:1"])
def test_what_a_service_writes_is_read(settings: Settings, url: str) -> None:
    described = {"pid": OWN, "url": url}
    settings.service_file.write_text(json.dumps(described))

    assert read_service_file(settings) == described


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "[" * 100_000,
        '{"url": "http://127.0.0.1:1"}',
        f'{{"pid": {2**31}, "url": "http://127.0.0.1:1"}}',
        f'{{"pid": {"9" * 5_000}, "url": "http://127.0.0.1:1"}}',
        '{"pid": OWN, "url": 5}',
        '{"pid": OWN, "url": "nonsense"}',
        '{"pid": OWN, "url": "http://[::"}',
        '{"pid": OWN, "url": "http://127.0.0.1:99999"}',
        '{"pid": OWN, "url": "http://127.0.0.1:x"}',
    ],
)
def test_what_no_service_writes_names_none(settings: Settings, text: str) -> None:
    settings.service_file.write_text(text.replace("OWN", str(OWN)))

    assert read_service_file(settings) is None


@pytest.mark.parametrize("text", ["OWN", "", "0", str(2**31), "9" * 5_000])
def test_the_process_of_a_lock_file_is_one_that_can_be(settings: Settings, text: str) -> None:
    file = settings.database_file
    assert file is not None
    file.with_name(f"{file.name}.lock").write_text(text.replace("OWN", str(OWN)))

    assert database_holder(settings) == (OWN if text == "OWN" else None)


def told(settings: Settings, database: object) -> None:
    settings.service_file.write_text(json.dumps({"pid": OWN, "url": "http://127.0.0.1:1", "database": database}))


SERVER = "postgresql://db.lan:5432/tuner"


@pytest.mark.parametrize(
    ("works_on", "named"),
    [
        ("FOLDER/tuner.db", "sqlite:///FOLDER/other.db"),
        ("FOLDER/tuner.db", "FOLDER/gone.db"),
        ("FOLDER/tuner.db", "postgresql://me:hunter2@db.lan/tuner"),
        (SERVER, "FOLDER/other.db"),
        (SERVER, "postgresql://me:hunter2@db.lan:5432/another"),
    ],
)
def test_what_is_meant_for_another_database_than_that_of_the_service_is_not_asked_of_it(
    tmp_path: Path, works_on: str, named: str
) -> None:
    for name in ("tuner.db", "other.db"):
        (tmp_path / name).touch()
    works_on, named = works_on.replace("FOLDER", str(tmp_path)), named.replace("FOLDER", str(tmp_path))
    settings = resolve_settings({"home": str(tmp_path)}, environment={"TUNER_DB": named}, folder=tmp_path)
    told(settings, works_on)

    with pytest.raises(ClientError, match="works on the database") as caught:
        require_its_database(settings)

    assert f"{works_on}, and not on" in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("works_on", "named"),
    [
        ("FOLDER/tuner.db", None),
        ("FOLDER/tuner.db", "FOLDER/tuner.db"),
        ("FOLDER/tuner.db", "FOLDER/link.db"),
        ("FOLDER/tuner.db", "FOLDER/same.db"),
        ("/data/tuner.db", "FOLDER/tuner.db"),  # as a container calls it
        (SERVER, "postgres://me:hunter2@127.0.0.1/tuner?sslmode=require"),
        (5, "FOLDER/other.db"),  # what another version writes
    ],
)
def test_another_name_of_the_same_database_is_no_other_one(tmp_path: Path, works_on: object, named: str | None) -> None:
    (tmp_path / "tuner.db").touch()
    (tmp_path / "link.db").symlink_to("tuner.db")
    os.link(tmp_path / "tuner.db", tmp_path / "same.db")
    environment = {} if named is None else {"TUNER_DB": named.replace("FOLDER", str(tmp_path))}
    settings = resolve_settings({"home": str(tmp_path)}, environment=environment, folder=tmp_path)
    told(settings, works_on.replace("FOLDER", str(tmp_path)) if isinstance(works_on, str) else works_on)

    require_its_database(settings)


def test_a_service_says_of_its_database_nothing_that_only_its_users_know() -> None:
    assert database_told("postgresql://me:hunter2@db.lan:5432/tuner?password=hunter3") == SERVER
    assert database_told("sqlite:////data/tuner.db") == database_told("/data/tuner.db") == "/data/tuner.db"

"""The files by which commands find a service: whatever stands in them, a damaged one names none."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tuner_service.config import Settings, resolve_settings
from tuner_service.local_service import database_holder, read_service_file

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

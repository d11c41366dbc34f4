"""`tuner open`: a code that is good once, shown or opened, and never among the words of a browser's command."""

from __future__ import annotations

import webbrowser
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api_server import serving
from tests.api_service import ApiService
from tests.command_line import CommandLine, command_line
from tests.unit.api.test_signing_in import sign_in
from tests.waiting import wait_until
from tuner_service.cli.main import main


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiService]:
    monkeypatch.setenv("TUNER_HOME", str(tmp_path))
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    with serving(tmp_path) as found:
        yield found


def code_in(text: str) -> str:
    return text.partition("/login#code=")[2].split('"')[0].strip()


def test_without_a_browser_the_address_is_printed_and_signs_in_once(
    api: ApiService, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["open"]) == 0

    printed = capfd.readouterr().out
    assert printed.startswith("http://127.0.0.1:")
    assert sign_in(api, {"code": code_in(printed)}).status_code == 201
    assert sign_in(api, {"code": code_in(printed)}).status_code == 401


def test_a_browser_is_given_a_file_that_only_its_owner_reads(
    api: ApiService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    opened: list[str] = []
    monkeypatch.setenv("BROWSER", "true")
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address) or True)

    assert main(["open"]) == 0

    file = tmp_path / "open.html"
    assert opened == [file.as_uri()]
    assert file.stat().st_mode & 0o077 == 0
    code = code_in(file.read_text())
    said = capfd.readouterr()
    assert code not in said.out + said.err
    assert "if it does not, or may not read the file: tuner open --print" in said.err  # as one that is a snap may not
    assert sign_in(api, {"code": code}).status_code == 201


@pytest.fixture
def tuner(tmp_path: Path) -> Iterator[CommandLine]:
    with command_line(tmp_path) as line:
        yield line


def test_a_service_is_started_for_a_home_that_has_had_one_and_for_no_other(tuner: CommandLine) -> None:
    tuner.run("open", "--print", code=5)
    assert not (tuner.home / "tuner.db").exists()
    with tuner.start("serve") as service:
        wait_until((tuner.home / "service.json").is_file)
        service.terminate()

    assert tuner.run("open", "--print").startswith("http://127.0.0.1:")

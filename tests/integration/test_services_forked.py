"""A service of tests that is a fork is like one whose interpreter was started: only its start takes less."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import forked_services
from tuner_service.config import Settings, resolve_settings
from tuner_service.local_service import find_service, read_service_file, start_service, stop_service


def settings_in(folder: Path) -> Settings:
    return resolve_settings({"home": str(folder / "home")}, environment=os.environ, folder=folder)


@contextmanager
def answering(settings: Settings) -> Iterator[int]:
    """The process of the service that runs, which is ended."""
    try:
        found = find_service(settings)
        assert found is not None
        with closing(found):
            assert found.experiments() == []
            described = read_service_file(settings)
            assert described is not None
            yield int(described["pid"])
    finally:
        stop_service(settings)


def looks(pid: int, home: Path) -> dict[str, Any]:
    """What other processes, its children and the kernel know of it."""
    place = Path(f"/proc/{pid}")
    status = dict(line.split(":\t", 1) for line in (place / "status").read_text().splitlines())
    stat = (place / "stat").read_text().rpartition(")")[2].split()
    return {
        "command": [word.replace(str(home), "HOME") for word in _words(place / "cmdline")],
        "folder": (place / "cwd").readlink(),
        "limits": (place / "limits").read_text(),
        "leads its session": (stat[2], stat[3]) == (str(pid), str(pid)),
        "streams": [str((place / "fd" / n).readlink()).replace(str(home), "HOME") for n in "012"],
        **{name: status[name] for name in ("Umask", "SigBlk", "SigIgn", "SigCgt", "NoNewPrivs", "Seccomp", "Uid")},
    }


def _words(file: Path) -> list[str]:
    return file.read_bytes().rstrip(b"\0").decode().split("\0")


@pytest.mark.slow
def test_a_forked_service_is_like_one_that_was_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forked, started = settings_in(tmp_path / "forked"), settings_in(tmp_path / "started")
    monkeypatch.chdir(tmp_path)
    with forked_services.process_for_all():
        assert forked_services.begin(forked.home, folder=tmp_path, environment=os.environ)
        with answering(forked) as pid:
            found = looks(pid, forked.home)
    starting = start_service(started)
    starting.wait().close()
    with answering(started) as pid:
        assert found == looks(pid, started.home)
    starting.process.wait()


def test_without_a_process_for_all_nothing_is_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("", str(tmp_path / "nobody")):
        monkeypatch.setenv(forked_services.PLACE, place)
        assert not forked_services.begin(tmp_path / "home", folder=tmp_path, environment=os.environ)

        assert not (tmp_path / "home").exists()

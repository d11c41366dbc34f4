"""`HOME/notify.toml`: what is read from it, and what is named where it makes no sense."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner_service.domain.errors import InputError
from tuner_service.executors.notifying import NotifyFile, read_notify_file
from tuner_service.service.notices import Event


def read(home: Path, text: str) -> NotifyFile:
    (home / "notify.toml").write_text(text)
    (home / "notify.toml").chmod(0o600)
    return read_notify_file(home)


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_commands_and_when_they_are_run_are_read(tmp_path: Path, mark: str) -> None:
    found = read(tmp_path, f'{mark}on_end = ["mail"]\n[commands]\nmail = ["mail", "me"]\n')

    assert found == NotifyFile(commands={"mail": ("mail", "me")}, always={Event.END: ("mail",)})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("on_end == 1", "is not TOML"),
        (f"on_end = {'[' * 10_000}", "is not TOML"),
        (f"on_end = {'9' * 5_000}", "is not TOML"),
        ('on_end = ["mail"]', "is a list of names of commands; known: none"),
        ('on_end = "mail"\n[commands]\nmail = ["mail"]', "is a list of names of commands; known: mail"),
        ('[commands]\nmail = "mail me"', "each is a list of words"),
        ("commands = 3", "each is a list of words"),
        ("on_start = []", "is not known here"),
    ],
)
def test_what_makes_no_sense_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read(tmp_path, text)

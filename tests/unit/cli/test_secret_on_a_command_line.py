"""The address of a database may hold its password, and other users see command lines."""

from __future__ import annotations

import pytest

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

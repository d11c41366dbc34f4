"""`tuner token`: made, shown once, exchanged and revoked on a running service."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.command_line import CommandLine, command_line
from tuner_service.client import Client, ProblemError


@pytest.fixture
def tuner(tmp_path: Path) -> Iterator[CommandLine]:
    with command_line(tmp_path) as line:
        line.begin_service()
        line.run("start", line.slow_file())
        yield line


def role_of(tuner: CommandLine, token: str) -> str:
    """What the service says that it may; the status of its refusal."""
    url = json.loads((tuner.home / "service.json").read_text())["url"]
    with closing(Client(url, token)) as client:
        try:
            return str(client.call("GET", "/api/v1/session").json()["role"])
        except ProblemError as refused:
            return str(refused.status)


def test_a_token_is_made_exchanged_and_revoked_while_the_service_runs(tuner: CommandLine) -> None:
    file = tuner.folder / "ann.token"
    first = tuner.run("token", "add", "bob", "--role", "read-only", "--expires", "30d").strip()
    tuner.run("token", "add", "ann", "--role", "operator", "--file", str(file))
    ann = file.read_text().strip()

    assert (role_of(tuner, first), role_of(tuner, ann)) == ("read_only", "operator")
    assert file.stat().st_mode & 0o777 == 0o600
    assert "is there already" in tuner.run("token", "add", "eve", "--role", "admin", "--file", str(file), code=4)
    assert "there is a token 'ann' already" in tuner.run("token", "add", "ann", "--role", "admin", code=4)
    tuner.run("token", "rotate", "ann", "--file", str(file))
    assert (role_of(tuner, ann), role_of(tuner, file.read_text().strip())) == ("401", "operator")
    tuner.run("token", "rm", "bob")
    assert role_of(tuner, first) == "401"

    rows = {row["name"]: row for row in tuner.read("token")}
    assert {name: (row["role"], row["state"], row["made_by"]) for name, row in rows.items()} == {
        "ann": ("operator", "good", "home"),
        "bob": ("read_only", "revoked", "home"),
    }
    assert rows["ann"]["last_used_at"] is not None
    kept = (tuner.home / "tuner.db").read_bytes() + (tuner.home / "tuner.db-wal").read_bytes()
    log = (tuner.home / "service.log").read_bytes()
    for secret in (first, ann, file.read_text().strip()):
        assert secret.encode() not in kept + log
    for words in (("ls", "x"), ("add", "x"), ("rm",), ("rm", "x", "--role", "admin"), ("ls", "--file", "f")):
        tuner.run("token", *words, code=2)
    assert "no token" in tuner.run("token", "rm", "nobody", code=3)

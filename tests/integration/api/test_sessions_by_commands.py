"""`tuner sessions`: who is signed in, and that an ended session opens nothing any more."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.command_line import CommandLine, command_line
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def searching(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    with command_line(tmp_path_factory.mktemp("sessions")) as line:
        line.begin_service()
        line.run("start", line.slow_file(budget={"trials": 1, "parallel": 1}))
        yield line


@pytest.fixture
def tuner(searching: CommandLine) -> Iterator[CommandLine]:
    """Nobody is signed in."""
    yield searching
    searching.run("sessions", "end", "--all")


def url(tuner: CommandLine) -> str:
    return str(json.loads((tuner.home / "service.json").read_text())["url"])


def signed_in(tuner: CommandLine, token: str) -> dict[str, str]:
    """The headers of a browser that signed in with that token."""
    headers = {"X-Tuner-Page": "1", "Content-Type": "application/json", "User-Agent": "Firefox"}
    body = json.dumps({"token": (tuner.home / token).read_text().strip()}).encode()
    with urlopen(Request(f"{url(tuner)}/api/v1/session", body, headers, method="POST"), timeout=180) as answer:
        return headers | {"Cookie": answer.headers["Set-Cookie"].partition(";")[0]}


def status(tuner: CommandLine, headers: dict[str, str]) -> int:
    try:
        with urlopen(Request(f"{url(tuner)}/api/v1/session", headers=headers), timeout=180) as answer:
            return int(answer.status)
    except HTTPError as error:
        with error:
            return error.code


def test_sessions_are_listed_and_ended_by_their_ids_or_all_together(tuner: CommandLine) -> None:
    assert tuner.read("sessions") == []
    admin, reader, other = (signed_in(tuner, token) for token in ("token", "token-read-only", "token"))
    assert status(tuner, reader) == 200

    first, second, third = tuner.read("sessions")
    assert [one["role"] for one in (first, second, third)] == ["admin", "read_only", "admin"]
    assert (second["address"], second["browser"], second["last_used_at"] is not None) == ("127.0.0.1", "Firefox", True)
    assert first["last_used_at"] is None
    table = tuner.run("sessions", "ls").splitlines()
    assert table[0].split("  ")[0] == "SESSION"
    assert [line.split()[0] for line in table[1:]] == [first["id"], second["id"], third["id"]]

    tuner.run("sessions", "end", first["id"][:11])
    assert [status(tuner, one) for one in (admin, reader, other)] == [401, 200, 200]
    assert "tuner sessions" in tuner.run("sessions", "end", first["id"], code=3)
    tuner.run("sessions", "end", "--all")
    assert [status(tuner, one) for one in (admin, reader, other)] == [401] * 3
    assert tuner.read("sessions") == []


def test_a_stream_of_a_session_that_is_ended_closes(tuner: CommandLine) -> None:
    headers = signed_in(tuner, "token")
    with urlopen(Request(f"{url(tuner)}/api/v1/events", headers=headers), timeout=180) as stream:
        assert stream.readline().startswith((b"id:", b"event:", b"retry:", b":"))
        tuner.run("sessions", "end", "--all")
        assert wait_until(lambda: stream.read() is not None)  # it has an end


@pytest.mark.parametrize("arguments", [("end",), ("ls", "abc"), ("ls", "--all"), ("end", "abc", "--all")], ids=" ".join)
def test_what_nobody_can_have_meant_is_refused_and_nothing_is_ended(
    tuner: CommandLine, arguments: tuple[str, ...]
) -> None:
    headers = signed_in(tuner, "token")

    assert "SESSION or --all" in tuner.run("sessions", *arguments, code=2)
    assert status(tuner, headers) == 200


def test_the_last_use_outlives_the_service(tuner: CommandLine) -> None:
    headers = signed_in(tuner, "token")
    assert status(tuner, headers) == 200
    (before,) = tuner.read("sessions")
    tuner.run("serve", "--stop")
    tuner.run("resume", "@last")

    assert tuner.read("sessions") == [before]

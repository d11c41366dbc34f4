"""Long logs that a service elsewhere has no room for stay at the node, and are sent once it has some."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from trials.agent.home import Home
from trials.agent.moving import joined
from trials.agent.moving.joined import OWED_S, Written, _Wrote, collect_long_logs, send_owed_logs
from trials.stores import BrokenOffError, opened_file
from trials.wire.attempt import AttemptKey
from trials.wire.limits import LOG_INLINE_BYTES

NOW = 1_800_000_000.0
Sent = list[tuple[str, str]]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.make()
    return home


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joined, "PAUSE_S", 0)


def an_attempt(home: Home, number: int = 1) -> _Wrote:
    """It has written much to both streams."""
    key = AttemptKey(experiment_id="e", number=number, attempt=1)
    folder = home.attempt_folder(key, f"n{number}")
    folder.mkdir(parents=True)
    for stream in ("stdout", "stderr"):
        (folder / f"{stream}.log").write_bytes(b"x" * (LOG_INLINE_BYTES + 1))
    return _Wrote(folder, f"n{number}")


def a_service(error: Exception | None, sent: Sent) -> Callable[[Home, Written, str], None]:
    def send(_: Home, wrote: Written, stream: str) -> None:
        sent.append((wrote.nonce, stream))
        if error is not None:
            raise error

    return send


def owed(home: Home) -> list[str]:
    return [one.nonce for one in home.owed_logs()]


@pytest.mark.parametrize("error", [BrokenOffError("status 503: No space left"), OSError(errno.ENOSPC, "here")])
def test_what_there_is_no_room_for_is_owed_and_the_end_is_told(
    error: Exception, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: Sent = []
    monkeypatch.setattr(joined, "_send_log", a_service(error, sent))

    asyncio.run(collect_long_logs(home, an_attempt(home)))

    assert owed(Home(home.path)) == ["n1"], "also for the next agent"
    assert sent == [("n1", "stdout")] * joined.ATTEMPTS, "the other stream has to wait as well: it is not tried"


def test_what_the_service_refuses_is_not_owed(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joined, "_send_log", a_service(OSError("status 403"), []))

    asyncio.run(collect_long_logs(home, an_attempt(home)))

    assert owed(home) == []


def test_what_is_sent_needs_no_room_on_the_disk_of_the_node(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    wrote, sent = an_attempt(home), dict[str, bytes]()
    shutil.rmtree(home.agent)  # nothing can be written there

    def take(source: Path, to: str) -> None:
        with opened_file(source) as file:  # as an upload opens it
            sent[to] = file.read()

    monkeypatch.setattr(joined, "upload", take)

    asyncio.run(collect_long_logs(home, wrote))

    long = b"x" * (LOG_INLINE_BYTES + 1)
    assert sent == {f"tuner:///logs/e/1/1-n1/{stream}": long for stream in ("stdout", "stderr")}


def looked(home: Home, *, now: float = NOW) -> None:
    asyncio.run(send_owed_logs(home, now=now))


def owing(home: Home, *numbers: int) -> None:
    for number in numbers:
        wrote = an_attempt(home, number)
        home.owe_logs(wrote.nonce, wrote.folder)
        os.utime(home.agent / "owed" / wrote.nonce, (NOW + number, NOW + number))


def test_they_are_sent_once_there_is_room_and_once(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    owing(home, 1, 2)
    sent: Sent = []
    monkeypatch.setattr(joined, "_send_log", a_service(BrokenOffError("status 503"), sent))
    looked(home)
    assert (owed(home), sent) == (["n1", "n2"], [("n1", "stdout")]), "for the others there would be no room, either"

    sent.clear()
    monkeypatch.setattr(joined, "_send_log", a_service(None, sent))
    looked(home)
    looked(home)

    assert sent == [(nonce, stream) for nonce in ("n1", "n2") for stream in ("stdout", "stderr")]
    assert owed(home) == []


def test_what_was_removed_is_refused_or_has_waited_too_long_is_owed_no_more(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    owing(home, 1, 2, 3)
    home.remove_experiment("e")
    looked(home)
    assert owed(home) == []

    owing(home, 1, 2)
    monkeypatch.setattr(joined, "_send_log", a_service(OSError("status 403"), []))
    looked(home)
    assert owed(home) == []

    home.remove_experiment("e")
    owing(home, 1, 2)
    monkeypatch.setattr(joined, "_send_log", a_service(BrokenOffError("status 503"), []))
    looked(home, now=NOW + 1.5 + OWED_S)
    assert owed(home) == ["n2"]


def test_of_very_many_the_newest_stay(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    owing(home, 1, 2, 3)
    monkeypatch.setattr(joined, "OWED_LIMIT", 2)
    monkeypatch.setattr(joined, "_send_log", a_service(BrokenOffError("status 503"), []))

    looked(home)

    assert owed(home) == ["n2", "n3"]

"""Where a standby may send an agent, a command or a program that shows it a token."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from trials.agent.home import Home
from trials.agent.ways import HomeWay, JoinedWay, ServiceAddress, ToldWay, Way
from trials.wire.addresses import address_told

NODE, OTHER = "https://a.example:8700", "https://b.example:8700"


@pytest.mark.parametrize(
    ("by", "told"),
    [
        (NODE, OTHER),
        ("http://127.0.0.1:1", "http://127.0.0.1:2"),
        ("http://127.0.0.1:1", "http://localhost:2"),
        ("https://localhost:1", "http://[::1]:2"),
        ("http://10.0.0.1:1", "http://10.0.0.2:1"),
        ("http://10.0.0.1:1", OTHER),
        ("http://127.0.0.1:1", OTHER),
    ],
)
def test_the_active_service_is_gone_to(by: str, told: str) -> None:
    assert address_told(told + "/", by=by) == told


@pytest.mark.parametrize(
    ("by", "told", "why"),
    [
        (NODE, "http://b.example:8700", "in plain text where it was encrypted"),
        ("http://127.0.0.1:1", "http://10.0.0.2:1", "in plain text beyond this machine"),
        (NODE, "https://127.0.0.1:8700", "another process of the asker's machine"),
        ("http://10.0.0.1:1", "http://localhost:1", "another process of the asker's machine"),
        (NODE, NODE + "/", "to itself"),
        (NODE, None, "no address"),
        (NODE, "", "no address"),
        (NODE, "ftp://b.example", "another protocol"),
        (NODE, "https://me:secret@b.example", "with a name"),
        (NODE, OTHER + "/path", "with a path"),
        (NODE, OTHER + "?query", "with a query"),
        (NODE, "https://[::1", "no address"),
        (NODE, "https://b.example:99999", "no port"),
    ],
)
def test_what_would_show_the_token_to_others_is_not_gone_to(by: str, told: str | None, why: str) -> None:
    assert address_told(told, by=by) is None, why


def urls(way: Way) -> str:
    address = way.address()
    assert address is not None
    return address.url


def test_an_agent_goes_where_a_standby_sends_it_and_back_when_nobody_is_there() -> None:
    way = JoinedWay((NODE, "https://c.example"), token_file=Path("token"))
    assert way.sent_on(OTHER)
    assert urls(way) == OTHER
    assert not way.sent_on(NODE), "two that send it to each other"
    way.failed()
    assert urls(way) == NODE, "which may be the active one by now"
    way.failed()
    assert urls(way) == "https://c.example"
    assert not way.sent_on("http://127.0.0.1:1")
    assert urls(way) == "https://c.example"


def test_the_agent_of_a_home_goes_where_its_home_says(tmp_path: Path) -> None:
    assert not HomeWay(Home(tmp_path)).sent_on(OTHER)


def test_the_agent_of_a_node_that_others_hold_goes_where_they_say_at_any_time(tmp_path: Path) -> None:
    home = Home(tmp_path)
    way: Way = ToldWay(home)
    assert (way.is_told, way.is_joined, way.address()) == (True, True, None)
    for url in (NODE, OTHER):
        home.service_file.write_text(json.dumps({"url": url, "pid": 1}))
        way.failed()
        assert urls(way) == url
        assert not way.sent_on("https://c.example")
    home.agent.mkdir()
    (home.agent / "token").write_text("t\n")
    assert way.token() == "t"
    assert not JoinedWay((NODE,), token_file=Path("token")).is_told, "its address was given once"


@pytest.mark.parametrize("what", ["pipe", "folder", "endless", "deep", "a list"])
def test_what_lies_in_the_place_of_the_address_and_is_none_names_no_service_and_is_not_waited_for(
    tmp_path: Path, what: str
) -> None:
    """A trial can put anything there."""
    home = Home(tmp_path)
    match what:
        case "pipe":
            os.mkfifo(home.service_file)
        case "folder":
            home.service_file.mkdir()
        case "endless":
            home.service_file.symlink_to("/dev/zero")
        case "deep":
            home.service_file.write_text("[" * 100_000)
        case _:
            home.service_file.write_text("[1]")

    assert HomeWay(home).address() is None
    assert ToldWay(home).address() is None
    with pytest.raises((OSError, ValueError)):
        ToldWay(home).tls(ServiceAddress(url="https://h:1"))

"""The file of an agent's token: what is taken from it, and what is said where nothing can be."""

from __future__ import annotations

import argparse
import asyncio
import logging
import math
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trials.agent.channel import Channel
from trials.agent.home import Home
from trials.agent.joining import add_join_options, join_of
from trials.agent.moving.service_files import ServiceFiles
from trials.agent.ways import JoinedWay, ServiceAddress, TokenFileError, token_in
from trials.stores import BrokenOffError

TOKEN = "x7Kq-9vRt2LmZ_4wPbN8sYcD"
URL = "http://127.0.0.1:1"


@pytest.mark.parametrize("data", [TOKEN, f"{TOKEN}\n", f"  {TOKEN} \r\n\n", f"\ufeff{TOKEN}\r\n"])
def test_what_an_editor_or_a_shell_puts_around_a_token_is_left_out(data: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(data.encode())

    assert token_in(tmp_path / "token") == TOKEN


def test_a_link_to_the_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "data").write_text(TOKEN)
    (tmp_path / "token").symlink_to("data")

    assert token_in(tmp_path / "token") == TOKEN


WRONG = {
    "empty": (b"", "is empty: `tuner token add"),
    "spaces": (b" \n\t\n", "is empty: `tuner token add"),
    "not UTF-8": (b"\xff\xfe\x00\x81", "holds no token"),
    "UTF-16": (TOKEN.encode("utf-16"), "holds no token"),
    "two lines": (f"{TOKEN}\n{TOKEN}".encode(), "holds no token"),
    "a table": (b"gpu-7 x7Kq-9vRt2LmZ_4wPbN8sYcD", "holds no token"),
    "something long": (b"x" * 5_000, "holds no token"),
    "a folder": (None, "cannot be read: it is no plain file"),
}


def a_file(folder: Path, data: bytes | None) -> Path:
    file = folder / "token"
    if data is None:
        file.mkdir()
    else:
        file.write_bytes(data)
    return file


@pytest.mark.parametrize(("data", "said"), WRONG.values(), ids=WRONG)
def test_what_is_no_token_is_named_with_what_to_do(data: bytes | None, said: str, tmp_path: Path) -> None:
    file = a_file(tmp_path, data)

    with pytest.raises(TokenFileError) as caught:
        token_in(file)

    assert f"the token file {file} {said}" in str(caught.value)
    assert TOKEN not in str(caught.value), "it may be a token all the same"


def test_a_pipe_is_not_waited_for_and_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    for name, said in (("pipe", "it is no plain file"), ("nothing", "No such file or directory")):
        with pytest.raises(TokenFileError, match=f"{name} cannot be read: {said}"):
            token_in(tmp_path / name)


def joined_with(*options: str) -> Any:
    parser = argparse.ArgumentParser(prog="agent")
    parser.add_argument("--home", default="/nowhere")
    add_join_options(parser)
    return join_of(parser, parser.parse_args(["--join", URL, *options]))


@pytest.mark.parametrize(("data", "said"), WRONG.values(), ids=WRONG)
def test_an_agent_is_not_started_with_it(
    data: bytes | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        joined_with("--token-file", str(a_file(tmp_path, data)))

    assert said in capsys.readouterr().err


def test_an_agent_is_not_started_with_certificates_that_are_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "text").write_text("no certificate")
    for name, said in (("text", "it holds no certificates in PEM"), ("nothing", "No such file or directory")):
        with pytest.raises(SystemExit):
            joined_with("--token-file", str(tmp_path / "token"), "--ca", str(tmp_path / name))
        assert f"{tmp_path / name}, cannot be used: {said}" in capsys.readouterr().err

    assert joined_with("--token-file", str(tmp_path / "token")).token() == TOKEN


def test_an_agent_that_runs_says_so_and_tries_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = a_file(tmp_path, b"\xff")
    agent: Any = SimpleNamespace(home=Home(tmp_path))
    channel = Channel(agent, way=JoinedWay((URL,), token_file=file), agent_id="gpu-7", idle_exit_s=math.inf)

    with caplog.at_level(logging.WARNING):
        asyncio.run(channel._converse(ServiceAddress(url=URL)))

    (line,) = (record for record in caplog.records if record.message == "token_not_sent")
    assert "holds no token" in str(line.__dict__["why"])


def test_a_transfer_is_tried_again_while_the_file_is_exchanged(tmp_path: Path) -> None:
    files = ServiceFiles(JoinedWay((URL,), token_file=a_file(tmp_path, b"")), agent_id="gpu-7")

    with pytest.raises(BrokenOffError, match="is empty"), files.asked("GET", "tuner:///assets/files/x"):
        pass

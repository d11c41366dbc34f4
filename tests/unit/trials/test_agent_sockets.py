"""Where the agent listens, and what it does when its socket's file is taken away."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from trials.agent.wake import OwnSocket
from trials.wire import sockets


def heard(own: OwnSocket) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
        sending.sendto(b"x", str(own.path))
    return own.socket.recv(8)


def test_a_socket_whose_file_was_taken_away_is_made_again_and_the_old_one_given_back(tmp_path: Path) -> None:
    own = OwnSocket(tmp_path / "own" / "wake.sock", socket.SOCK_DGRAM)
    assert own.made_again() is None
    before = own.socket
    own.path.unlink()
    own.path.parent.rmdir()

    old = own.made_again()

    assert old is before
    old.close()
    assert heard(own) == b"x"
    assert own.path.parent.stat().st_mode & 0o777 == 0o700
    assert own.made_again() is None
    own.close()
    assert not own.path.exists()


def test_a_file_of_somebody_else_in_its_place_is_replaced_while_it_lives_and_kept_when_it_closes(
    tmp_path: Path,
) -> None:
    own = OwnSocket(tmp_path / "wake.sock", socket.SOCK_DGRAM)
    own.path.unlink()
    own.path.write_text("another's")
    old = own.made_again()
    assert old is not None
    old.close()
    assert heard(own) == b"x"
    own.path.unlink()
    own.path.write_text("the next agent's")

    own.close()

    assert own.path.read_text() == "the next agent's"


def test_what_cannot_be_made_again_is_said_once_and_tried_each_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own = OwnSocket(tmp_path / "own" / "wake.sock", socket.SOCK_DGRAM)
    own.path.unlink()
    own.path.parent.rmdir()
    own.path.parent.write_text("in the way")

    assert [own.made_again() for _ in range(3)] == [None] * 3
    assert [record.message for record in caplog.records] == ["socket_not_made_again"]
    own.path.parent.unlink()
    old = own.made_again()

    assert old is not None
    old.close()
    own.close()


def test_sockets_lie_where_no_logout_removes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "TEMPORARY", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1000")
    own = tmp_path / f"tuner-{os.getuid()}"

    assert sockets.wake_socket_path(tmp_path).parent == own  # it can be made
    own.mkdir()
    assert sockets.wake_socket_path(tmp_path).parent == own
    own.rmdir()
    own.symlink_to(tmp_path)  # somebody else's idea
    assert sockets.wake_socket_path(tmp_path).parent == Path("/run/user/1000/tuner")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/" + "long/" * 20)
    assert sockets.wake_socket_path(tmp_path).parent == own

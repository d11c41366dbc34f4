"""A service that picks its port takes the one of the last time, so that open pages go on after a restart."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import pytest

from tuner_service.config import Settings
from tuner_service.domain.errors import StorageError
from tuner_service.listening import last_port, listening_socket


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path, db=f"sqlite:///{tmp_path}/tuner.db", host="127.0.0.1", port=0)


def port_of(listening: socket.socket) -> int:
    return int(listening.getsockname()[1])


def test_the_port_of_the_last_time_is_taken_again(settings: Settings) -> None:
    with listening_socket(settings) as first:
        port = port_of(first)
    settings.port_file.write_text(str(port))

    with listening_socket(settings) as second:
        assert port_of(second) == port


def test_another_is_picked_where_another_program_has_it_now(settings: Settings) -> None:
    with listening_socket(settings) as others:
        settings.port_file.write_text(str(port_of(others)))
        with listening_socket(settings) as ours:
            assert port_of(ours) not in {0, port_of(others)}


def test_a_port_that_was_asked_for_is_that_one_or_an_error(settings: Settings) -> None:
    with listening_socket(settings) as others:
        asked = replace(settings, port=port_of(others))
        with pytest.raises(StorageError, match="choose another with --port"), listening_socket(asked):
            pass


@pytest.mark.parametrize("text", ["", "soon", "0", "-5", "70000", "é", "9" * 5_000])
def test_a_file_that_names_no_port_names_none(settings: Settings, text: str) -> None:
    settings.port_file.write_text(text, encoding="utf-8")

    assert last_port(settings) == 0

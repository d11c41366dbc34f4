"""Tokens: made once, kept as hashes, readable by their owner only."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner_service.domain.errors import StorageError
from tuner_service.service.access import read_or_make_token

MINE = "0123456789abcdef0123456789abcdef"


def test_a_token_is_made_once_and_readable_by_its_owner_only(tmp_path: Path) -> None:
    file = tmp_path / "agent" / "token"

    token = read_or_make_token(file)

    assert len(token) >= 43
    assert read_or_make_token(file) == token
    assert file.stat().st_mode & 0o777 == 0o600
    assert list(file.parent.iterdir()) == [file]


def test_a_token_file_that_others_can_read_is_closed(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{MINE}\n")
    file.chmod(0o644)

    assert read_or_make_token(file) == MINE
    assert file.stat().st_mode & 0o777 == 0o600


def test_an_empty_token_file_is_no_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("\n")

    with pytest.raises(StorageError, match="is empty"):
        read_or_make_token(tmp_path / "token")


def test_a_file_that_is_no_text_is_no_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(MINE.encode("utf-16"))

    with pytest.raises(StorageError, match="characters that no header takes"):
        read_or_make_token(tmp_path / "token")


def test_a_folder_that_cannot_hold_a_token_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(StorageError, match="cannot be used"):
        read_or_make_token(tmp_path / "file" / "token")


@pytest.mark.parametrize(
    "token", ["x", "secret", "a" * 64, "abcdefg" * 8, "é" * 40, "two words of 24 characters", "a\tb" * 9]
)
def test_a_token_that_could_be_guessed_opens_nothing(tmp_path: Path, token: str) -> None:
    file = tmp_path / "token"
    file.write_text(token)

    with pytest.raises(StorageError, match="remove the file, and the next start makes a new token"):
        read_or_make_token(file)


@pytest.mark.parametrize("token", ["0123456789abcdef0123456789abcdef", "x7Kq-9vRt2LmZ_4wPbN8sYcD"])
def test_a_token_of_enough_characters_is_taken(tmp_path: Path, token: str) -> None:
    file = tmp_path / "token"
    file.write_text(token + "\n")

    assert read_or_make_token(file) == token

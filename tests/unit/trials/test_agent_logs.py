from __future__ import annotations

import errno
from pathlib import Path

import pytest

from trials.processes import logs
from trials.processes.logs import RotatedLog, read_log


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "stdout.log")


def written(path: str, *parts: bytes, limit: int = 10) -> None:
    log = RotatedLog(path, limit=limit)
    for part in parts:
        log.write(part)
    log.close()


def test_a_stream_can_be_read_in_pieces(path: str) -> None:
    written(path, b"hello world", limit=100)

    assert read_log(path, offset=0, limit=5) == (b"hello", 5, 11)
    assert read_log(path, offset=5, limit=100) == (b" world", 11, 11)
    assert read_log(path, offset=-5, limit=100) == (b"world", 11, 11)
    assert read_log(path, offset=50, limit=100) == (b"", 11, 11)


def test_offsets_stay_true_when_the_file_is_rotated(path: str) -> None:
    written(path, b"0123456789", b"abcdef")

    assert read_log(path, offset=8, limit=4) == (b"89ab", 12, 16)
    assert read_log(path, offset=12, limit=100) == (b"cdef", 16, 16)


def test_only_two_files_are_kept_and_reading_starts_at_what_there_is(path: str) -> None:
    written(path, b"0123456789" * 5 + b"end")

    assert read_log(path, offset=0, limit=100) == (b"0123456789end", 53, 53)
    assert sorted(file.name for file in Path(path).parent.iterdir()) == [
        "stdout.log",
        "stdout.log.1",
        "stdout.log.start",
    ]


def test_a_log_that_is_opened_again_goes_on(path: str) -> None:
    written(path, b"0123456789", b"ab")
    written(path, b"cd")

    assert read_log(path, offset=0, limit=100) == (b"0123456789abcd", 14, 14)


def test_a_stream_without_output_is_empty(path: str) -> None:
    assert read_log(path, offset=-10, limit=100) == (b"", 0, 0)


def test_a_stream_on_which_nothing_is_said_has_no_file(path: str) -> None:
    written(path)

    assert list(Path(path).parent.iterdir()) == []


@pytest.mark.parametrize("failing", ["_open", "write_atomically"])
def test_offsets_stay_true_where_the_disk_is_full_while_the_file_is_rotated(
    failing: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    log = RotatedLog(path, limit=100)
    log.write(b"0" * 99 + b"\n")
    with monkeypatch.context() as full:
        full.setattr(RotatedLog if failing == "_open" else logs, failing, refuse)
        log.write(b"lost")
    assert read_log(path, offset=0, limit=200)[2] <= 100
    log.write(b"seen\n")
    log.close()

    note = b"\n[4 bytes were lost: they could not be written]\n"
    assert read_log(path, offset=100, limit=200) == (note + b"seen\n", 105 + len(note), 105 + len(note))

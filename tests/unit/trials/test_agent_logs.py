from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from trials.agent.home import Home
from trials.agent.log_chunks import log_chunk
from trials.agent.moving import joined
from trials.processes import logs
from trials.processes.logs import RotatedLog, read_log
from trials.wire.attempt import AttemptKey
from trials.wire.log_streams import MOST_BYTES, stream_from
from trials.wire.messages import LogChunk, ReadLog
from tuner_service.service.node_files import part_of_log

KEY = AttemptKey(experiment_id="e", number=1, attempt=1)


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


@pytest.mark.parametrize("limit", [1, 3, 4, 5, 7])
def test_no_character_is_cut_by_the_ranges_that_a_log_is_read_in(tmp_path: Path, limit: int) -> None:
    printed = "50%|██████ |\rça va 🎉"
    home = Home(tmp_path)
    folder = home.attempt_folder(KEY, "n")
    folder.mkdir(parents=True)
    (folder / "stdout.log").write_bytes(printed.encode() + b"\xf0\x9f")  # as one that is being written

    def whole(read: Callable[[int], LogChunk]) -> str:
        found, end = "", 0
        while (chunk := read(end)).end > end:
            found, end = found + chunk.data, chunk.end
        assert end == chunk.size
        return found

    def of_agent(offset: int) -> LogChunk:
        return log_chunk(home, ReadLog(request_id="r", key=KEY, nonce="n", stream="stdout", offset=offset, limit=limit))

    def of_service(offset: int) -> LogChunk:
        return part_of_log(folder / "stdout.log", offset=offset, limit=limit)

    if limit >= MOST_BYTES:
        assert (whole(of_agent).rstrip("\ufffd"), whole(of_service).rstrip("\ufffd")) == (printed, printed)
    else:
        assert all(map(whole, (of_agent, of_service)))  # a character that no range can hold comes in pieces


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


def test_a_file_that_is_rotated_while_it_is_read_is_not_taken_for_another(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = RotatedLog(path, limit=10)
    log.write(b"0123456789")
    read = logs._read

    def late(of: str, offset: int, limit: int) -> bytes:
        monkeypatch.setattr(logs, "_read", read)
        log.write(b"abcdef")  # rotates
        return read(of, offset, limit)

    monkeypatch.setattr(logs, "_read", late)
    assert read_log(path, offset=3, limit=100) == (b"3456789abcdef", 16, 16)
    log.close()


def test_who_asks_for_what_is_gone_is_told_where_the_answer_begins(tmp_path: Path) -> None:
    home = Home(tmp_path)
    folder = home.attempt_folder(KEY, "n")
    folder.mkdir(parents=True)
    written(str(folder / "stdout.log"), b"0123456789" * 5 + b"end")

    def asked(offset: int) -> tuple[int | None, str, int]:
        chunk = log_chunk(home, ReadLog(request_id="r", key=KEY, nonce="n", stream="stdout", offset=offset, limit=100))
        return chunk.begin, chunk.data, chunk.end

    assert [asked(offset) for offset in (0, 45, 53, 99, -4)] == [
        *((40, "0123456789end", 53), (45, "56789end", 53), (53, "", 53), (53, "", 53), (49, "9end", 53)),
    ]


def test_the_end_of_a_long_log_keeps_its_offsets_at_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, sent = Home(tmp_path / "home"), tmp_path / "sent"
    folder = home.attempt_folder(KEY, "n")
    folder.mkdir(parents=True)
    sent.mkdir()
    home.agent.mkdir(parents=True, exist_ok=True)
    written(str(folder / "stdout.log"), b"0123456789abc", limit=100)
    monkeypatch.setattr(joined, "LOG_BYTES", 5)
    monkeypatch.setattr(joined, "upload", lambda draft, to: shutil.copy(draft, sent / to.rsplit("/", 1)[-1]))

    joined._send_log(home, SimpleNamespace(folder=folder, nonce="n"), "stdout")  # type: ignore[arg-type]

    (file,) = sent.iterdir()
    assert stream_from(file.name) == ("stdout", 8)
    found = [part_of_log(file, offset=offset, limit=100) for offset in (0, 10, 50, -2)]
    assert [(chunk.begin, chunk.data, chunk.end) for chunk in found] == [
        *((8, "89abc", 13), (10, "abc", 13), (13, "", 13), (11, "bc", 13)),
    ]


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
    assert read_log(path, offset=0, limit=200) == (b"0" * 99 + b"\n", 100, 100)
    assert read_log(path, offset=100, limit=200) == (b"", 100, 100), "nothing comes twice"
    log.write(b"seen\n")
    log.close()

    note = b"\n[4 bytes were lost: they could not be written]\n"
    assert read_log(path, offset=100, limit=200) == (note + b"seen\n", 105 + len(note), 105 + len(note))

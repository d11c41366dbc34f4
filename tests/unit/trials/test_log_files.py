"""Log files of bounded size, to which others append too."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from trials.wire.log_files import KEPT_BYTES, BoundedLog, generations

LIMIT = 1_000


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "service.log"


def add(file: Path, *lines: str) -> None:
    with file.open("a") as log:
        log.writelines(f"{line}\n" for line in lines)


def texts(file: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in generations(file)}


@contextmanager
def no_file_longer_than(size: int) -> Iterator[None]:
    """As on a disk that is full: whatever would be longer is not written."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_short_log_is_left_alone(file: Path) -> None:
    log = BoundedLog(file, limit=LIMIT)
    assert not log.look()
    add(file, "short")
    assert not log.look()
    assert texts(file) == {"service.log": "short\n"}


def test_a_long_log_is_moved_and_the_oldest_of_too_many_goes(file: Path) -> None:
    log = BoundedLog(file, limit=LIMIT, older=2)
    for name in "abcd":
        add(file, name * LIMIT)
        assert log.look()
    add(file, "new")

    assert texts(file) == {
        "service.log.2": "c" * LIMIT + "\n",
        "service.log.1": "d" * LIMIT + "\n",
        "service.log": "new\n",
    }
    assert list(texts(file)) == ["service.log.2", "service.log.1", "service.log"]


def test_who_holds_it_open_goes_on_in_the_newest(file: Path) -> None:
    with file.open("ab", buffering=0) as held:
        held.write(b"x" * LIMIT)
        BoundedLog(file, limit=LIMIT).look()
        held.write(b"after")

    assert texts(file) == {"service.log.1": "x" * LIMIT, "service.log": "after"}


def test_on_a_full_disk_the_end_stays_and_nothing_grows(file: Path) -> None:
    lines = [f"line {number}" for number in range(100_000)]
    add(file, *lines)
    size = file.stat().st_size
    log = BoundedLog(file, limit=size)

    with no_file_longer_than(size // 2):
        assert log.look()

    kept = texts(file)
    assert list(kept) == ["service.log"]
    assert KEPT_BYTES - 100 < file.stat().st_size <= KEPT_BYTES
    assert kept["service.log"].splitlines() == lines[-len(kept["service.log"].splitlines()) :]
    assert not log.look()


def test_where_nothing_at_all_can_be_written_it_is_empty_and_no_error(file: Path) -> None:
    add(file, "x" * LIMIT)

    with no_file_longer_than(0):
        BoundedLog(file, limit=LIMIT).look()

    assert file.stat().st_size == 0


def test_a_log_that_cannot_be_opened_is_no_error(tmp_path: Path) -> None:
    folder = tmp_path / "service.log"
    folder.mkdir()
    for _ in range(3):
        assert not BoundedLog(folder, limit=0).look()


def test_what_is_copied_is_its_owners_alone(file: Path) -> None:
    add(file, "x" * LIMIT)
    before = os.umask(0)
    try:
        BoundedLog(file, limit=LIMIT).look()
    finally:
        os.umask(before)

    assert Path(f"{file}.1").stat().st_mode & 0o777 == 0o600


def test_other_names_are_no_older_logs(file: Path) -> None:
    add(file, "new")
    for name in ("service.log.1", "service.log.10", "service.log.2"):
        add(file.with_name(name), name)
    for name in ("service.log.0", "service.log.x", "service.log.1.gz", "service.log.-1", "service_log.3"):
        add(file.with_name(name), "of somebody else")

    assert [path.name for path in generations(file)] == [
        "service.log.10",
        "service.log.2",
        "service.log.1",
        "service.log",
    ]

from __future__ import annotations

import io
from pathlib import Path

from tuner_service.workers.worker_log import LOG_LIMIT_BYTES, TAIL_BYTES, WorkerLog


def copied(data: bytes, path: Path) -> WorkerLog:
    log = WorkerLog(io.BufferedReader(io.BytesIO(data)), path)  # type: ignore[arg-type]  # bytes are raw enough
    log.start()
    log.join(10)
    assert not log.is_alive()
    return log


def test_the_log_is_bounded_and_one_older_file_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "e1.log"
    log = copied(b"0123456789abcdef" * (LOG_LIMIT_BYTES // 16 * 2 + 5), path)
    assert path.stat().st_size <= LOG_LIMIT_BYTES
    assert (tmp_path / "e1.log.1").stat().st_size <= LOG_LIMIT_BYTES
    assert len(log.tail) == TAIL_BYTES
    assert log.tail.endswith("abcdef")


def test_a_log_that_cannot_be_written_still_drains_what_comes(tmp_path: Path) -> None:
    log = copied(b"the end", tmp_path / "missing" / "e1.log")
    assert log.tail == "the end"

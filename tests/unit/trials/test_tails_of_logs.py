"""What is told of a log of a server that did not start: its end, however long it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from trials.agent.forks.servers import _last_line
from trials.agent.sharing.servers import _tail

LONG = 1 << 40  # bytes, of a file with a hole


@pytest.mark.parametrize("end_of", [_last_line, _tail])
def test_the_end_of_a_log_of_any_length_is_told(tmp_path: Path, end_of: Callable[[Path], str | None]) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"first\n")
    with log.open("r+b") as file:
        file.truncate(LONG)
        file.seek(LONG)
        file.write("\nno room for the module \u220e\n".encode())

    assert (end_of(log) or "").endswith("no room for the module \u220e")
    assert len(end_of(log) or "") <= 2_000


@pytest.mark.parametrize("end_of", [_last_line, _tail])
def test_what_is_not_there_has_no_end(tmp_path: Path, end_of: Callable[[Path], str | None]) -> None:
    (tmp_path / "empty").write_bytes(b"")

    assert not end_of(tmp_path / "nowhere")
    assert not end_of(tmp_path / "empty")

"""What is told of a log of a server that did not start: its end, however long it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from trials.agent.forks.servers import _last_line
from trials.agent.sharing.servers import TAIL_BYTES
from trials.processes.logs import end_of

LONG = 1 << 40  # bytes, of a file with a hole


def tail(log: Path) -> str:
    """As it is told of a data server."""
    return end_of(str(log), TAIL_BYTES)


@pytest.mark.parametrize("told", [_last_line, tail])
def test_the_end_of_a_log_of_any_length_is_told(tmp_path: Path, told: Callable[[Path], str | None]) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"first\n")
    with log.open("r+b") as file:
        file.truncate(LONG)
        file.seek(LONG)
        file.write("\nno room for the module \u220e\n".encode())

    assert (told(log) or "").endswith("no room for the module \u220e")
    assert len(told(log) or "") <= 2_000


@pytest.mark.parametrize("told", [_last_line, tail])
def test_what_is_not_there_has_no_end(tmp_path: Path, told: Callable[[Path], str | None]) -> None:
    (tmp_path / "empty").write_bytes(b"")

    assert not told(tmp_path / "nowhere")
    assert not told(tmp_path / "empty")

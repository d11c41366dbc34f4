"""A file that grows or shrinks while it is sent, and one whose name is as long as one can be."""

from __future__ import annotations

from pathlib import Path

import pytest

from trials.agent.moving import service_files
from trials.agent.moving.service_files import ServiceFiles
from trials.agent.ways import JoinedWay
from trials.files import create_once, draft_of, write_atomically
from trials.stores import is_draft


class Receiving(ServiceFiles):
    """Takes pieces as the service does: none beyond the size that was said first. The file changes at the first."""

    def __init__(self, source: Path, *, becomes: bytes) -> None:
        super().__init__(JoinedWay(("http://127.0.0.1:1",), token_file=source), agent_id="a")
        self._source, self._becomes = source, becomes
        self.received = b""
        self.requests = 0

    def _offset(self, path: str, said: dict[str, str]) -> int:
        self._source.write_bytes(self._becomes)
        return 0

    def _put_piece(self, path: str, piece: bytes, offset: int, said: dict[str, str]) -> int:
        self.requests += 1
        if offset == len(self.received) and offset + len(piece) <= int(said[service_files.SIZE]):
            self.received += piece
        return len(self.received)


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(service_files, "PIECE_BYTES", 4)
    (tmp_path / "file").write_bytes(b"0123456789")
    return tmp_path / "file"


def test_of_a_file_that_grows_what_it_was_is_sent(source: Path) -> None:
    files = Receiving(source, becomes=b"0123456789 and more, and more")

    files.put_file(str(source), "tuner:///checkpoints/x")

    assert (files.received, files.requests) == (b"0123456789", 3)


def test_a_file_that_shrinks_is_said_to(source: Path) -> None:
    files = Receiving(source, becomes=b"01234")

    with pytest.raises(OSError, match="has become shorter while it was sent"):
        files.put_file(str(source), "tuner:///checkpoints/x")

    assert files.requests <= 3


@pytest.mark.parametrize("name", ["x" * 255, "é" * 127, "😀" * 63, "x" * 240 + ".ckpt"])
def test_a_name_may_be_as_long_as_file_systems_take(name: str, tmp_path: Path) -> None:
    write_atomically(str(tmp_path / name), b"whole")
    assert create_once(str(tmp_path / name), b"another") is False

    assert (tmp_path / name).read_bytes() == b"whole"
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert is_draft(Path(draft_of(str(tmp_path / name))))

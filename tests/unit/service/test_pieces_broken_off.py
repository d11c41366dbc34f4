"""A request that was broken off closes its piece while a thread may still be writing it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from tuner_service.domain.errors import InputError
from tuner_service.service.assets import uploads
from tuner_service.service.assets.uploads import PieceWriter


def test_a_piece_that_was_closed_writes_into_no_other_file(tmp_path: Path) -> None:
    writer = PieceWriter(tmp_path, hashlib.sha256(b"whole").hexdigest())
    writer.close()
    others = [os.open(tmp_path / str(number), os.O_WRONLY | os.O_CREAT) for number in range(3)]

    with pytest.raises(BrokenPipeError, match="was broken off"):
        writer.write(b"late")
    writer.close()

    for number, descriptor in enumerate(others):
        os.close(descriptor)  # an error where somebody else has closed it
        assert (tmp_path / str(number)).stat().st_size == 0


def test_a_piece_that_was_finished_stays_when_it_is_closed(tmp_path: Path) -> None:
    digest = hashlib.sha256(b"whole").hexdigest()
    writer = PieceWriter(tmp_path, digest)
    writer.write(b"whole")
    writer.finish()
    writer.close()

    assert [path.name for path in tmp_path.iterdir()] == [digest]


def test_a_piece_is_no_longer_than_a_piece_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "PIECE_BYTES", 4)
    writer = PieceWriter(tmp_path, hashlib.sha256(b"longer").hexdigest())
    writer.write(b"long")

    with pytest.raises(InputError, match="at most 4 bytes"):
        writer.write(b"er")
    writer.close()
    assert list(tmp_path.iterdir()) == []

"""What the process of an archive says in the place of an answer is told, and is no reason to begin anew."""

from __future__ import annotations

import io
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tuner_service.domain.errors import StorageError
from tuner_service.exports.archive_process import ArchiveProcess


class Said:
    """A process that has ended."""

    def __init__(self, text: str, code: int) -> None:
        self.stdout, self.returncode = io.StringIO(text), code

    def wait(self) -> int:
        return self.returncode

    def kill(self) -> None: ...


def read(monkeypatch: pytest.MonkeyPatch, text: str, code: int = 0) -> list[Any]:
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: Said(text, code))
    return list(ArchiveProcess("sqlite:///none.db").read(Path("a.parquet"), rows=1, digest="d", after=(0, 0, 0)))


def test_rows_are_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(monkeypatch, '[[1, 2]]\n{"done": true}\n') == [[[1, 2]]]


@pytest.mark.parametrize("text", ["hello\n", "3\n", "\n", "[[1, 2"])
def test_what_is_no_answer_is_told(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    with pytest.raises(StorageError) as raised:
        read(monkeypatch, text)
    assert f"no answer: {text!r}" in str(raised.value)


def test_of_one_that_dies_in_the_midst_of_an_answer_its_end_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StorageError, match="ended with -9"):
        read(monkeypatch, "[[1, 2", code=-9)

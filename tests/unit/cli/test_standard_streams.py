"""Standard streams that are full, or of an encoding without our signs."""

from __future__ import annotations

import errno
import io
import sys

import pytest

from tuner_service.cli.files import experiment_file
from tuner_service.cli.files.results_file import read_results
from tuner_service.cli.output import exit_codes
from tuner_service.cli.output.exit_codes import CommandError, ExitCode, exit_code_of, say
from tuner_service.cli.output.tables import print_object


class Full(io.StringIO):
    def write(self, _text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_narration_that_a_full_disk_does_not_take_does_not_end_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    discarded: list[object] = []
    full = Full()
    monkeypatch.setattr(sys, "stderr", full)
    monkeypatch.setattr(exit_codes, "discard", discarded.append)

    say("started digits")

    assert discarded == [full]


def test_what_programs_read_is_utf8_where_the_terminal_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    latin = io.TextIOWrapper(written, encoding="latin-1", errors="backslashreplace")
    monkeypatch.setattr(sys, "stdout", latin)

    print_object({"name": "▁é"}, output="table", text=lambda row: f"{row['name']}\n")
    print_object({"name": "▁é"}, output="jsonl", text=str)
    latin.flush()

    assert written.getvalue() == b"\\u2581\xe9\n" + '{"name": "▁é"}\n'.encode()


def test_an_error_of_the_system_is_told_without_its_number(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code_of(OSError(errno.ENOSPC, "No space left on device")) == ExitCode.FAILURE

    assert capsys.readouterr().err == "tuner: No space left on device\n"


def test_empty_results_on_standard_input_are_called_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))

    with pytest.raises(CommandError, match=r"^standard input has no results: it is empty$"):
        read_results("-")


def test_a_device_without_an_end_is_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment_file, "MAX_TEXT", 1 << 20)

    with pytest.raises(CommandError, match=r"^/dev/zero is longer than 1 MiB, the most that is read$"):
        experiment_file.read_text("/dev/zero")


def test_standard_input_that_is_no_text_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff"), encoding="utf-8", errors="surrogateescape"))

    with pytest.raises(CommandError, match=r"^standard input is not UTF-8 text$"):
        experiment_file.read_text("-")

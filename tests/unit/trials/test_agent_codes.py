"""Scripts that a fork server compiles once for all of its trials."""

from __future__ import annotations

from pathlib import Path

import pytest

from trials.agent.forks.codes import CODES_MAX, Codes
from trials.agent.supervision.starting import Start

SCRIPT = "def outer():\n    def inner():\n        return 1 / 0\n    return inner\n"


def start_in(folder: Path, script: str | None = SCRIPT, command: str = "script.py") -> Start:
    start = Start(nonce="n1", command=["python", command], variables={}, folder=str(folder))
    start.work = str(folder)
    if script is not None:
        folder.mkdir(exist_ok=True)
        (folder / "script.py").write_text(script)
    return start


def test_the_code_names_the_script_of_its_own_attempt_in_every_function(tmp_path: Path) -> None:
    codes = Codes()
    for name in ("first", "second"):
        code = codes.find(start_in(tmp_path / name))
        path = str(tmp_path / name / "script.py")

        assert code is not None
        (outer,) = (constant for constant in code.co_consts if hasattr(constant, "co_code"))
        (inner,) = (constant for constant in outer.co_consts if hasattr(constant, "co_code"))
        assert [part.co_filename for part in (code, outer, inner)] == [path] * 3


def test_a_changed_script_is_compiled_anew(tmp_path: Path) -> None:
    codes = Codes()
    before = codes.find(start_in(tmp_path, "x = 1\n"))
    after = codes.find(start_in(tmp_path, "x = 2\n"))

    assert before is not None
    assert after is not None
    assert before.co_consts != after.co_consts


@pytest.mark.parametrize("script", ["x = ", "x = 1 is 1\n", "", None, "x = 1\0\n"])
def test_what_has_an_error_or_a_warning_or_is_not_there_is_left_to_the_trial(
    tmp_path: Path, script: str | None
) -> None:
    assert Codes().find(start_in(tmp_path, script)) is None


@pytest.mark.parametrize("command", ["-c", "--flag", "/elsewhere/script.py"])
def test_what_is_no_file_of_the_attempt_is_left_to_the_trial(tmp_path: Path, command: str) -> None:
    assert Codes().find(start_in(tmp_path, command=command)) is None


def test_only_so_many_scripts_are_kept(tmp_path: Path) -> None:
    codes = Codes()
    for number in range(CODES_MAX + 3):
        assert codes.find(start_in(tmp_path, f"x = {number}\n")) is not None

    assert len(codes._known) == CODES_MAX

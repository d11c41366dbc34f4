"""An empty argument, which a variable of a shell leaves that is not set, and an option that would do nothing."""

from __future__ import annotations

import pytest

from tuner_service.cli.main import main


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (["init", ""], "NAME"),
        (["export", "@last", ""], "FILE"),
        (["token", "add", "ann", "--role", "admin", "--file", ""], "--file"),
        (["get", "@last/1", ""], "DIR"),
        (["agent", "rm", ""], "URL|NAME"),
        (["db", "path", "--db", ""], "--db"),
        (["ps", "--home", ""], "--home"),
        (["db", "copy", "", "x"], "FROM"),
    ],
)
def test_an_empty_argument_is_refused_by_its_name(
    line: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line) == 2

    assert capsys.readouterr().err == f"tuner: {named} is empty; is a variable of your shell not set?\n"


def test_a_folder_is_no_database(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["db", "path", "--db", "//"]) == 2

    assert capsys.readouterr().err.startswith("tuner: --db names a database file, not the folder /")


def test_a_database_is_not_copied_into_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["db", "copy", "/", "/"]) == 2

    assert capsys.readouterr().err == "tuner: / is a folder; name a database file in it\n"


def test_a_path_of_a_user_that_there_is_not_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "~no-such-user/search"]) == 2

    assert capsys.readouterr().err.startswith("tuner: a path begins with ~, and there is no such user")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["trials", "@last", "--metrics"], "`tuner export @last --metrics FILE`"),
        (["agent", "ls", "--force"], "--force belongs to the action rm of `tuner agent`"),
        (["agent", "rm", "gpu-7", "--cancel"], "--cancel belongs to the action drain of `tuner agent`"),
        (["agent", "drain", "gpu-7", "--label", "zone=b"], "--label belongs to the action join of `tuner agent`"),
    ],
)
def test_an_option_that_would_do_nothing_is_refused(
    line: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line) == 2

    assert said in capsys.readouterr().err

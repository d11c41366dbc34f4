"""Reading an experiment file and packing the code beside it."""

from __future__ import annotations

import base64
import inspect
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from trials.agent.home import Home
from tuner_service.cli.files import experiment_file
from tuner_service.cli.files.experiment_file import check_readable, pack_folder, read_body
from tuner_service.cli.files.ignore import ignoring_in_code
from tuner_service.cli.files.yaml_core import YamlError, load_yaml
from tuner_service.cli.output.exit_codes import CommandError, ExitCode
from tuner_service.clock import new_token
from tuner_service.config import resolve_settings
from tuner_service.service.access import read_or_make_token


def packed(folder: Path) -> dict[str, dict[str, Any]]:
    return {file["path"]: file for file in pack_folder(folder)["files"]}


def test_the_code_folder_lies_relative_to_the_file_and_is_sent_inline(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("print(1)\n")
    file = tmp_path / "search.yaml"
    file.write_text("trial: {code: src, command: python train.py}\n")

    body = read_body(str(file))

    assert body["name"] == "search"
    assert body["trial"]["code"] == {"files": [{"path": "train.py", "content": "print(1)\n"}]}


def test_code_named_by_its_digest_is_left_as_it_is(tmp_path: Path) -> None:
    digest = "sha256:" + "a" * 64
    file = tmp_path / "search.json"
    file.write_text(f'{{"name": "n", "trial": {{"code": "{digest}"}}}}')

    assert read_body(str(file), name="other") == {"name": "other", "trial": {"code": digest}}


def test_binary_files_and_modes_survive(tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(b"\x00\xff")
    (tmp_path / "nul.txt").write_bytes(b"a\x00b")
    (tmp_path / "run.sh").write_text("#!/bin/sh\n")
    (tmp_path / "run.sh").chmod(0o755)

    files = packed(tmp_path)

    assert base64.b64decode(files["data.bin"]["content_base64"]) == b"\x00\xff"
    assert base64.b64decode(files["nul.txt"]["content_base64"]) == b"a\x00b"
    assert files["run.sh"]["mode"] == "755"


def test_ignored_files_stay_behind_in_every_folder(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("*.pt\ndata/\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / ".tunerignore").write_text("secret\n")
    for path in ("a.py", "model.pt", "sub/b.py", "sub/secret", "sub/model.pt"):
        (tmp_path / path).write_text("")
    for folder in ("data", "__pycache__", ".git", "sub/data"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "file").write_text("")

    assert set(packed(tmp_path)) == {".gitignore", "a.py", "sub/.tunerignore", "sub/b.py"}


def test_a_home_of_the_service_inside_the_folder_is_left_out_with_its_tokens(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    home = tmp_path / "deep" / "home"
    home.mkdir(parents=True)
    settings = resolve_settings({"home": str(home)}, environment={"HOME": str(tmp_path)}, folder=tmp_path)
    read_or_make_token(settings.token_file)
    read_or_make_token(settings.read_only_token_file)

    assert [file["path"] for file in pack_folder(tmp_path)["files"]] == ["train.py"]
    with pytest.raises(CommandError, match="is the home folder of a service or an agent, with its tokens"):
        pack_folder(home)


def test_what_belongs_to_an_agent_beside_the_code_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As when both are tried in one folder: its home, with secrets and a link to a package, and its token."""
    (tmp_path / "train.py").write_text("")
    (tmp_path / "key.txt").write_text("k" * 43)  # which others may read: none of ours
    home = Home(tmp_path / "far")
    home.agent.mkdir(parents=True)
    home.home_id()
    (home.agent / "path").symlink_to("/usr")
    token = tmp_path / "far.token"
    token.write_text(f"{new_token()}\n")
    token.chmod(0o600)

    assert [file["path"] for file in pack_folder(tmp_path)["files"]] == ["key.txt", "train.py"]
    assert f"trial.code: {token} holds a token, and is not sent along" in capsys.readouterr().err
    is_left_out = ignoring_in_code(tmp_path)
    left_out = {path.name for path in tmp_path.iterdir() if is_left_out(path.name, path.is_dir())}
    assert left_out == {"far", "far.token"}
    with pytest.raises(CommandError, match="is the home folder of a service or an agent"):
        pack_folder(home.path)


def test_a_link_inside_the_folder_is_followed_and_one_that_leads_out_is_refused(tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "a.py").write_text("1")
    (code / "b.py").symlink_to("a.py")
    assert packed(code)["b.py"]["content"] == "1"

    (tmp_path / "secret").write_text("")
    (code / "c.py").symlink_to("../secret")
    with pytest.raises(CommandError, match="outside the code folder"):
        pack_folder(code)


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("lib", r"is a link to a folder \(.*lib\)"),
        ("../shared", "outside the code folder"),
        ("nothing", r"is a link to nothing \(.*nothing\)"),
        ("link", "is a link to nothing"),
        (".", "is a link to a folder"),
    ],
)
def test_a_link_to_what_is_not_sent_is_an_error_that_names_the_line_to_leave_it_out(
    tmp_path: Path, target: str, said: str
) -> None:
    code = tmp_path / "code"
    (code / "lib").mkdir(parents=True)
    (tmp_path / "shared").mkdir()
    (code / "link").symlink_to(target)

    with pytest.raises(CommandError, match=said + r".*with a line /link in .*\.tunerignore"):
        pack_folder(code)

    (code / ".tunerignore").write_text("\ufeff/link\n")
    assert set(packed(code)) == {".tunerignore"}


def test_a_lock_of_an_editor_is_no_part_of_the_code(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    (tmp_path / ".#train.py").symlink_to("somebody@somewhere.123")

    assert set(packed(tmp_path)) == {"train.py"}


def test_an_experiment_file_may_begin_with_the_mark_of_utf_8(tmp_path: Path) -> None:
    for file in (tmp_path / "search.yaml", tmp_path / "search.json"):
        file.write_text('\ufeff{"name": "n"}')

        assert read_body(str(file)) == {"name": "n"}


def test_code_beyond_the_limit_names_the_limit_and_the_largest_files(
    tmp_path: Path,
) -> None:
    with (tmp_path / "weights.bin").open("wb") as stream:
        stream.truncate(experiment_file.MAX_CODE_BYTES + 1)

    with pytest.raises(CommandError, match=r"16 MiB are taken.*weights\.bin \(16\.0 MiB\).*\.tunerignore") as caught:
        pack_folder(tmp_path)
    assert caught.value.code is ExitCode.USAGE


def test_folders_in_one_another_are_packed_however_deep_they_are(tmp_path: Path) -> None:
    depth, limit = 150, sys.getrecursionlimit()
    place = tmp_path.joinpath(*["d"] * depth)
    place.mkdir(parents=True)
    (place / "a.py").touch()

    sys.setrecursionlimit(len(inspect.stack()) + depth // 2)
    try:
        files = packed(tmp_path)
    finally:
        sys.setrecursionlimit(limit)

    assert list(files) == [f"{'d/' * depth}a.py"]


@pytest.mark.parametrize(
    ("trial", "said"),
    [
        ({"code": "a\0b"}, r"trial\.code: no file has the path 'a\\x00b'"),
        ({"code": "\ud800"}, r"trial\.code: no file has the path"),
        ({"code": "~no-such-user/x"}, r"trial\.code: ~no-such-user/x begins with ~, and there is no such user"),
        ({"datasets": {"data": "~no-such-user/x"}}, r"trial\.datasets\.data: ~no-such-user/x begins with ~"),
        ({"models": {"m": [{"path": "\0"}]}}, r"trial\.models\.m: no file has the path"),
    ],
)
def test_a_path_that_no_file_can_have_is_refused_by_its_field(tmp_path: Path, trial: dict[str, Any], said: str) -> None:
    (tmp_path / "search.json").write_text(json.dumps({"trial": trial}))

    with pytest.raises(CommandError, match=said):
        read_body(str(tmp_path / "search.json"))


def test_a_search_space_of_nnis_at_a_path_that_no_file_can_have_is_refused(tmp_path: Path) -> None:
    (tmp_path / "nni.json").write_text(json.dumps({"trialCommand": "true", "searchSpaceFile": "a\0b"}))

    with pytest.raises(CommandError, match="searchSpaceFile: no file has the path"):
        read_body(str(tmp_path / "nni.json"))


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="there is no folder"):
        pack_folder(tmp_path / "none")
    with pytest.raises(CommandError, match="does not exist"):
        check_readable(str(tmp_path / "none.yaml"))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 0.0001),
        ("1.5E3", 1500.0),
        ("010", 10),
        ("0x1F", 31),
        ("0o17", 15),
        ("-7", -7),
        ("on", "on"),
        ("no", "no"),
        ("true", True),
        ("~", None),
        ("", None),
        ("null", None),
        ("nullable", "nullable"),
        ("1:30", "1:30"),
        ("2026-01-01", "2026-01-01"),
        (".inf", float("inf")),
        ("python", "python"),
        ("1_000", "1_000"),
    ],
)
def test_yaml_means_what_version_1_2_says(text: str, value: Any) -> None:
    assert load_yaml(f"a: {text}") == {"a": value}


def test_a_key_that_stands_twice_is_an_error_and_merging_is_not() -> None:
    with pytest.raises(YamlError, match="'a' stands twice"):
        load_yaml("a: 1\na: 2")
    assert load_yaml("base: &b {x: 1, y: 2}\nmade: {<<: *b, y: 3}")["made"] == {"x": 1, "y": 3}


def test_yaml_makes_no_objects() -> None:
    with pytest.raises(YamlError):
        load_yaml("!!python/object/apply:os.system ['true']")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: !!int x", "'x' is no whole number"),
        ("a: !!float x", "'x' is no number"),
        ("a: !!bool maybe", "'maybe' is no boolean"),
        ("a: !!map [1]", "a tag says that this is a mapping"),
        ("a: !!map x", "a tag says that this is a mapping"),
        ("a: !!binary aGk=", "could not determine a constructor"),
        ("a: !!timestamp 2026-01-01", "could not determine a constructor"),
        ("a: !!set {b}", "could not determine a constructor"),
        (f"a: {'9' * 5_000}", "a whole number of 5000 digits is too large"),
        (f"a: {'[' * 900}{']' * 900}", "too deep"),
    ],
)
def test_what_a_tag_says_wrongly_and_what_python_cannot_hold_is_an_error_of_the_file(text: str, said: str) -> None:
    with pytest.raises(YamlError, match=said):
        load_yaml(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: &a {b: *a}", "recursive"),
        ("&a [[*a]]", "an alias names what it stands in"),
        ("\n".join(["1: &1 [x]", *(f"{n + 1}: &{n + 1} [{f'*{n}, ' * 20}]" for n in range(1, 8))]),
         "its aliases repeat so much"),
        ("a: &a " + "x" * 100_000 + "\nb: [" + "*a, " * 1_000 + "]", "its aliases repeat so much"),
    ],
)  # fmt: skip
def test_what_aliases_make_without_end_is_an_error_of_the_file(text: str, said: str) -> None:
    with pytest.raises(YamlError, match=said):
        load_yaml(text)


def test_what_an_alias_repeats_is_read() -> None:
    assert load_yaml("a: &a [1]\nb: [*a, *a]") == {"a": [1], "b": [[1], [1]]}


def test_a_tag_of_the_core_schema_may_be_written() -> None:
    assert load_yaml("a: [!!str 1, !!int 2, !!float 3.5, !!bool true, !!null null, !!seq [], !!map {}]") == {
        "a": ["1", 2, 3.5, True, None, [], {}]
    }


@pytest.mark.parametrize("text", ["[" * 100_000, f"[{'9' * 5_000}]"])
def test_a_file_that_json_cannot_hold_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "search.json"
    file.write_text(text)

    with pytest.raises(CommandError, match=r"search\.json is not JSON"):
        read_body(str(file))


def test_code_named_as_a_version_is_an_asset_and_not_a_folder(tmp_path: Path) -> None:
    file = tmp_path / "search.yaml"
    file.write_text("trial: {code: trainer@3, command: python train.py}\n")

    assert read_body(str(file))["trial"]["code"] == {"asset": "trainer@3"}

    (tmp_path / "trainer@3").mkdir()
    assert read_body(str(file))["trial"]["code"] == {"files": []}


def test_code_too_large_for_a_request_is_named_by_its_place(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    with (tmp_path / "src" / "weights").open("wb") as large:
        large.truncate(experiment_file.MAX_CODE_BYTES + 1)
    file = tmp_path / "search.yaml"
    file.write_text("trial: {code: src, datasets: {data: ./data, more: digits}}\n")

    trial = read_body(str(file))["trial"]

    assert trial["code"] == {"path": str(tmp_path / "src")}
    assert trial["datasets"] == {"data": str(tmp_path / "data"), "more": "digits"}
